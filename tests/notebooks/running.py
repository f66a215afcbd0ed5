"""Running the tutorials as a reader would: from top to bottom, in a kernel of their own."""

from __future__ import annotations

from pathlib import Path

import nbformat
from nbclient import NotebookClient

TUTORIALS = Path(__file__).resolve().parents[2] / "tutorials"

Shown = list[tuple[str, str]]
"""Each code cell's source and what it showed, as text."""

_NOISE = ("WARN", "Warning", "ERROR", "incubator", "Exception")


def run(name: str, folder: Path) -> Shown:
    """Run a notebook in a folder."""
    notebook = nbformat.read(TUTORIALS / f"{name}.ipynb", as_version=4)
    resources = {"metadata": {"path": str(folder)}}
    NotebookClient(notebook, timeout=300, resources=resources, store_widget_state=False).execute()
    return [(cell.source, _text(cell.outputs)) for cell in notebook.cells if cell.cell_type == "code"]


def _text(outputs: list[nbformat.NotebookNode]) -> str:
    """What a reader of plain text sees of a cell's outputs."""
    return "\n".join(one.text if one.output_type == "stream" else one.data["text/plain"] for one in outputs)


def of(shown: Shown, part: str) -> str:
    """What the one cell with this text in it showed."""
    (found,) = [text for source, text in shown if part in source]
    return found


def first_row(shown: Shown, part: str) -> list[str]:
    """The words of the first row of the frame that the one cell with this text in it showed.

    What was read may stand before it: a line that is there only where reading took its time.
    """
    return next(line.split() for line in of(shown, part).splitlines() if line.startswith("0 "))


def shows_only_its_own(shown: Shown) -> bool:
    """What Spark and Java print would stand between the reader and the point; nor is a path of this machine shown."""
    text = "\n".join(text for _, text in shown)
    return not any(noise in text for noise in (*_NOISE, str(TUTORIALS.parent)))
