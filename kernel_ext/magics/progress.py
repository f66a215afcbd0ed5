"""How far long work is, in one place of a cell's output: a bar while it goes on, one plain line at its end."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from streamstate.magics.interrupts import own_interrupt, said_briefly

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

__all__ = ["SHOW_AFTER", "Place", "Progress", "working"]

SHOW_AFTER = 0.5
"""Seconds that work may take before it shows how far it is: what is quick needs no bar."""

PAUSE = 0.2
"""Seconds between two changes of what is shown; the latest counts."""


class Place(Protocol):
    """Where progress is shown."""

    def show(self, line: str, share: float | None) -> None:
        """Show a line, and how much of the work is done (None: not known), in the place of what was shown before."""

    def settle(self, line: str) -> None:
        """Show a line for good, and close whatever was opened."""


class Progress:
    """Shows how far work is once it takes a while; nothing is shown of what is quick.

    Args:
        place: where to show it; asked for once it is needed.
        after: seconds before anything is shown.
        clock: seconds that pass, for tests.
    """

    def __init__(
        self, place: Callable[[], Place], *, after: float | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._make = place
        self._place: Place | None = None
        self._clock = clock
        self._due = clock() + (SHOW_AFTER if after is None else after)
        self.line = ""
        """What was said last."""

    @property
    def shown(self) -> bool:
        """Whether anything can be seen."""
        return self._place is not None

    def say(self, line: str, done: float | None = None, total: float | None = None) -> None:
        """Say how far the work is.

        Args:
            line: in words.
            done: how much of ``total`` is done, in any unit.
            total: how much there is to do; None or 0 where that is not known.
        """
        self.line = line
        now = self._clock()
        if now < self._due:
            return
        self._due = now + PAUSE
        self._place = self._place or self._make()
        self._place.show(line, None if done is None or not total else min(max(done / total, 0.0), 1.0))

    def settle(self, line: str | None = None, *, always: bool = False) -> None:
        """End with a plain line: the given one, or what was said last.

        Args:
            line: what stays in the output.
            always: also where nothing was shown before.
        """
        last = self.line if line is None else line
        if self._place is not None:
            self._place.settle(last)
        elif always and last:
            print(last)
        self._place = None


@contextmanager
def working(
    shell: InteractiveShell, *, stays: str = "Nothing is lost; run the line again to go on.", always: bool = False
) -> Iterator[Progress]:
    """Progress of what the block does; an interrupt ends the block cleanly and is told in one line.

    Args:
        shell: whose output it is.
        stays: what somebody who interrupts wants to know.
        always: whether the last line stays also where the work was quick.
    """
    __tracebackhide__ = True
    progress = Progress(place_of(shell))
    try:
        with own_interrupt():
            yield progress
    except KeyboardInterrupt as interrupt:
        progress.settle(f"Interrupted. {progress.line}".rstrip())
        raise said_briefly(interrupt, stays).with_traceback(None) from None
    except BaseException:
        progress.settle()
        raise
    progress.settle(always=always)


def place_of(shell: InteractiveShell) -> Callable[[], Place]:
    """Where a shell shows progress."""
    if hasattr(shell, "kernel"):
        from streamstate.magics.bar import Bar

        return Bar
    return TerminalLine if sys.stdout.isatty() else NoPlace


class TerminalLine:
    """One line of a terminal that is written again and again."""

    def __init__(self) -> None:
        self._width = 0

    def show(self, line: str, share: float | None) -> None:
        """Write over what stands there."""
        self._write(line if share is None else f"[{'#' * round(share * 20):20}] {share:4.0%}  {line}")

    def settle(self, line: str) -> None:
        """Write the last line, and go to the next."""
        self._write(line)
        sys.stdout.write("\n")

    def _write(self, line: str) -> None:
        sys.stdout.write("\r" + line.ljust(self._width))
        sys.stdout.flush()
        self._width = len(line)


class NoPlace:
    """An output that cannot change, such as a file: only the last line is written."""

    def show(self, line: str, share: float | None) -> None:
        """Nothing."""

    def settle(self, line: str) -> None:
        """Write the last line."""
        print(line)
