"""The most memory that this process holds while a block runs, and the processor time that it takes."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_SELF = Path("/proc/self")


@dataclass
class Cost:
    """The time and memory that a block took.

    Attributes:
        seconds: of the processor, so that it does not matter what else the machine does.
        megabytes: the most by which the process's memory exceeded what it held before; 0 where the system cannot say.
    """

    seconds: float = 0.0
    megabytes: float = 0.0


@contextlib.contextmanager
def measured() -> Iterator[Cost]:
    """Measure a block, also if it raises."""
    cost = Cost()
    known = _reset()
    before, began = _kilobytes("VmRSS") if known else 0.0, time.process_time()
    try:
        yield cost
    finally:
        cost.seconds = time.process_time() - began
        if known:
            cost.megabytes = (_kilobytes("VmHWM") - before) / 1024


def _reset() -> bool:
    """Have the system forget the process's peak; False if it does not keep one."""
    try:
        (_SELF / "clear_refs").write_text("5")
    except OSError:
        return False
    return True


def _kilobytes(name: str) -> float:
    lines = (_SELF / "status").read_text().splitlines()
    return float(next(line for line in lines if line.startswith(f"{name}:")).split()[1])
