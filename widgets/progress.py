"""The progress of long work in a cell's output (a bar, then one plain line), and interrupts that end only that work."""

from __future__ import annotations

import io
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
from typing import TYPE_CHECKING, Any

from tqdm.std import tqdm

from streamstate.snapshots.spark.interrupted_calls import spare_other_calls

if TYPE_CHECKING:
    from types import FrameType

    from IPython.core.interactiveshell import InteractiveShell

    from streamstate.snapshots.progress_callback import ProgressCallback

SHOW_AFTER = 0.5
"""Seconds before progress is displayed: quick work shows none."""

PAUSE = 0.2
"""Seconds between two updates of the display."""

_STOP = "interrupt the kernel (■) to stop"


class ProgressBar(tqdm):  # type: ignore[misc]
    """tqdm's bar, with a message that changes.

    In a notebook it is one display that is updated in place: HTML without widgets, so that a saved notebook keeps
    only the last line. In a terminal it is tqdm's own line. Output that is neither, such as a file, gets only the
    last line.
    """

    monitor_interval = 0  # no thread that refreshes the bar: every message does

    def __init__(self, *, in_notebook: bool) -> None:
        self._display: Any = None  # IPython is not typed
        self._in_notebook = in_notebook
        self._share: float | None = None
        super().__init__(
            total=1.0,
            file=io.StringIO() if in_notebook else sys.stdout,
            leave=False,
            delay=1e-9,  # do not draw before the first message
            dynamic_ncols=not in_notebook,
            disable=False if in_notebook else None,  # None: only in a terminal
        )

    def show(self, message: str, share: float | None) -> None:
        """Display a message, and the share of the work that is done (None: unknown)."""
        if self.disable:
            return
        self.n, self.desc = share or 0.0, message
        self.bar_format = "{desc} [{elapsed}]" if share is None else "{percentage:3.0f}%|{bar:20}| {desc} [{elapsed}]"
        self._share = share
        # tqdm keeps its lock, which all bars share, if an interrupt strikes while it draws. One thread draws at a time.
        self.refresh(nolock=True)

    def display(self, msg: str | None = None, pos: int | None = None) -> bool:
        """Draw the bar; tqdm calls it."""
        if not self._in_notebook:
            return bool(super().display(msg, pos))
        if not msg and msg is not None:  # tqdm clears the bar when it is closed; finish() replaces it
            return True
        value = "" if self._share is None else f' value="{self._share:.3f}"'
        html = (
            f'<progress aria-label="progress" max="1"{value} style="vertical-align:middle"></progress> '
            f'{escape(self.desc)} <span style="opacity:.7">{_STOP}</span>'
        )
        self._update({"text/plain": str(self), "text/html": html})
        return True

    def finish(self, line: str) -> None:
        """Replace the bar with a plain line."""
        self.close()
        if self._in_notebook:
            self._update({"text/plain": line, "text/html": f"<p>{escape(line)}</p>"})
        else:
            print(line)

    def _update(self, data: dict[str, str]) -> None:
        from IPython.display import DisplayHandle

        if self._display is None:
            self._display = DisplayHandle()
            self._display.display(data, raw=True)
        else:
            self._display.update(data, raw=True)


class Progress:
    """Displays the progress of work that takes longer than ``after`` seconds, in a bar that is then made."""

    def __init__(
        self,
        make_bar: Callable[[], ProgressBar],
        *,
        after: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._make_bar = make_bar
        self._bar: ProgressBar | None = None
        self._clock = clock
        self._due = clock() + (SHOW_AFTER if after is None else after)
        self.line = ""
        """The last message."""

    def say(self, line: str, done: float | None = None, total: float | None = None) -> None:
        """Report what is being done, and how much of the total, in any unit; None or 0 if that is unknown."""
        self.line = line
        now = self._clock()
        if now < self._due:
            return
        self._due = now + PAUSE
        self._bar = self._bar or self._make_bar()
        self._bar.show(line, None if done is None or not total else min(max(done / total, 0.0), 1.0))

    def of(self, name: str = "") -> ProgressCallback:
        """A function to pass as ``progress=``; its messages are prefixed with a name."""
        prefix = f"{name}: " if name else ""
        return lambda message, share: self.say(f"{prefix}{message}", share, None if share is None else 1)

    def finish(self, line: str | None = None, *, always: bool = False) -> None:
        """Replace the bar with a line, by default the last message; without a bar, print it only if ``always``."""
        last = self.line if line is None else line
        if self._bar is not None:
            self._bar.finish(last)
        elif always and last:
            print(last)
        self._bar = None


@contextmanager
def working(shell: InteractiveShell, *, stays: str, always: bool = False) -> Iterator[Progress]:
    """Display the progress of the block; an interrupt ends the block and is reported in one line, ``stays``.

    The last line is kept even if the work was quick, if it is to be there ``always``.
    """
    __tracebackhide__ = True
    progress = Progress(bar_of(shell))
    try:
        with own_interrupt():
            yield progress
    except KeyboardInterrupt as interrupt:
        progress.finish(f"Interrupted. {progress.line}".rstrip())
        raise brief_interrupt(interrupt, stays).with_traceback(None) from None
    except BaseException:
        progress.finish()
        raise
    progress.finish(always=always)


def bar_of(shell: InteractiveShell) -> Callable[[], ProgressBar]:
    """What makes a bar that fits a shell's output."""
    return lambda: ProgressBar(in_notebook=hasattr(shell, "kernel"))


@contextmanager
def own_interrupt() -> Iterator[None]:
    """Make an interrupt end the block with KeyboardInterrupt, and do nothing else.

    PySpark's own handler first cancels every job of the session, which would fail the running queries. An error that
    an engine raises because it was interrupted is replaced by the interrupt.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    spare_other_calls()
    interrupted = False

    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        nonlocal interrupted
        interrupted = True
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    except BaseException:
        if interrupted:
            raise KeyboardInterrupt from None
        raise
    finally:
        signal.signal(signal.SIGINT, before)


def brief_interrupt(interrupt: KeyboardInterrupt, line: str) -> KeyboardInterrupt:
    """The interrupt, displayed by IPython as one line instead of a traceback; the cell still fails."""
    shown: dict[str, Any] = interrupt.__dict__
    shown["_render_traceback_"] = lambda: [f"KeyboardInterrupt: {line}"]
    return interrupt
