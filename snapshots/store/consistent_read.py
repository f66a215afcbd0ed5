"""Consistent reads: everything looked up within one call or one drawing sees the same epochs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any, TypeVar

T = TypeVar("T")

_results: ContextVar[dict[object, Any] | None] = ContextVar("streamstate_consistent_read", default=None)


@contextlib.contextmanager
def consistent_read() -> Iterator[None]:
    """Within the block, this thread reads each manifest and each table of queries only once.

    All calls in the block see the same epochs; what is captured meanwhile shows after it. A nested block joins the
    outer one. It also works as a decorator: the block is then the call.

    Example:
        >>> with consistent_read():
        ...     history.live().epoch == store["delays"].live().epoch
        True
    """
    if _results.get() is not None:
        yield
        return
    token = _results.set({})
    try:
        yield
    finally:
        _results.reset(token)


def read_once(source: object, read: Callable[[], T]) -> T:
    """Return ``read()``; inside :func:`consistent_read`, its first result for this source."""
    results = _results.get()
    if results is None:
        return read()
    if source not in results:
        results[source] = read()
    result: T = results[source]
    return result
