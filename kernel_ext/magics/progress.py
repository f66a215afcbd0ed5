"""Progress of magics: loading the index, capturing, and running a statement in Spark."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from streamstate.launch.query_status import status_line

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from streamstate.launch.query_status import QueryStatus
    from streamstate.widgets.progress import Progress


@contextmanager
def loading(shell: InteractiveShell) -> Iterator[Progress]:
    """Display how much the block loads into the index of a store."""
    __tracebackhide__ = True
    from streamstate.state_inspect.temporal_index.loading import loading_progress
    from streamstate.widgets.progress import working

    began = time.monotonic()
    loaded: dict[str, int] = {}
    with working(shell, stays="what was loaded before is kept. Run the line again to load the rest.") as progress:

        def report(name: str, read: int, expected: int) -> None:
            loaded[name] = read
            line = f"Loading {_relation(name)}: {read:,} of {expected:,} rows"
            progress.say(f"Sorting {read:,} rows of {_relation(name)}" if read >= expected else line, read, expected)

        with loading_progress(report):
            yield progress
        seconds = time.monotonic() - began
        rows = ", ".join(f"{count:,} rows of {_relation(name)}" for name, count in loaded.items())
        progress.line = (
            f"Loaded {rows} in {seconds:.1f} s. Later queries reuse them." if rows else f"Took {seconds:.1f} s."
        )


def _relation(name: str) -> str:
    """``delays/op0`` as in SQL."""
    return name.replace("/", ".")


class CaptureProgress:
    """Progress of a capture towards the newest committed epoch or a given one; called with the query's status."""

    def __init__(self, progress: Progress, epoch: int | None = None) -> None:
        self._progress = progress
        self._epoch = epoch
        self._first: int | None = None

    def __call__(self, status: QueryStatus) -> None:
        """Display a status."""
        captured = -1 if status.epoch is None else status.epoch
        if self._first is None:
            self._first = captured
        goal = captured + status.behind if self._epoch is None else self._epoch
        self._progress.say(status_line(status), captured - self._first, goal - self._first)


@contextmanager
def in_spark(shell: InteractiveShell) -> Iterator[None]:
    """Display how long a statement takes in Spark; an interrupt cancels its jobs."""
    __tracebackhide__ = True
    from streamstate.widgets.progress import working

    began = time.monotonic()
    stays = "the statement's Spark jobs were cancelled. Streaming queries continue."
    with working(shell, stays=stays) as progress:
        progress.say("Spark runs the statement")
        yield
        progress.line = f"Spark ran the statement in {time.monotonic() - began:.1f} s."
