"""``%%statesql``: SQL over the store and the notebook's DataFrames, at any epoch, in either engine."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from notebook_shell import Shell, bare_shell, shell  # noqa: F401 (fixtures)

from streamstate.errors import (
    InvalidArgumentError,
    InvalidSQLError,
    NaiveTimestampError,
    UnknownEpochError,
    UnknownNameError,
)
from streamstate.reports import Store

NAMES = pd.DataFrame({"k": ["k1", "k2"], "name": ["one", "two"]})


@pytest.fixture
def reader(bare_shell: Shell, counted: tuple[Path, Path]) -> Shell:
    """A shell that uses the store of ``counts`` and has a DataFrame ``names``."""
    bare_shell.run(f"%config StreamState.store = {str(counted[1])!r}")
    bare_shell.names["names"] = NAMES
    return bare_shell


def test_dataframes_are_relations(reader: Shell) -> None:
    """They have the names of their variables and need no declaration."""
    found = reader.run("%%statesql -o kept\nSELECT name, n.k FROM counts AS n JOIN names USING (k) ORDER BY name")
    assert found["name"].tolist() == ["one", "two"]
    assert reader.names["kept"] is found


def test_a_query_takes_precedence_over_a_variable(reader: Shell) -> None:
    """A variable of the same name is ignored, and is an error with --frame."""
    reader.names["counts"] = NAMES
    assert "max" in reader.run("%%statesql\nFROM counts").columns
    assert "would hide" in reader.fails("%%statesql --frame counts\nFROM counts", InvalidArgumentError)


def test_other_variables_are_not_read(reader: Shell) -> None:
    """A string, which could be a path, is not a relation."""
    reader.names["secret"] = "/etc/hostname"
    assert "counts" in reader.fails("%%statesql\nFROM secret", UnknownNameError)


def test_frame_declares_a_variable(reader: Shell, tmp_path: Path) -> None:
    """With --frame, a string is read as a path."""
    NAMES.to_csv(tmp_path / "names.csv", index=False)
    reader.names["airports"] = str(tmp_path / "names.csv")
    found = reader.run("%%statesql --frame airports --frame names\nSELECT a.name FROM airports a JOIN names USING (k)")
    assert sorted(found["name"]) == ["one", "two"]
    assert "no variable 'nope'" in reader.fails("%%statesql --frame nope\nFROM nope", InvalidArgumentError)


@pytest.mark.parametrize(("at", "epoch"), [("1", 1), ("live", 4), ("live-3", 1), ('"live - 2"', 2)])
def test_at_is_an_epoch(reader: Shell, store: Store, at: str, epoch: int) -> None:
    """``--at`` is an epoch's number or its distance from the newest epoch."""
    found = reader.run(f"%%statesql --at {at}\nSELECT * FROM counts ORDER BY k")
    pd.testing.assert_frame_equal(found, store["counts"].at(epoch).table().to_pandas())


def test_at_is_a_time(reader: Shell, store: Store) -> None:
    """``--at`` is a time in ISO 8601 with a time zone."""
    committed = store["counts"].at(2).committed_at
    assert committed is not None
    found = reader.run(f"%%statesql --at {committed.isoformat()}\nSELECT * FROM counts ORDER BY k")
    pd.testing.assert_frame_equal(found, store["counts"].at(2).table().to_pandas())


@pytest.mark.parametrize(
    ("cell", "error", "expected"),
    [
        ("%%statesql --at soon\nFROM counts", InvalidArgumentError, "live - 10"),
        ("%%statesql --at live-77\nFROM counts", UnknownEpochError, "nearest captured: 0"),
        ("%%statesql --at 2026-01-01\nFROM counts", (InvalidArgumentError, NaiveTimestampError), "no time zone"),
        ("%%statesql\nFROM '/etc/hostname'", UnknownNameError, "counts"),
        ("%%statesql\nFROM read_text('/etc/hostname')", InvalidSQLError, "not allowed"),
        ("%%statesql\nSELECT ?", InvalidArgumentError, "need values"),
    ],
)
def test_an_invalid_cell_is_explained(reader: Shell, cell: str, error: type[Exception], expected: str) -> None:
    """The cell fails with a message and no traceback."""
    assert expected in reader.fails(cell, error)
    assert "Traceback" not in reader.printed


def test_histories_and_changes_are_relations(reader: Shell, store: Store) -> None:
    """Cells can read the relations of ``store.sql``."""
    found = reader.run("%%statesql\nSELECT count(*) AS n FROM counts.history WHERE _valid_to IS NULL")
    assert found["n"].tolist() == [store["counts"].live().table().count()]
    assert reader.run("%%statesql\nFROM counts.changes")["_epoch"].max() == 4


def test_spark_runs_the_same_sql(shell: Shell, counted: tuple[Path, Path]) -> None:
    """Both engines return the same rows, also with the notebook's DataFrames."""
    shell.run(f"%config StreamState.store = {str(counted[1])!r}")
    shell.names["names"] = NAMES
    sql = "SELECT name, max FROM counts VERSION AS OF 2 AS c JOIN names ON c.k = names.k ORDER BY name"
    pd.testing.assert_frame_equal(
        shell.run(f"%%statesql --engine spark\n{sql}"), shell.run(f"%%statesql\n{sql}"), check_dtype=False
    )
