"""What the page shows of a query: one line for each view."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from streamstate import widgets
from streamstate.snapshots.errors import InvalidArgumentError

if TYPE_CHECKING:
    from streamstate.state_inspect import History
    from streamstate.widgets.page.address import Address
    from streamstate.widgets.view import View

__all__ = ["SECTIONS", "Section"]


@dataclass(frozen=True)
class Section:
    """One view of a query.

    Attributes:
        name: what an address calls it.
        title: what people read.
        opened: makes the view for an address.
    """

    name: str
    title: str
    opened: Callable[[History, Address], View[Any]]


def _difference(history: History, address: Address) -> View[Any]:
    return widgets.DiffView(history, *_between(history, address), address.table)


def _between(history: History, address: Address) -> tuple[int, int]:
    """The two epochs an address asks to compare: by default an epoch and the one captured before it."""
    if address.between:
        return address.between
    captured = history.captured()
    last = captured[-1] if address.epoch is None else address.epoch
    return max((epoch for epoch in captured if epoch < last), default=last), last


def _of_key(history: History, address: Address) -> View[Any]:
    if not address.key:
        raise InvalidArgumentError("No key is chosen.\nOpen State and choose a row: its key is then shown here.")
    return widgets.KeyHistoryView(history, address.table or history.tables()[0], dict(address.key))


SECTIONS = (
    Section("browser", "State", lambda history, at: widgets.StateBrowser(history, at.table, epoch=at.epoch)),
    Section("timeline", "Timeline", lambda history, _: widgets.Timeline(history)),
    Section("diff", "Differences", _difference),
    Section("key", "Key", _of_key),
    Section("dashboard", "Query", lambda history, _: widgets.QueryDashboard(history)),
)
"""In the order in which they are shown; the first is shown first."""
