"""Progress of long calls: the callback that receives it, and the display for calls that were given none."""

from __future__ import annotations

import errno
import inspect
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from functools import wraps
from typing import Any, ParamSpec, Protocol, TypeVar

from streamstate.errors import DiskFullError

P = ParamSpec("P")
T = TypeVar("T")


class ProgressCallback(Protocol):
    """The type of every ``progress=`` argument: a function of a message and a share. It has to return quickly.

    An exception that it raises ends the call, as an interrupt would.

    Example:
        >>> def progress(message: str, share: float | None) -> None:
        ...     print(message if share is None else f"{share:.0%} {message}")
        >>> report = ss.open_store("store")["delays"].retain(last=100, progress=progress)
        deleting files past their grace period
    """

    def __call__(self, message: str, share: float | None, /) -> object:
        """Report progress.

        Args:
            message: what is being done, in a few words.
            share: how much of the work is done, from 0 to 1; None if unknown.
        """


class ProgressDisplay(Protocol):
    """The display of one call's progress until its block ends; an interrupt ends the call in a line or two."""

    def __call__(self, call: str, interrupted: str, /) -> AbstractContextManager[ProgressCallback]:
        """Return a block that provides the call's callback.

        Args:
            call: the name of the called function.
            interrupted: what an interrupt leaves behind, in a sentence.
        """


def silent(_message: str, _share: float | None, /) -> None:
    """The callback that reports nothing."""


_display: ProgressDisplay | None = None
_current: ContextVar[ProgressCallback | None] = ContextVar("streamstate_progress", default=None)


def set_progress_display(display: ProgressDisplay | None) -> ProgressDisplay | None:
    """Set the display for calls without ``progress=``, and return the previous one. None: they report nothing."""
    global _display
    before, _display = _display, display
    return before


def display_of(call: str, interrupted: str) -> AbstractContextManager[ProgressCallback] | None:
    """Return the display for a call without ``progress=``; None if a long call, which shows this one's, is running."""
    return None if _display is None or _current.get() is not None else _display(call, interrupted)


@contextmanager
def reporting_to(callback: ProgressCallback) -> Iterator[None]:
    """Let the long calls in the block be parts of one that reports to this callback, without displays of their own."""
    token = _current.set(callback)
    try:
        yield
    finally:
        _current.reset(token)


def report_progress(message: str, share: float | None = None) -> None:
    """Report to the long call that this thread is in, if there is one."""
    (_current.get() or silent)(message, share)


@contextmanager
def _full_disk(left: str) -> Iterator[None]:
    """Say what a full disk leaves behind, as an interrupt does."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT) or isinstance(error, DiskFullError):
            raise
        where = f" at {error.filename}" if error.filename else ""
        raise DiskFullError(f"{os.strerror(error.errno)}{where}.\n{left}") from error


def long_call(interrupted: str, *, name: str = "") -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Mark a function that may take seconds: called without ``progress=``, it shows its progress on the display.

    A long call inside another one is a part of it. In other threads, :func:`report_progress` reports nothing.

    Args:
        interrupted: what an interrupt leaves behind, in a sentence.
        name: what the display calls it; by default the function's name.
    """

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        takes_callback = "progress" in inspect.signature(function).parameters

        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            __tracebackhide__ = True
            with _full_disk(interrupted):
                return displayed(*args, **kwargs)

        def displayed(*args: P.args, **kwargs: P.kwargs) -> T:
            given: Any = kwargs.get("progress") if takes_callback else None
            if given is not None:
                block: AbstractContextManager[ProgressCallback] = nullcontext(given)
            elif (display := display_of(name or function.__name__, interrupted)) is not None:
                block = display
            else:
                return function(*args, **kwargs)
            with block as callback, reporting_to(callback):
                if takes_callback:
                    kwargs["progress"] = callback
                return function(*args, **kwargs)

        return call

    return decorate
