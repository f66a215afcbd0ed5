"""What the page shows of a query: one line for each view."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from streamstate import widgets
from streamstate.snapshots.errors import InvalidArgumentError

if TYPE_CHECKING:
    from streamstate.state_inspect import History, Store
    from streamstate.widgets.page.address import Address
    from streamstate.widgets.view import View

__all__ = ["STORE", "Section", "sections", "store_view"]

STORE = "StoreOverview"
"""The view of the store itself."""


@dataclass(frozen=True)
class Section:
    """One view of a query.

    Attributes:
        name: what an address calls it.
        title: what people read.
        view: the name of its class in ``streamstate.widgets``; a class that is not there has no section.
        opened: makes the view for an address.
    """

    name: str
    title: str
    view: str
    opened: Callable[[Any, History, Address], View[Any]]


def _between(history: History, address: Address) -> tuple[int, int]:
    """The two epochs an address asks to compare: by default an epoch and the one captured before it."""
    if address.between:
        return address.between
    captured = history.captured()
    last = captured[-1] if address.epoch is None else address.epoch
    return max((epoch for epoch in captured if epoch < last), default=last), last


def _difference(view: Any, history: History, address: Address) -> View[Any]:
    made: View[Any] = view(history, *_between(history, address), address.table)
    return made


def _of_key(view: Any, history: History, address: Address) -> View[Any]:
    if not address.key:
        raise InvalidArgumentError("No key is chosen.\nOpen State and choose a row: its key is then shown here.")
    made: View[Any] = view(history, address.table or history.tables()[0], dict(address.key))
    return made


_ALL = (
    Section("browser", "State", "StateBrowser", lambda view, history, at: view(history, at.table, epoch=at.epoch)),
    Section("timeline", "Timeline", "Timeline", lambda view, history, _: view(history)),
    Section(
        "diff", "Differences", "DiffView", lambda view, history, at: view(history, *_between(history, at), at.table)
    ),
    Section("key", "Key", "KeyHistoryView", _of_key),
    Section("dashboard", "Query", "QueryDashboard", lambda view, history, _: view(history)),
)


def sections() -> list[Section]:
    """The sections whose views there are, in the order they are shown."""
    return [section for section in _ALL if hasattr(widgets, section.view)]


def store_view(store: Store) -> View[Any] | None:
    """The view of the whole store, if there is one."""
    overview = getattr(widgets, STORE, None)
    return None if overview is None else overview(store)
