"""Waiting for a condition."""

from __future__ import annotations

import time
from collections.abc import Callable


def until(condition: Callable[[], object], timeout: float = 120) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, "it does not come true"
        time.sleep(0.1)
