"""Rows that a magic returns: a data frame that is shown as the views show rows."""

from __future__ import annotations

import datetime as dt
import pickle
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest
from browser.stores import Written
from notebook_shell import Shell, bare_shell  # noqa: F401 (a fixture)
from reading.test_exact_values import HOUR, NAN, NESTED, NOON, written

from streamstate.state_inspect.cell_text import timestamp
from streamstate.widgets.tables.shown_frame import MOST


@pytest.fixture
def shell(bare_shell: Shell, tmp_path: Path) -> Shell:
    """A shell that uses a store with windows as keys."""
    written(tmp_path / "store", NESTED)
    bare_shell.run(f"%config StreamState.store = {str(tmp_path / 'store')!r}")
    return bare_shell


def test_a_window_is_shown_whole(shell: Shell) -> None:
    """Pandas would cut it after fifty characters; the tooltip has both ends."""
    found = shell.run("%state q at 1 --limit 3 --by b")
    for text in (repr(found), found._repr_html_()):
        assert f"{NOON.astimezone():%Y-%m-%d %H:%M} +1h" in text
        assert "..." not in text
    assert f"– {(NOON + dt.timedelta(hours=1)).astimezone():%H:%M:%S}" in found._repr_html_()
    assert isinstance(found, pd.DataFrame)
    assert found["a"][0] == HOUR


def test_null_and_nan_are_told_apart(bare_shell: Shell, tmp_path: Path) -> None:
    """In SQL, too."""
    queries = Written(tmp_path / "store", "q", {"op0": ({"k": pa.string(), "x": pa.float64()}, 1)})
    queries.add({"op0": {("a",): (None,), ("b",): (NAN,), (None,): (1.5,)}})
    bare_shell.run(f"%config StreamState.store = {str(tmp_path / 'store')!r}")
    for cell in ("%state q at 0", "%%statesql\nFROM q ORDER BY k"):
        assert repr(bare_shell.run(cell)).split() == ["k", "x", "a", "null", "b", "nan", "null", "1.5"]


def test_what_is_computed_from_it_is_an_ordinary_frame(shell: Shell) -> None:
    """And what is changed in it is shown."""
    found = shell.run("%state q at 1")
    assert type(found.head(1)) is type(found.copy()) is type(found[found["b"].isna()]) is pd.DataFrame
    found["new"] = 7
    assert "7" in repr(found)
    assert "<table" in pickle.loads(pickle.dumps(found))._repr_html_()
    found.index = found["new"]
    assert "new" in repr(found)


def test_snapshots_are_shown_one_epoch_a_line(shell: Shell) -> None:
    """Without run ids and offsets; numbers, not dicts. The frame has everything."""
    found = shell.run("%snapshots q")
    assert {"run_id", "offsets"} < set(found.columns)
    lines = repr(found).splitlines()
    assert [line.split() for line in (lines[0], lines[1])] == [
        ["epoch", "status", "committed", "at", "watermark", "input", "rows", "rows", "changes"],
        ["0", "captured", *timestamp(NOON).split(), "-", "-", "2", "2"],
    ]
    assert "{" not in repr(shell.run("%snapshots"))


def test_only_the_first_rows_are_shown(bare_shell: Shell, tmp_path: Path) -> None:
    """The caption says so."""
    queries = Written(tmp_path / "store", "q", {"op0": ({"k": pa.int64(), "x": pa.float64()}, 1)})
    queries.add({"op0": {(key,): (None,) for key in range(MOST + 1)}})
    bare_shell.run(f"%config StreamState.store = {str(tmp_path / 'store')!r}")
    shown = bare_shell.run("%state q at 0 -o rows")._repr_html_()
    assert f"The first {MOST} of {MOST + 1} rows" in shown
    assert shown.count("<tr>") == MOST + 1
