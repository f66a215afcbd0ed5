from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

import streamstate as ss

TUTORIALS = Path(__file__).resolve().parent.parent / "tutorials"
NOTEBOOKS = sorted(TUTORIALS.glob("*.ipynb"))

Shown = list[tuple[str, str]]
"""Each code cell's source and what it showed, as text."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the quickstart runs and leaves what it makes."""
    return tmp_path_factory.mktemp("quickstart")


@pytest.fixture(scope="module")
def quickstart(folder: Path) -> Shown:
    """The quickstart, run from top to bottom in a kernel of its own."""
    notebook = nbformat.read(TUTORIALS / "00_quickstart.ipynb", as_version=4)
    resources = {"metadata": {"path": str(folder)}}
    NotebookClient(notebook, timeout=300, resources=resources, store_widget_state=False).execute()
    return [(cell.source, _text(cell.outputs)) for cell in notebook.cells if cell.cell_type == "code"]


def _text(outputs: list[nbformat.NotebookNode]) -> str:
    """What a reader of plain text sees of a cell's outputs."""
    return "\n".join(one.text if one.output_type == "stream" else one.data["text/plain"] for one in outputs)


def _of(quickstart: Shown, part: str) -> str:
    """What the one cell with this text in it showed."""
    (found,) = [text for source, text in quickstart if part in source]
    return found


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_are_kept_without_outputs(path: Path) -> None:
    """What they show is made by running them; a diff of one shows what somebody wrote."""
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(cell.outputs == [] and cell.execution_count is None for cell in code)
    assert "widgets" not in notebook.metadata


def test_the_quickstart_captures_every_file_as_an_epoch(quickstart: Shown, folder: Path) -> None:
    """Thirty files, one epoch each, none missing, none twice."""
    assert "epoch 29" in _of(quickstart, "%stream wait")
    assert ss.open_store(folder / "streamstate-data" / "store")["delays"].captured() == list(range(30))


def test_the_quickstart_finds_the_flight(quickstart: Shown, folder: Path) -> None:
    """The prose says what the cells show: the sum leapt in epoch 2, by one flight that was 1301 minutes late."""
    assert "1301" in _of(quickstart, "--history")
    table = [ss.open_store(folder / "streamstate-data" / "store")["delays"].at(epoch).table() for epoch in (1, 2)]
    before, after = (one.lookup(carrier="HA", origin="JFK") for one in table)
    assert before is not None
    assert after is not None
    assert before["max"] < after["max"] == 1301
    assert "HA" in _of(quickstart, "AS average_after").splitlines()[1]


def test_the_same_epoch_is_the_same_through_python_and_sql(quickstart: Shown, folder: Path) -> None:
    """One key at one epoch, as the notebook's Python shows it and as SQL selects it."""
    store = ss.open_store(folder / "streamstate-data" / "store")
    (row,) = store.sql("SELECT * FROM delays VERSION AS OF 2 WHERE carrier = 'HA'").to_arrow().to_pylist()
    assert row == store["delays"].at(2).table().lookup(carrier="HA", origin="JFK")
    assert f"'sum': {row['sum']}" in _of(quickstart, "open_store")
