"""Keeping a kernel's memory level while a view is watched."""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Callable
from functools import cache

__all__ = ["give_back", "use_plain_memory"]

_SECONDS = 10.0
_lock = threading.Lock()
_given_back = 0.0


@cache
def use_plain_memory() -> None:
    """Have Arrow take its memory from the C library, unless the user chose otherwise.

    A watched view reads a little, many times a minute, on several threads. Arrow's own allocator keeps what each of
    them gave back: over 750 epochs a kernel grew by 64 MB with it, and by 30 MB without.
    """
    import pyarrow as pa

    if "ARROW_DEFAULT_MEMORY_POOL" not in os.environ:
        pa.set_memory_pool(pa.system_memory_pool())


def give_back() -> bool:
    """Have the C library give what it holds free back to the system; at most once in ten seconds, for all views.

    It keeps a heap for each of several threads and returns only what is free at a heap's end. Linux with glibc alone
    has the call that returns the rest; elsewhere nothing is done.

    Returns:
        Whether it was asked to.
    """
    global _given_back  # noqa: PLW0603 (one for the process, as its heaps are)
    trim = _trim()
    if trim is None:
        return False
    with _lock:
        now = time.monotonic()
        if now - _given_back < _SECONDS:
            return False
        _given_back = now
    trim(0)
    return True


@cache
def _trim() -> Callable[[int], int] | None:
    try:
        trim: Callable[[int], int] = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError, TypeError):  # no glibc; on Windows no library without a name
        return None
    return trim
