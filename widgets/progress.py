"""The progress of long work: a bar in a cell's output or in a terminal, and interrupts that end only that work."""

from __future__ import annotations

import io
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tqdm.std import tqdm

from streamstate.snapshots.calls.html import joined, tag
from streamstate.snapshots.calls.progress_callback import ProgressCallback, reporting_to, silent
from streamstate.snapshots.spark.interrupted_calls import own_interrupt

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

SHOW_AFTER = 0.5
"""Seconds before the progress of a magic is displayed: quick work shows none."""

SHOW_CALLS_AFTER = 2.0
"""The same for functions, which are also called in loops, and where views load what they show."""

PAUSE = 0.2
"""Seconds between two updates of the display."""

_STOP = "interrupt the kernel (■) to stop"
_TICK = 1.0
"""Seconds between two updates of a display whose message does not change: only the time does."""


class ProgressBar(tqdm):  # type: ignore[misc]
    """tqdm's bar, with a message that changes.

    In a notebook it is one display that is updated in place: HTML without widgets, so that a saved notebook keeps
    only the last line. In a terminal it is tqdm's own line. Output that is neither, such as a file, gets only the last
    line.

    Args:
        in_notebook: whether the output is that of a notebook's cell.
        cleared: whether a terminal shows no last line, because the result of the call or the command follows. The bar
            then goes to standard error: the result may be for a program.
    """

    monitor_interval = 0  # no thread that refreshes every bar of the process

    def __init__(self, *, in_notebook: bool, cleared: bool = False) -> None:
        self._display: Any = None  # IPython is not typed
        self._in_notebook = in_notebook
        self._cleared = cleared
        self._share: float | None = None
        super().__init__(
            total=1.0,
            file=io.StringIO() if in_notebook else sys.stderr if cleared else sys.stdout,
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
        value = None if self._share is None else f"{self._share:.3f}"
        bar = tag("progress", aria_label="progress", max=1, value=value, style="vertical-align:middle")
        note = f"{tqdm.format_interval(self.format_dict['elapsed'])} · {_STOP}"
        html = joined(bar, f" {self.desc} ", tag("span", note, style="opacity:.7"))
        self._update({"text/plain": str(self), "text/html": html})
        return True

    def finish(self, line: str) -> None:
        """Replace the bar with a plain line."""
        self.close()
        if self._in_notebook:
            self._update({"text/plain": line, "text/html": tag("p", line)})
        elif not self._cleared:
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
        after: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._make_bar = make_bar
        self._bar: ProgressBar | None = None
        self._clock = clock
        self._due = clock() + after
        self._drawn: tuple[str, float | None] = ("", None)
        self._drawn_at = float("-inf")
        self._share: float | None = None
        self._drawing = threading.Lock()
        self.line = ""
        """The last message."""

    def say(self, line: str, done: float | None = None, total: float | None = None) -> None:
        """Report what is being done, and how much of the total, in any unit; None or 0 if that is unknown."""
        self.line = line
        self._share = None if done is None or not total else min(max(done / total, 0.0), 1.0)
        self._draw()

    def of(self, name: str = "") -> ProgressCallback:
        """Return a function to pass as ``progress=``; its messages are prefixed with a name."""
        prefix = f"{name}: " if name else ""
        return lambda message, share: self.say(f"{prefix}{message}", share, None if share is None else 1)

    @contextmanager
    def refreshed(self) -> Iterator[None]:
        """Keep the time on display going in the block, also where nothing is reported for long."""
        over = threading.Event()

        def refresh() -> None:
            while not over.wait(PAUSE or _TICK):
                self._draw()

        thread = threading.Thread(target=refresh, name="streamstate-progress", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def finish(self, line: str | None = None, *, always: bool = False) -> None:
        """Replace the bar with a line, by default the last message; without a bar, print it only if ``always``."""
        last = self.line if line is None else line
        if self._bar is not None:
            self._bar.finish(last)
        elif always and last:
            print(last)
        self._bar = None

    def _draw(self) -> None:
        """Draw the bar if it is due: after a pause, or after a longer one if only the time has changed."""
        with self._drawing:
            now = self._clock()
            shown = self.line, self._share
            pause = _TICK if shown == self._drawn else PAUSE
            if now < self._due or now < self._drawn_at + pause or not self.line:
                return
            self._drawn, self._drawn_at = shown, now
            self._bar = self._bar or self._make_bar()
            self._bar.show(self.line, self._share)


@contextmanager
def working(shell: InteractiveShell, *, stays: str, always: bool = False) -> Iterator[Progress]:
    """Display the progress of the block; an interrupt ends the block and is reported in one line, ``stays``.

    The last line is kept even if the work was quick, if it is to be there ``always``.
    """
    __tracebackhide__ = True
    with _displayed(bar_of(shell), stays, after=SHOW_AFTER, always=always) as progress:
        yield progress


@contextmanager
def shown_in_shell(call: str, interrupted: str) -> Iterator[ProgressCallback]:
    """The display of calls in a notebook, or in IPython's terminal; see ``ProgressDisplay``."""
    __tracebackhide__ = True
    from IPython.core.getipython import get_ipython

    shell = get_ipython()
    if shell is None or threading.current_thread() is not threading.main_thread():
        yield silent
        return
    began = time.monotonic()
    with _displayed(
        lambda: ProgressBar(in_notebook=hasattr(shell, "kernel"), cleared=True), interrupted, after=SHOW_CALLS_AFTER
    ) as progress:
        progress.say(call)
        yield progress.of()
        progress.line = f"{call} took {time.monotonic() - began:.1f} s."


@contextmanager
def shown_in_terminal(call: str, interrupted: str) -> Iterator[ProgressCallback]:
    """The display of calls of a command; see ``ProgressDisplay``."""
    with _displayed(lambda: ProgressBar(in_notebook=False, cleared=True), interrupted, after=SHOW_AFTER) as progress:
        progress.say(call)
        yield progress.of()


@contextmanager
def _displayed(
    make_bar: Callable[[], ProgressBar], interrupted: str, *, after: float, always: bool = False
) -> Iterator[Progress]:
    __tracebackhide__ = True
    progress = Progress(make_bar, after=after)
    try:
        with own_interrupt(), reporting_to(progress.of()), progress.refreshed():
            yield progress
    except KeyboardInterrupt as interrupt:
        progress.finish(f"Interrupted. {progress.line}".rstrip())
        raise brief_interrupt(interrupt, interrupted).with_traceback(None) from None
    except BaseException:
        progress.finish()
        raise
    progress.finish(always=always)


def bar_of(shell: InteractiveShell) -> Callable[[], ProgressBar]:
    """Return a function that makes a bar for a shell's output."""
    return lambda: ProgressBar(in_notebook=hasattr(shell, "kernel"))


def brief_interrupt(interrupt: KeyboardInterrupt, line: str) -> KeyboardInterrupt:
    """Return the interrupt, displayed by IPython as one line instead of a traceback; the cell still fails."""
    shown: dict[str, Any] = interrupt.__dict__
    shown["_render_traceback_"] = lambda: [f"KeyboardInterrupt: {line}"]
    interrupt.args = (line,)
    return interrupt
