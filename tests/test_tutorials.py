from __future__ import annotations

from datetime import date
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

import streamstate as ss

TUTORIALS = Path(__file__).resolve().parent.parent / "tutorials"
NOTEBOOKS = sorted(TUTORIALS.glob("*.ipynb"))
FIRST_DAY = date(2013, 2, 1)
"""The day of epoch 0 in the quickstart."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the quickstart runs and leaves what it makes."""
    return tmp_path_factory.mktemp("quickstart")


@pytest.fixture(scope="module")
def quickstart(folder: Path) -> dict[str, str]:
    """The quickstart, run from top to bottom in a kernel of its own: what each cell showed, as text, by the cell's id."""
    notebook = nbformat.read(TUTORIALS / "00_quickstart.ipynb", as_version=4)
    client = NotebookClient(
        notebook, timeout=300, resources={"metadata": {"path": str(folder)}}, store_widget_state=False
    )
    client.execute()
    return {cell["id"]: _shown(cell["outputs"]) for cell in notebook.cells if cell.cell_type == "code"}


def _shown(outputs: list[nbformat.NotebookNode]) -> str:
    """What a reader of plain text sees of a cell's outputs."""
    return "\n".join(one.text if one.output_type == "stream" else one.data["text/plain"] for one in outputs)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_are_kept_without_outputs(path: Path) -> None:
    """What they show is made by running them; a diff of one shows what somebody wrote."""
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(cell.outputs == [] and cell.execution_count is None for cell in code)
    assert "widgets" not in notebook.metadata


def test_the_quickstart_captures_a_day_an_epoch(quickstart: dict[str, str], folder: Path) -> None:
    """Six weeks of departures, one epoch each, none missing."""
    history = ss.open_store(folder / "quickstart" / "store")["delays"]
    assert history.captured() == list(range(42))
    assert (date(2013, 2, 8) - FIRST_DAY).days == 7
    assert "is finished: captured up to epoch 41" in quickstart["top"]


def test_the_quickstart_shows_the_browser_while_the_query_runs_and_after(quickstart: dict[str, str]) -> None:
    """The first time it is behind the end, the second time it stands there."""
    assert quickstart["browse"].count("delays: table op0 · epoch ") == 1
    assert "epoch 41" not in quickstart["browse"]
    assert "epoch 41 (captured: 0–41)" in quickstart["replay"]


def test_the_quickstart_finds_the_storms(quickstart: dict[str, str]) -> None:
    """The text around the cells says the same as they show: cancellations in February, the great delay on 8 March."""
    assert "865 of 1614 departures were cancelled" in quickstart["storm"]
    worst = quickstart["key"].splitlines()[2].split()
    assert worst[0] == str((date(2013, 3, 8) - FIRST_DAY).days) == "35"
    assert float(worst[-1]) > 140


def test_the_same_epoch_is_the_same_through_python_sql_and_magic(quickstart: dict[str, str], folder: Path) -> None:
    """One key at one epoch, read in three ways."""
    store = ss.open_store(folder / "quickstart" / "store")
    looked_up = store["delays"].at(35).table().lookup(carrier="EV", origin="EWR")
    selected = store.sql("SELECT * FROM delays VERSION AS OF 35 WHERE carrier = 'EV' AND origin = 'EWR'")
    assert selected.to_arrow().to_pylist() == [looked_up]
    assert looked_up is not None
    assert f"'sum': {looked_up['sum']}" in quickstart["store"]
