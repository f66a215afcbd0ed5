"""The quickstart finds the flight that makes an average wrong, as its prose says."""

from __future__ import annotations

from pathlib import Path

import pytest

import streamstate as ss
from notebooks.running import Shown, first_row, of, run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # the first test runs all of it


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the quickstart runs and leaves what it makes."""
    return tmp_path_factory.mktemp("quickstart")


@pytest.fixture(scope="module")
def quickstart(folder: Path) -> Shown:
    """The quickstart, run from top to bottom in a kernel of its own."""
    return run("00_quickstart", folder)


def test_the_quickstart_captures_every_file_as_an_epoch(quickstart: Shown, folder: Path) -> None:
    """Thirty files, one epoch each, none missing, none twice."""
    assert "epoch 29" in of(quickstart, "%stream wait")
    assert ss.open_store(folder / "streamstate-data" / "store")["delays"].captured() == list(range(30))


def test_the_quickstart_finds_the_flight(quickstart: Shown, folder: Path) -> None:
    """The prose says what the cells show: the sum leapt in epoch 2, by one flight that was 1301 minutes late."""
    assert "1301" in of(quickstart, "--history")
    table = [ss.open_store(folder / "streamstate-data" / "store")["delays"].at(epoch).table() for epoch in (1, 2)]
    before, after = (one.lookup(carrier="HA", origin="JFK") for one in table)
    assert before is not None
    assert after is not None
    assert before["max"] < after["max"] == 1301
    assert "HA" in first_row(quickstart, "AS average_after")


def test_the_same_epoch_is_the_same_through_python_and_sql(quickstart: Shown, folder: Path) -> None:
    """One key at one epoch, as the notebook's Python shows it and as SQL selects it."""
    store = ss.open_store(folder / "streamstate-data" / "store")
    (row,) = store.sql("SELECT * FROM delays VERSION AS OF 2 WHERE carrier = 'HA'").to_arrow().to_pylist()
    assert row == store["delays"].at(2).table().lookup(carrier="HA", origin="JFK")
    assert f"'sum': {row['sum']}" in of(quickstart, "open_store")
