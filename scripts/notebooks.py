"""Run the tutorials: ``python -m scripts.notebooks``. The documentation shows their outputs, and tests check them.

Each runs in a new kernel and in a folder of its own below ``build/notebooks``, two at a time. A notebook is skipped
if there is a run of the same code; ``--all`` runs it again.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

from scripts.house import ROOMS
from scripts.jars import NotInstalledError, jars
from scripts.typecheck import ROOT

TUTORIALS = ROOT / "tutorials"
RUNS = ROOT / "build" / "notebooks"
PRODUCT = *ROOMS, "tutorials"
"""The folders of the product."""

_JARS = {"08_which_record": ("kafka", "kafka-broker")}
"""The sets of jars that a notebook needs."""
_AT_ONCE = 2
_ERROR_LINES = 40
_KEY = "streamstate"
"""Where a run's metadata says which product ran."""


def latest_run(name: str) -> nbformat.NotebookNode:
    """A notebook with its outputs, of today's code and product: the run that is kept, or a new one.

    Raises:
        CellExecutionError: a cell failed.
    """
    kept = _kept(name)
    return kept if kept is not None and kept.metadata.get(_KEY) == product_digest() else run(name)


def run(name: str) -> nbformat.NotebookNode:
    """Run every cell of a notebook in a folder of its own, which stays, and keep the notebook with its outputs.

    Raises:
        CellExecutionError: a cell failed.
    """
    folder, kept = RUNS / name, RUNS / f"{name}.ipynb"
    digest = product_digest()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    notebook = run_in(name, folder)
    notebook.metadata[_KEY] = digest
    part = kept.with_suffix(".part")
    part.write_text(nbformat.writes(notebook).replace(f"{folder}/", ""), encoding="utf-8")
    part.replace(kept)
    return _read(kept)


def run_in(name: str, folder: Path, answers: Mapping[str, str] | None = None) -> nbformat.NotebookNode:
    """Run every cell of a notebook in a folder, and return it with its outputs.

    Args:
        name: the notebook, without its suffix.
        folder: where it runs.
        answers: what a learner writes: texts of cells, and what stands there instead.

    Raises:
        CellExecutionError: a cell failed.
    """
    notebook = _read(TUTORIALS / f"{name}.ipynb")
    for text, answer in (answers or {}).items():
        [cell] = [cell for cell in notebook.cells if text in cell.source]
        cell.source = cell.source.replace(text, answer)
    resources = {"metadata": {"path": str(folder)}}
    # As a learner opens it for the first time, whatever the person who runs it has answered.
    environment = {**os.environ, "STREAMSTATE_PROGRESS": str(folder / "progress.json")}
    client = NotebookClient(notebook, timeout=1800, resources=resources, store_widget_state=False)
    client.execute(env=environment)
    return notebook


@cache
def product_digest() -> str:
    """A digest of everything that runs in a notebook."""
    digest = hashlib.sha256()
    for file in sorted(file for folder in PRODUCT for file in (ROOT / folder).rglob("*")):
        if file.suffix in (".py", ".js", ".css"):
            digest.update(f"{file.relative_to(ROOT)}\n".encode())
            digest.update(file.read_bytes())
    return digest.hexdigest()


def _kept(name: str) -> nbformat.NotebookNode | None:
    """The kept run, if it has the notebook's code; its prose may differ."""
    path = RUNS / f"{name}.ipynb"
    if not path.exists():
        return None
    kept = _read(path)
    return kept if _code(kept) == _code(_read(TUTORIALS / path.name)) else None


def _read(path: Path) -> nbformat.NotebookNode:
    notebook: nbformat.NotebookNode = nbformat.read(path, as_version=4)
    return notebook


def _code(notebook: nbformat.NotebookNode) -> list[str]:
    return [cell.source for cell in notebook.cells if cell.cell_type == "code"]


def _in_processes(names: Sequence[str]) -> dict[str, str]:
    """Run notebooks, each in a process of its own; returns the ends of the errors of those that failed."""

    def error_of(name: str) -> str | None:
        began = time.monotonic()
        print(f"Running {name}", flush=True)
        command = [sys.executable, "-m", "scripts.notebooks", name]
        run = subprocess.run(command, cwd=ROOT, check=False, stderr=subprocess.PIPE, text=True)
        print(f"{name}: {time.monotonic() - began:.0f} s", flush=True)
        return "\n".join(run.stderr.splitlines()[-_ERROR_LINES:]) if run.returncode else None

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        ended = zip(names, pool.map(error_of, names), strict=True)
        return {name: error for name, error in ended if error is not None}


def _can_run(name: str) -> bool:
    """Check that a notebook's jars are there or can be fetched; otherwise print that it is skipped, and why."""
    try:
        for jar_set in _JARS.get(name, ()):
            jars(jar_set)
    except (NotInstalledError, subprocess.CalledProcessError) as error:
        print(f"Skipped {name}: {error}", flush=True)
        return False
    return True


def main(arguments: list[str]) -> int:
    """Run what changed; a notebook that fails does not keep the others from running."""
    parser = argparse.ArgumentParser(prog="python -m scripts.notebooks", description=__doc__)
    parser.add_argument("name", nargs="?", help="run only this notebook, without its suffix")
    parser.add_argument("--all", action="store_true", help="run notebooks again that did not change")
    given = parser.parse_args(arguments)
    if given.name is not None:
        try:
            run(given.name)
        except CellExecutionError as error:
            print(f"{given.name} failed:\n{error}", file=sys.stderr)
            return 1
        return 0
    names = [path.stem for path in TUTORIALS.glob("*.ipynb")]
    names.sort(key=lambda name: (name[0].isdigit(), name), reverse=True)  # those on practice first: they take longest
    names = [name for name in names if _can_run(name)]
    failed = _in_processes([name for name in names if given.all or _kept(name) is None])
    for text in failed.values():  # at the end, where one looks
        print(text, file=sys.stderr)
    if failed:
        print(f"Failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
