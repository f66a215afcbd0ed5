"""Run the tutorials, so that the documentation shows their outputs: ``python -m scripts.notebooks``.

Each runs in a new kernel and an empty folder. A notebook is skipped if ``build/notebooks`` already has a run of the
same code; ``--all`` runs it again.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

from scripts.typecheck import ROOT

TUTORIALS = ROOT / "tutorials"
RUNS = ROOT / "build" / "notebooks"


def is_current(notebook: nbformat.NotebookNode, kept: Path) -> bool:
    """Whether a run has the code of the notebook; its prose may differ."""
    return kept.exists() and _code(notebook) == _code(nbformat.read(kept, as_version=4))


def _code(notebook: nbformat.NotebookNode) -> list[str]:
    return [cell.source for cell in notebook.cells if cell.cell_type == "code"]


def run(name: str, folder: Path) -> nbformat.NotebookNode:
    """Run every cell of a notebook in a folder, and keep the run for the documentation.

    Args:
        name: the notebook's name, without its suffix.
        folder: where the kernel runs; its path is not kept.

    Returns:
        The notebook with its outputs, without the state of widgets.

    Raises:
        CellExecutionError: a cell failed.
    """
    notebook: nbformat.NotebookNode = nbformat.read(TUTORIALS / f"{name}.ipynb", as_version=4)
    resources = {"metadata": {"path": str(folder)}}
    NotebookClient(notebook, timeout=1800, resources=resources, store_widget_state=False).execute()
    RUNS.mkdir(parents=True, exist_ok=True)
    (RUNS / f"{name}.ipynb").write_text(nbformat.writes(notebook).replace(f"{folder}/", ""), encoding="utf-8")
    return notebook


def main(arguments: list[str]) -> int:
    """Run what changed; a notebook that fails does not keep the others from running."""
    parser = argparse.ArgumentParser(prog="python -m scripts.notebooks", description=__doc__)
    parser.add_argument("--all", action="store_true", help="run notebooks again that did not change")
    again = parser.parse_args(arguments).all
    failed = []
    for source in sorted(TUTORIALS.glob("*.ipynb")):
        notebook = nbformat.read(source, as_version=4)
        if is_current(notebook, RUNS / source.name) and not again:
            continue
        print(f"Running {source.name}", flush=True)
        try:
            with tempfile.TemporaryDirectory() as folder:
                run(source.stem, Path(folder))
        except CellExecutionError as error:
            print(error, file=sys.stderr)
            failed.append(source.name)
    if failed:
        print(f"Failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
