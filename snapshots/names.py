"""What a query may be called: its name is a folder and an SQL relation."""

from __future__ import annotations

import re
from collections.abc import Iterable

from streamstate.snapshots.errors import InvalidNameError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")


def check_name(name: str) -> str:
    """The name itself where it can be used.

    Raises:
        InvalidNameError: where it cannot be a folder and an SQL relation.
    """
    if _NAME.fullmatch(str(name)):
        return name
    raise InvalidNameError(
        f"A query cannot be called {name!r}.\n"
        "A name has 1 to 100 letters, digits, '_' or '-', and starts with a letter or digit, such as delays or join_2."
    )


def name_from(text: str) -> str:
    """A usable name made from another one, such as a checkpoint's folder."""
    return check_name(re.sub(r"[^A-Za-z0-9_-]+", "_", text).strip("_-")[:100] or "query")


def unused(name: str, taken: Iterable[str]) -> str:
    """``name``, or ``name_2``, ``name_3``, … where it is taken (compared without case, as SQL does)."""
    used = {other.casefold() for other in taken}
    free, number = name, 1
    while free.casefold() in used:
        number += 1
        free = f"{name}_{number}"
    return free
