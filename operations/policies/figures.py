"""Figures in the texts of policies."""

from __future__ import annotations

import math


def size_text(size: float) -> str:
    """Return bytes in the unit that fits, such as 10GB."""
    for unit, power in (("TB", 4), ("GB", 3), ("MB", 2), ("KB", 1)):
        if size >= 1000**power:
            return f"{size / 1000**power:.4g}{unit}"
    return str(round(size))


def seconds_text(seconds: float) -> str:
    """Return seconds, or minutes if there are many; infinite: ever longer."""
    return "ever longer" if math.isinf(seconds) else f"{seconds:.1f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
