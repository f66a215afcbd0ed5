"""What all live views have in common: how often they look for news."""

from __future__ import annotations

__all__ = ["MINIMUM", "refresh", "set_refresh"]

MINIMUM = 0.2
"""Seconds between two drawings of one view, at least: five a second."""

_refresh = 0.5


def refresh() -> float:
    """Seconds between two looks for new epochs."""
    return _refresh


def set_refresh(seconds: float) -> None:
    """Change how often every live view looks for new epochs; a view never draws more than five times a second.

    Args:
        seconds: the time between two looks, at least :data:`MINIMUM`; less is taken as that.

    Example:
        >>> set_refresh(2)
        >>> refresh()
        2.0
        >>> set_refresh(0.5)
    """
    global _refresh  # noqa: PLW0603 (one setting of the process, as %config has it)
    _refresh = max(MINIMUM, float(seconds))
