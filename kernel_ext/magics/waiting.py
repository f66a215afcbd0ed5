"""Waiting in a cell: progress in one place, and an interrupt that stops the waiting alone."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from IPython.display import DisplayHandle

from streamstate.magics.running import QueryStatus, progress_line
from streamstate.magics.table import Table

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

__all__ = ["own_interrupt", "show_lines", "show_progress"]


@contextmanager
def show_progress(shell: InteractiveShell) -> Iterator[Callable[[QueryStatus], None]]:
    """A function that shows a query's status in the cell's output: one line that changes."""
    with show_lines(shell) as show:
        yield lambda status: show(progress_line(status))


@contextmanager
def show_lines(shell: InteractiveShell) -> Iterator[Callable[[str], None]]:
    """A function that shows a line in the cell's output, in the place of the one before.

    A terminal has no output that changes: there each new line is written below.
    """
    seen: list[str] = []
    shown = _changing_output() if hasattr(shell, "kernel") else None

    def show(line: str) -> None:
        if seen[-1:] == [line]:
            return
        seen[:] = [line]
        if shown is None:
            print(line)
        else:
            shown.update(Table([], [], empty=line))

    with own_interrupt():
        yield show


def _changing_output() -> Any:
    """An output of the cell that can be replaced."""
    handle: Any = DisplayHandle()
    handle.display(Table([], [], empty="…"))
    return handle


@contextmanager
def own_interrupt() -> Iterator[None]:
    """Make an interrupt raise KeyboardInterrupt and nothing else.

    PySpark's own handler cancels every job of the session first, which would fail the query that is waited for.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
