"""Speaking in the cell that runs."""

from __future__ import annotations

__all__ = ["say"]


def say(text: str) -> None:
    """Print a line for the user; only what runs in the cell itself may, never a background thread."""
    print(text)  # noqa: T201 (the one place where the magics print)
