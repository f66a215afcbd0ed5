"""What the debugging verbs of ``%stream`` have in common: the code, changes to the state, names, progress."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from streamstate.magics.arguments import MagicParser, count, identifier
from streamstate.magics.notebook import Notebook
from streamstate.magics.plan import MODES
from streamstate.magics.progress import Progress
from streamstate.snapshots.errors import NameTakenError
from streamstate.snapshots.names import check_name

__all__ = ["add_code", "add_edits", "check_free", "edits_of", "told"]


def add_code(parser: MagicParser) -> None:
    """The options that say what code a query runs with."""
    parser.add(
        "--query",
        metavar="VAR",
        type=identifier,
        completes="code",
        help="a function that returns the streaming DataFrame, or the DataFrame (default: the query's own code)",
    )
    parser.add("--mode", choices=MODES, help="output mode (default: the query's)")


def add_edits(parser: MagicParser) -> None:
    """The options that change a fork's state."""
    parser.add("--partitions", metavar="K", type=count, help="spread the state over another number of partitions")
    parser.add(
        "--edit",
        metavar="SQL",
        action="append",
        help="change the state first: \"UPDATE op0 SET max_delay = 0 WHERE carrier = 'HA'\"; may be repeated",
    )


def edits_of(args: argparse.Namespace) -> dict[str, Any]:
    """What a line says of a fork's state; nothing where it says nothing."""
    given = {"partitions": args.partitions, "edit": args.edit}
    return {name: value for name, value in given.items() if value is not None}


def check_free(notebook: Notebook, store: str, name: str) -> str:
    """A name for a new query.

    Raises:
        InvalidNameError: it cannot be one.
        NameTakenError: the store, or this notebook, has such a query.
    """
    check_name(name)
    if name in notebook.running or name in notebook.open(store):
        raise NameTakenError(f"There is a query {name!r} already.\nUse another name, such as --as {name}_2.")
    return name


def told(progress: Progress, name: str) -> Callable[[str, float | None], None]:
    """What long calls are given to say how far they are."""
    return lambda line, share: progress.say(f"{name}: {line}", share, None if share is None else 1)
