"""Files that Spark reads in the order of their numbers."""

from __future__ import annotations

import os
from pathlib import Path

_FIRST = 1_700_000_000


def in_turn(file: Path, number: int) -> None:
    """Set a file's modification time, so that Spark reads files in the order of their numbers.

    Spark sorts files by modification time, whose resolution may be too coarse to tell files that were written in
    quick succession apart.
    """
    os.utime(file, (_FIRST + number, _FIRST + number))
