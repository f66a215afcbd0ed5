"""The thread that runs a session's steps, one at a time, so that neither a page nor the kernel waits for them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from streamstate.widgets.debugger.session import session_state

if TYPE_CHECKING:
    from streamstate.replay.debugging.session import DebugSession
    from streamstate.snapshots.calls.progress_callback import ProgressCallback

_PATIENCE = 30.0


@dataclass(frozen=True)
class RunningAction:
    """The running action: its name, its progress, and whether it is being interrupted."""

    what: str
    line: str = ""
    share: float | None = None
    interrupting: bool = False


@dataclass(frozen=True)
class ActionProblem:
    """An error: the action that failed, its first line, and the whole text if there is more."""

    what: str
    short: str
    whole: str = ""

    @classmethod
    def of(cls, what: str, problem: BaseException) -> ActionProblem:
        """Return the error of an action."""
        text = str(problem) or type(problem).__name__
        short, _, rest = text.strip().partition("\n")
        return cls(what, short, text if rest else "")


class SessionWorker:
    """Runs actions on a session, one at a time, and keeps the session's state. Thread-safe."""

    def __init__(self, session: DebugSession) -> None:
        self.session = session
        self.changed: Callable[[], None] = lambda: None
        """Called, from the action's thread, whenever there is something new to show."""
        self.doing: RunningAction | None = None
        """The running action."""
        self.trouble: ActionProblem | None = None
        """The error of the last action."""
        self.outcome = ""
        """The outcome of the last action, in a sentence, if it was not a step."""
        self.version = 0
        """Increases with every change."""
        self.state = session_state(session)
        """The session after the last action."""
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._interrupt = threading.Event()
        self._closed = False

    def start(
        self, what: str, action: Callable[[ProgressCallback], object], *, done: str = "", quiet: bool = False
    ) -> bool:
        """Start an action in a separate thread; False while another one runs, and after :meth:`close`.

        Args:
            what: its name, such as ``"Step"``.
            action: performs it; receives a function that reports its progress.
            done: the outcome once it is done.
            quiet: keep the outcome and error of the action before, because no person started this one.
        """
        with self._lock:
            if self._closed or self.doing is not None:
                return False
            self._interrupt.clear()
            self.doing = RunningAction(what)
            if not quiet:
                self.trouble, self.outcome = None, ""
            name = f"streamstate-debug-{self.state.name}"
            self._thread = threading.Thread(target=self._run, args=(what, action, done), name=name, daemon=True)
            self._thread.start()
        self._notify()
        return True

    def interrupt(self) -> None:
        """Stop the running action as soon as possible; the session is then at a complete epoch."""
        with self._lock:
            if self.doing is None:
                return
            self._interrupt.set()
            self.doing = replace(self.doing, interrupting=True)
        self._notify()

    def refuse(self, what: str, short: str) -> None:
        """Show why an action was not started."""
        self.trouble = ActionProblem(what, short)
        self._notify()

    def close(self) -> None:
        """Interrupt the running action and wait for it; nothing can be started any more. Idempotent."""
        with self._lock:
            self._closed = True
            self._interrupt.set()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(_PATIENCE)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until nothing runs; False on a timeout."""
        thread = self._thread
        if thread is not None:
            thread.join(timeout)
        return thread is None or not thread.is_alive()

    def _run(self, what: str, action: Callable[[ProgressCallback], object], done: str) -> None:
        try:
            action(self._progress)
            self.outcome = done or self.outcome
        except KeyboardInterrupt:
            self.outcome = "Interrupted."
        except Exception as problem:  # noqa: BLE001 (the view shows it: no one else sees this thread)
            self.trouble = ActionProblem.of(what, problem)
        self._look(what)
        with self._lock:
            self.doing = None
        self._notify()

    def _look(self, what: str) -> None:
        """Read the session's state."""
        try:
            self.state = session_state(self.session)
        except Exception as problem:  # noqa: BLE001 (as above)
            self.trouble = self.trouble or ActionProblem.of(what, problem)

    def _progress(self, line: str, share: float | None) -> None:
        with self._lock:
            if self._interrupt.is_set():
                raise KeyboardInterrupt  # a person pressed Interrupt
            if self.doing is not None:
                self.doing = replace(self.doing, line=line, share=share)
        self._notify()

    def _notify(self) -> None:
        self.version += 1
        self.changed()
