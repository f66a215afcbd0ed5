"""The setting that all live views share: how often they look for new epochs."""

from __future__ import annotations

MINIMUM = 0.2
"""The least seconds between two drawings of a view: at most five per second."""

_refresh = 0.5


def refresh() -> float:
    """Seconds between two looks for new epochs."""
    return _refresh


def set_refresh(seconds: float) -> None:
    """Change how often every live view looks for new epochs; a view never draws more than five times a second.

    Args:
        seconds: the time between two looks; values below :data:`MINIMUM` count as that.

    Example:
        >>> set_refresh(2)
        >>> refresh()
        2.0
        >>> set_refresh(0.5)
    """
    global _refresh  # noqa: PLW0603 (a setting of the process, like %config)
    _refresh = max(MINIMUM, float(seconds))
