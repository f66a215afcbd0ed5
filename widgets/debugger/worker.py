"""The thread in which a session's steps run: one at a time, and neither a page nor the kernel's line waits for it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from streamstate.widgets.debugger.seen import Session, seen

if TYPE_CHECKING:
    from streamstate.debugger.step import Progress

__all__ = ["Doing", "Trouble", "Worker"]

_PATIENCE = 30.0


class _Interrupted(KeyboardInterrupt):
    """A person pressed Interrupt; raised where the session says how far it is."""


@dataclass(frozen=True)
class Doing:
    """What is being done: in a word, how far it is, and whether it was asked to stop."""

    what: str
    line: str = ""
    share: float | None = None
    interrupting: bool = False


@dataclass(frozen=True)
class Trouble:
    """What went wrong: while doing what, the first line of it, and the whole where there is more."""

    what: str
    short: str
    whole: str = ""

    @classmethod
    def of(cls, what: str, problem: BaseException) -> Trouble:
        """An error as it is shown."""
        text = str(problem) or type(problem).__name__
        short, _, rest = text.strip().partition("\n")
        return cls(what, short, text if rest else "")


class Worker:
    """Runs one action after another over a session, and keeps what is known of it. Any thread may ask.

    Args:
        session: what is driven.
        changed: called, from the thread of the action, whenever there is something new to show.
    """

    def __init__(self, session: Session, changed: Callable[[], None] = lambda: None) -> None:
        self.session = session
        self.changed = changed
        self.doing: Doing | None = None
        """What runs now."""
        self.trouble: Trouble | None = None
        """What went wrong last; None once something else was begun."""
        self.said = ""
        """What came of the last action where it is no step, in a sentence."""
        self.version = 0
        """Grows with everything new."""
        self.seen = seen(session)
        """The session after the last action."""
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._interrupt = threading.Event()
        self._closed = False

    def start(self, what: str, action: Callable[[Progress], object], *, said: str = "", quiet: bool = False) -> bool:
        """Begin an action in a thread of its own.

        Args:
            what: what it is, for people: ``"Step"``.
            action: does it; is given what to tell its progress.
            said: what is said once it is done.
            quiet: whether what was said and went wrong before stays: nobody asked for the action.

        Returns:
            Whether it was begun: False while another runs, and after :meth:`close`.
        """
        with self._lock:
            if self._closed or self.doing is not None:
                return False
            self._interrupt.clear()
            self.doing = Doing(what)
            if not quiet:
                self.trouble, self.said = None, ""
            name = f"streamstate-debug-{self.seen.name}"
            self._thread = threading.Thread(target=self._run, args=(what, action, said), name=name, daemon=True)
            self._thread.start()
        self._tell()
        return True

    def interrupt(self) -> None:
        """Have what runs stop as soon as it can: it then stands at a whole epoch."""
        with self._lock:
            if self.doing is None:
                return
            self._interrupt.set()
            self.doing = replace(self.doing, interrupting=True)
        self._tell()

    def refuse(self, what: str, short: str) -> None:
        """Say why something was not begun."""
        self.trouble = Trouble(what, short)
        self._tell()

    def close(self) -> None:
        """Interrupt what runs and wait for it; nothing can be begun any more. Idempotent."""
        with self._lock:
            self._closed = True
            self._interrupt.set()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(_PATIENCE)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until nothing runs; False where the time was up."""
        thread = self._thread
        if thread is not None:
            thread.join(timeout)
        return thread is None or not thread.is_alive()

    def _run(self, what: str, action: Callable[[Progress], object], said: str) -> None:
        try:
            action(self._progress)
            self.said = said or self.said
        except KeyboardInterrupt:
            self.said = "Interrupted."
        except Exception as problem:  # noqa: BLE001 (whatever it is, the view shows it: nobody else sees this thread)
            self.trouble = Trouble.of(what, problem)
        self._look(what)
        with self._lock:
            self.doing = None
        self._tell()

    def _look(self, what: str) -> None:
        """Read where the session stands now."""
        try:
            self.seen = seen(self.session)
        except Exception as problem:  # noqa: BLE001 (as above)
            self.trouble = self.trouble or Trouble.of(what, problem)

    def _progress(self, line: str, share: float | None) -> None:
        with self._lock:
            if self._interrupt.is_set():
                raise _Interrupted
            if self.doing is not None:
                self.doing = replace(self.doing, line=line, share=share)
        self._tell()

    def _tell(self) -> None:
        self.version += 1
        self.changed()
