"""What a person looks at in a debugger, apart from where its session stands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from streamstate.widgets.diffs.selection import Selection as DiffSelection

__all__ = ["Selection"]


@dataclass(frozen=True)
class Selection:
    """One state of what is looked at.

    ``look`` is a branch and one of its epochs; None while the view looks where the session stands. ``upto`` is the
    newest epoch that the tree of branches shows, once a person turned its pages. ``key`` is the row that was chosen
    among those that differ; ``diff`` how these are sorted, searched and paged, whatever its epochs say.
    """

    look: tuple[str, int] | None = None
    upto: int | None = None
    key: Mapping[str, Any] | None = field(default=None, hash=False)
    diff: DiffSelection = field(default_factory=lambda: DiffSelection(0, 0), hash=False)
