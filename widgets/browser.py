"""The state browser: one query's state through its epochs."""

from __future__ import annotations

import contextlib
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
        self._live = Live(self._reader, selection, ended=self._settle)
        self._displays: list[str] = []
        self._closed = False

    def __repr__(self) -> str:
        try:
            return static.summary(self._reader.view(self._live.selection))
        except StreamStateError as problem:
            return f"{self._reader.name}: {problem}"

    def _ipython_display_(self) -> None:
        """Display under a name, so that closing can put the last view in the place of the first."""
        from IPython.display import display

        data, metadata = self._repr_mimebundle_()
        handle = display(data, metadata=metadata, raw=True, display_id=True)
        if handle and not self._closed:
            self._displays.append(handle.display_id)

    def _repr_mimebundle_(
        self, include: object = None, exclude: object = None
    ) -> tuple[dict[str, str], dict[str, Any]]:
        """Text, an escaped table and, where there is a kernel, the script that brings the table to life."""
        address = None if self._closed else comms.offer(self._live)
        if address is None:
            return self._still(), {}
        display = uuid.uuid4().hex
        return self._still(comms.bootstrap(address, display)) | {comms.EXEC: ""}, {comms.EXEC: {"id": display}}

    def _still(self, script: str = "") -> dict[str, str]:
        """The forms of the current view that need no kernel; the script goes beside the table."""
        view = self._reader.view(self._live.selection)
        table = f'<div class="streamstate-static">{static.html(view)}</div>'
        return {"text/plain": static.summary(view), "text/html": f'<div class="streamstate">{table}{script}</div>'}

    def _settle(self) -> None:
        """Leave what was looked at last in the notebook, as a table; what cannot be read leaves what is there."""
        displays, self._displays = self._displays, []
        if not displays:
            return
        from IPython.display import update_display

        with contextlib.suppress(StreamStateError, OSError):
            for display in displays:
                update_display(self._still(), raw=True, display_id=display)

    def close(self) -> None:
        """Stop following and let go of every page; the view becomes a static table. Idempotent."""
        self._closed = True
        comms.withdraw(self._live)
        self._live.close()


def close_all() -> None:
    """Close every browser that a page shows or could show, and take the line to pages down."""
    comms.hang_up()
