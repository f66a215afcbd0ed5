"""The state browser: one query's state through its epochs."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from streamstate.snapshots.errors import StreamStateError
from streamstate.widgets import comms, static
from streamstate.widgets.live import Live
from streamstate.widgets.reader import Reader
from streamstate.widgets.selection import Selection

if TYPE_CHECKING:
    from streamstate.state_inspect import History

__all__ = ["StateBrowser", "close_all"]


class StateBrowser:
    """Shows the state of a query: an epoch slider, the table at that epoch, and what changed.

    Displayed in JupyterLab it is live: it follows new epochs while the query runs, pages, sorts and
    filters in the kernel, and shows one key's history when its row is clicked. In a saved notebook
    and in exported HTML a static table stands in its place; elsewhere, a line of text.

    Args:
        history: the query, ``store[name]``.
        table: the state table to show first; the query's first if left out.
        epoch: the epoch to show first; the newest is followed if left out.

    Raises:
        UnknownTableError: the query has no such table.
        UnknownEpochError: that epoch was not captured.

    Example:
        >>> StateBrowser(store["delays"])  # doctest: +SKIP
        delays: table op0 · epoch 41 (captured: 0–41) · 34 rows · +0 ~5 −0 since epoch 40
    """

    def __init__(self, history: History, table: str | None = None, *, epoch: int | None = None) -> None:
        selection = Selection(table=table, epoch=epoch)
        self._reader = Reader(history)
        self._reader.check(selection)
        self._live = Live(self._reader, selection)
        self._closed = False

    def __repr__(self) -> str:
        try:
            return static.summary(self._reader.view(self._live.selection))
        except StreamStateError as problem:
            return f"{self._reader.name}: {problem}"

    def _repr_mimebundle_(
        self, include: object = None, exclude: object = None
    ) -> tuple[dict[str, str], dict[str, Any]]:
        """Text, an escaped table and, where there is a kernel, the script that brings the table to life."""
        view = self._reader.view(self._live.selection)
        table = f'<div class="streamstate-static">{static.html(view)}</div>'
        address = None if self._closed else comms.offer(self._live)
        display = uuid.uuid4().hex
        script = comms.bootstrap(address, display) if address else ""
        data = {"text/plain": static.summary(view), "text/html": f'<div class="streamstate">{table}{script}</div>'}
        return (data | {comms.EXEC: ""}, {comms.EXEC: {"id": display}}) if address else (data, {})

    def close(self) -> None:
        """Stop following and let go of every page, which shows its static table again. Idempotent."""
        self._closed = True
        comms.withdraw(self._live)
        self._live.close()


def close_all() -> None:
    """Close every browser that a page shows or could show, and take the line to pages down."""
    comms.hang_up()
