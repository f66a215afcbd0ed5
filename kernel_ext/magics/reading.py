"""Reading a store from a cell: the first look at a long history shows how far it is, and can be interrupted."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from streamstate.magics.progress import Progress, working

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

__all__ = ["reading"]


@contextmanager
def reading(shell: InteractiveShell) -> Iterator[Progress]:
    """Progress of what the block reads into the index of a store.

    Args:
        shell: whose output it is.
    """
    __tracebackhide__ = True
    from streamstate.state_inspect.temporal_index.loading import loading_told

    began = time.monotonic()
    loaded: dict[str, int] = {}
    with working(shell, stays="what was read before is as it was; run the line again to read the rest.") as progress:

        def tell(name: str, read: int, expected: int) -> None:
            loaded[name] = read
            progress.say(_line(name, read, expected), read, expected)

        with loading_told(tell):
            yield progress
        seconds = time.monotonic() - began
        read = ", ".join(f"{rows:,} rows of {_relation(name)}" for name, rows in loaded.items())
        progress.line = f"Read {read} in {seconds:.1f} s; from now on they are at hand."


def _line(name: str, read: int, expected: int) -> str:
    if read >= expected:
        return f"Putting {read:,} rows of {_relation(name)} in order"
    return f"Reading {_relation(name)}: {read:,} of {expected:,} rows"


def _relation(name: str) -> str:
    """``delays/op0`` as people write it; an index made anew has a number behind it."""
    return name.partition("#")[0].replace("/", ".")
