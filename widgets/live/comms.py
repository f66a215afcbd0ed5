"""The line between a view in the kernel and the pages of a notebook that show it.

A displayed view is a static table and a small script. Where that script finds a kernel, through
the JupyterLab extension that comes with Panel (``pyviz_comms``), it opens a comm; the kernel answers
with the code of the live view and then with one message per drawing. Nothing of this is stored in
the notebook: without a kernel, or where scripts are blocked, the static table simply stays.
"""

from __future__ import annotations

import contextvars
import uuid
from collections import OrderedDict
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from streamstate.widgets import front
from streamstate.widgets.live.pages import Live

__all__ = ["EXEC", "CommPage", "bootstrap", "hang_up", "offer", "withdraw"]

TARGET = "streamstate.widgets"
EXEC = "application/vnd.holoviews_exec.v0+json"
"""The MIME type that makes JupyterLab hand an output its kernel."""
KEPT = 256
"""Views that a page can still connect to, for instance when it is loaded again; older ones
are forgotten unless a page shows them."""


class CommPage:
    """One page of a notebook that shows a view live."""

    def __init__(self, comm: Any) -> None:
        self._comm = comm
        self._context = contextvars.copy_context()
        self.handled = 0

    def heard(self) -> None:
        """Remember from where the page last spoke.

        A recent JupyterLab speaks to a subshell of the kernel, which answers while a cell runs, and the kernel sends
        a page's messages to where its last answer came from. So answers are sent as if from there.
        """
        self._context = contextvars.copy_context()

    def send(self, content: Mapping[str, Any]) -> None:
        """Send one message; any thread may."""
        self._context.copy().run(self._comm.send, dict(content))

    def close(self) -> None:
        """Tell the page to go back to its static table, and hang up."""
        self.send({"kind": "closed"})
        self._context.copy().run(self._comm.close)


_offered: OrderedDict[str, Live[Any]] = OrderedDict()


def offer(shown: Live[Any]) -> str | None:
    """Let pages connect to ``shown``: its address, or ``None`` outside a Jupyter kernel."""
    manager = _comm_manager()
    if manager is None:
        return None
    if TARGET not in manager.targets:
        manager.register_target(TARGET, _opened)
    for address, known in _offered.items():
        if known is shown:
            return address
    address = uuid.uuid4().hex
    _offered[address] = shown
    for old, known in list(_offered.items())[:-KEPT]:
        if not known.watched:
            del _offered[old]
    return address


def withdraw(shown: Live[Any]) -> None:
    """No page can connect to ``shown`` any more."""
    for address in [address for address, known in _offered.items() if known is shown]:
        del _offered[address]


def hang_up() -> None:
    """Close all that was offered, and leave the kernel as it was before the first view was shown."""
    while _offered:
        _offered.popitem()[1].close()
    manager = _comm_manager()
    if manager is not None and TARGET in manager.targets:
        manager.unregister_target(TARGET, _opened)


def bootstrap(address: str, display: str) -> str:
    """The script that looks for a kernel and connects the display to the view at ``address``."""
    script = files("streamstate.widgets.live").joinpath("connect.js").read_text("utf-8")
    return f'<script>({script})("{TARGET}", "{address}", "{display}")</script>'


def _opened(comm: Any, message: Mapping[str, Any]) -> None:
    shown = _offered.get(str(message["content"]["data"].get("view")))
    page = CommPage(comm)
    if shown is None:
        page.close()
        return

    def received(sent: Mapping[str, Any]) -> None:
        page.heard()
        shown.received(page, sent["content"]["data"])

    comm.on_msg(received)
    comm.on_close(lambda _: shown.left(page))
    page.send({"kind": "module", "script": front.bundle(shown.kind), "style": front.style(shown.kind)})
    shown.joined(page)


def _comm_manager() -> Any:
    """The comm manager of the kernel this runs in, if it runs in one."""
    from IPython.core.getipython import get_ipython

    kernel = getattr(get_ipython(), "kernel", None)
    return getattr(kernel, "comm_manager", None)
