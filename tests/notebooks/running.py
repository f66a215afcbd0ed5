"""The tutorials as a reader runs them, from top to bottom in a new kernel, and what they show then.

``make notebooks`` has run them already, if nothing has changed since.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import nbformat

from scripts import notebooks
from scripts.notebooks import RUNS

__all__ = [
    "RUNS",
    "TUTORIALS",
    "Shown",
    "first_row",
    "latest_run",
    "output_of",
    "run_again",
    "run_answered",
    "shows_no_noise",
]

TUTORIALS = Path(__file__).resolve().parents[2] / "tutorials"

Shown = list[tuple[str, str]]
"""The source and the text output of each code cell."""

_NOISE = ("WARN", "Warning", "ERROR", "incubator", "Exception")


def latest_run(name: str) -> Shown:
    """Return what a notebook shows; what it wrote is in its folder in :data:`RUNS`."""
    return _shown_in(notebooks.latest_run(name))


def run_again(name: str, folder: Path) -> Shown:
    """Run a notebook in a folder of an earlier run; return what it shows."""
    return _shown_in(notebooks.run_in(name, folder))


def run_answered(name: str, folder: Path, answers: Mapping[str, str]) -> Shown:
    """Run a notebook in a folder with what a learner wrote in place of texts of its cells; return what it shows."""
    return _shown_in(notebooks.run_in(name, folder, answers))


def _shown_in(notebook: nbformat.NotebookNode) -> Shown:
    """Return what the cells of a notebook that ran show."""
    return [(cell.source, _text(cell.outputs)) for cell in notebook.cells if cell.cell_type == "code"]


_TOOK = re.compile(r"^.+ took [\d.]+ s\.\n?", re.MULTILINE)
"""The line that a long call leaves; which calls are long depends on the machine."""


def _text(outputs: list[nbformat.NotebookNode]) -> str:
    """The plain text of a cell's outputs, without the times that calls took."""
    texts = [output.text if output.output_type == "stream" else output.data["text/plain"] for output in outputs]
    return "\n".join(text for text in (_TOOK.sub("", text) for text in texts) if text.strip())


def output_of(shown: Shown, part: str) -> str:
    """The output of the only cell that contains this text."""
    (found,) = [text for source, text in shown if part in source]
    return found


def first_row(shown: Shown, part: str) -> list[str]:
    """The values of the first row of the table shown by the only cell that contains this text.

    Slow reads print a progress line before it.
    """
    lines = output_of(shown, part).splitlines()
    heading = next(at for at, line in enumerate(lines) if len(_values(line)) > 1)
    return _values(lines[heading + 1])


def _values(line: str) -> list[str]:
    return re.split(r"\s{2,}", line.strip())


def shows_no_noise(shown: Shown) -> bool:
    """No output of Spark or Java, and no local path, distracts the reader."""
    text = "\n".join(text for _, text in shown)
    return not any(noise in text for noise in (*_NOISE, str(TUTORIALS.parent)))
