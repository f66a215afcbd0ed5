"""Writes the reference of the command line from its parsers: a page for each command, made again at each build.

Nothing in that folder but ``index.md`` is kept in the repository.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from generated import title, write_pages
from magics_reference import described, examples_in

if TYPE_CHECKING:
    from sphinx.application import Sphinx

FOLDER = Path("reference") / "commands"


def setup(app: Sphinx) -> dict[str, bool]:
    """What Sphinx calls first."""
    app.connect("builder-inited", generate)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def generate(app: Sphinx) -> None:
    """Write the pages."""
    pages = {f"streamstate-{name}": "\n".join(_page(name, parser)) for name, parser in parsers().items()}
    write_pages(Path(app.srcdir) / FOLDER, pages)


def parsers() -> dict[str, argparse.ArgumentParser]:
    """The parser of each command."""
    from streamstate.command_line import parser

    commands = next(action for action in parser()._actions if isinstance(action, argparse._SubParsersAction))  # noqa: SLF001 (as --help)
    return dict(commands.choices)


def verbs(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The parsers of a command's verbs; none if it has no verbs."""
    found = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]  # noqa: SLF001 (as above)
    return {name: verb for action in found for name, verb in action.choices.items()}


def _page(name: str, parser: argparse.ArgumentParser) -> Iterator[str]:
    yield title(f"streamstate {name}", "=")
    yield from described(parser, f"streamstate-{name}")
    for verb, own in verbs(parser).items():
        yield title(f"streamstate {name} {verb}", "-")
        yield from described(own, f"streamstate-{name}-{verb}")
    if verbs(parser):
        yield title("Examples", "-")
    yield from examples_in(parser.epilog or "")
