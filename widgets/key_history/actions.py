"""The selection of a key history view, and its changes by actions: a key, a page, a column."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from streamstate.widgets.address_fields import in_address
from streamstate.widgets.model import PAGE_ACTIONS, SIZES, applied

PLOTS = 6
"""The most columns that are drawn at once."""


@dataclass(frozen=True)
class KeySelection:
    """The state of the controls.

    Attributes:
        table: the state table; None for the first with such keys.
        key: the key.
        marked: the epochs that linked views show.
        page, size: the page of changes.
        column: the number of the first column that is drawn.
        typed: the texts in the fields of the key, until they make up a valid key.
        why: the epoch of the change that is explained.
    """

    table: str | None = None
    key: Mapping[str, Any] | None = None
    marked: tuple[int, ...] = ()
    page: int = in_address(int, 0)
    size: int = in_address(int, SIZES[0], among=SIZES)
    column: int = in_address(int, 0)
    typed: tuple[str, ...] | None = None
    why: int | None = in_address(int)


def acted(now: KeySelection, action: str, value: Any) -> KeySelection:
    """Return the selection after an action of the page. An invalid action changes nothing."""
    return applied(_ACTIONS, now, action, value)


def _typed(now: KeySelection, texts: Any) -> KeySelection:
    return KeySelection(now.table, None, now.marked, size=now.size, typed=tuple(str(text) for text in list(texts)))


_ACTIONS: dict[str, Callable[[KeySelection, Any], KeySelection]] = PAGE_ACTIONS | {
    "table": lambda now, value: KeySelection(str(value), marked=now.marked, size=now.size),
    "typed": _typed,
    "column": lambda now, value: replace(now, column=max(0, int(value))),
}
