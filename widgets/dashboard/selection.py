"""What a person chose in a dashboard."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Selection"]


@dataclass(frozen=True)
class Selection:
    """The state table whose spread is shown, and one key of it.

    ``table`` is ``None`` while the table with most rows is shown. ``key`` holds the key columns and values of the
    row that was clicked.
    """

    table: str | None = None
    key: Mapping[str, Any] | None = None
