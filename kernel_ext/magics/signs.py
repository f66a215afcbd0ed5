"""The signs that stand beside a query's state, so that neither colour nor reading is needed to tell them apart."""

from __future__ import annotations

from streamstate.magics.table import Shown

__all__ = ["signed"]

# JupyterLab's own colours where there are any, which fit its theme; elsewhere ones that are seen on light and on dark.
_SIGNS = {
    "running": ("●", "var(--jp-success-color1, #2e9e44)"),
    "restarting": ("↻", "var(--jp-warn-color1, #c77700)"),
    "finished": ("✓", "var(--jp-success-color1, #2e9e44)"),
    "followed": ("◌", "var(--jp-info-color1, #1f8fd6)"),
    "stopped": ("■", "var(--jp-ui-font-color2, #808080)"),
    "failed": ("✕", "var(--jp-error-color1, #e0442e)"),
    "not captured": ("○", "var(--jp-warn-color1, #c77700)"),
}


def signed(state: str, more: str | None = None) -> Shown:
    """A query's state with its sign before it, and what else is to be said of it in brackets."""
    sign, colour = _SIGNS[state]
    return Shown(state, f"{state} ({more})" if more else None, sign=sign, colour=colour)
