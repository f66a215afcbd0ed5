"""Run a learner's function on one case. Whatever it does becomes an outcome; nothing it does escapes as an error."""

from __future__ import annotations

import copy
import io
import signal
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from typing import Any

LIMIT = 1.0
"""Seconds that one case may take."""

Function = Callable[..., Any]


@dataclass(frozen=True)
class Outcome:
    """What a function returned for a case, or what went wrong instead."""

    value: Any = None
    problem: str = ""
    stop: bool = False
    """Further cases would cost as much time."""
    printed: str = ""


class _TimeUpError(BaseException):
    """Passes through a learner's ``except Exception``."""


class _MutatedError(BaseException):
    pass


def attempt(task: Callable[[Any], Any], function: Any, *, pure: bool = True, limit: float = LIMIT) -> Outcome:
    """Return the outcome of ``task(function)``.

    The time limit needs the main thread, where a notebook runs its cells, and a system with POSIX signals. Elsewhere
    there is none.

    Args:
        task: calls the function with the values of a case.
        function: the learner's function, or statement.
        pure: whether a change of its arguments is a fault.
        limit: seconds.
    """
    name = getattr(function, "__name__", "Your statement" if isinstance(function, str) else "Your function")
    printed = io.StringIO()
    try:
        with redirect_stdout(printed), _time_limit(limit):
            value = task(_unchanging(function) if pure else function)
        return Outcome(value, printed=printed.getvalue())
    except _TimeUpError:
        return Outcome(problem=f"`{name}` did not return within {limit:g} s. Does a loop never end?", stop=True)
    except _MutatedError:
        return Outcome(
            problem=f"`{name}` changes its argument. Return a new value: the caller still needs the old one."
        )
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a learner's function may raise anything
        return Outcome(problem=f"`{name}` raised {type(error).__name__}: {error}{_line(error, function)}")


def _unchanging(function: Function) -> Function:
    def called(*arguments: Any) -> Any:
        before = copy.deepcopy(arguments)
        value = function(*arguments)
        if arguments != before:
            raise _MutatedError
        return value

    return called


@contextmanager
def _time_limit(seconds: float) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return

    running = [True]

    def time_up(*_: object) -> None:
        if running:
            raise _TimeUpError

    handler = signal.signal(signal.SIGALRM, time_up)
    # It fires again: a bare `except:` in a loop catches it, until it fires between two rounds.
    left, interval = signal.setitimer(signal.ITIMER_REAL, seconds, 0.1)
    try:
        try:
            yield
        finally:
            running.clear()
    finally:
        signal.setitimer(signal.ITIMER_REAL, left, interval)
        signal.signal(signal.SIGALRM, handler)


def _line(error: BaseException, function: Function) -> str:
    """The line of the learner's cell that raised."""
    code = getattr(function, "__code__", None)
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if code is not None and frame.filename == code.co_filename]
    return f" (line {lines[-1]} of its cell)" if lines else ""
