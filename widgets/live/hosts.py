"""The pages of a view, whatever hosts them: a notebook's comms, a Panel component or a Jupyter widget.

In a notebook, a displayed view is its still form and, in an output below it, a small script. If the script finds a
kernel, through the JupyterLab extension that comes with Panel (``pyviz_comms``), it opens a comm; the kernel answers
with the code of the live view, and then with a message per drawing. None of this is stored in the notebook: without a
kernel, or if scripts are blocked, the still form simply stays.

A Panel component and a Jupyter widget have a single line to all places that show them, so that each message names its
page.
"""

from __future__ import annotations

import contextvars
import os
import sys
import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Mapping
from importlib.resources import files
from typing import Any

from streamstate.snapshots.calls.html import Html, tag
from streamstate.widgets.front import bundle, style
from streamstate.widgets.live.live_view import Live
from streamstate.widgets.live.outputs import SHARE

TARGET = "streamstate.widgets"
EXEC = "application/vnd.holoviews_exec.v0+json"
"""The MIME type that makes JupyterLab pass its kernel to an output."""
KEPT = 256
"""Views that a page can still connect to, for instance after a reload. Older ones are dropped unless a page shows
them."""
_UNWATCHED = 8
"""The most views that the end of a cell brings up to date: the newest ones."""
_PLACES = 8
"""The most places that show one component; beyond that, the oldest is dropped."""
_BURST, _PER_SECOND = 30, 1.0
"""How often the code of the view or of its plots may be requested; it has up to a megabyte."""
_VSCODE = ("VSCODE_PID", "VSCODE_CWD", "VSCODE_IPC_HOOK", "VSCODE_IPC_HOOK_CLI", "VSCODE_IPC_HOOK_EXTHOST")

Send = Callable[[dict[str, Any]], object]


class HostedPage:
    """A page that shows a view, over any line. Any thread may call ``send``; ``hang_up`` closes the line."""

    def __init__(self, send: Send, hang_up: Callable[[], object] | None = None) -> None:
        self.handled = 0
        self._send = send
        self._hang_up = hang_up
        self.heard()

    def heard(self) -> None:
        """Remember the context of the page's last message.

        A recent JupyterLab talks to a subshell of the kernel, which answers while a cell runs, and the kernel expects
        answers from the context of the last message.
        """
        self._context = contextvars.copy_context()

    def open(self, shown: Live[Any]) -> None:
        """Send the code of the view, and start drawing."""
        self.send({"kind": "module", "script": bundle(shown.kind), "style": style(shown.kind)})
        shown.joined(self)

    def send(self, content: Mapping[str, Any]) -> None:
        """Send a message; any thread may call this."""
        self._context.copy().run(self._send, dict(content))

    def close(self) -> None:
        """Tell the page to return to its still form, and hang up."""
        self.send({"kind": "closed"})
        if self._hang_up is not None:
            self._context.copy().run(self._hang_up)


class RateLimit:
    """A limit on how often something may be done at once, and per second (a token bucket).

    Example:
        >>> limit = RateLimit(2, 0.001)
        >>> limit.take(), limit.take(), limit.take()
        (True, True, False)
    """

    def __init__(self, burst: float, rate: float) -> None:
        self._burst = burst
        self._rate = rate
        self._left = burst
        self._at = time.monotonic()

    def take(self) -> bool:
        """Take one turn; False if none is left."""
        now = time.monotonic()
        self._left = min(self._burst, self._left + (now - self._at) * self._rate)
        self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True


class HostedPages:
    """The pages of one Panel component or Jupyter widget; ``send`` reaches every place that shows it."""

    def __init__(self, shown: Live[Any], send: Send) -> None:
        self._shown = shown
        self._send = send
        self._lock = threading.Lock()
        self._pages: dict[str, HostedPage] = {}
        self._code = RateLimit(_BURST, _PER_SECOND)

    def received(self, message: Any) -> None:
        """Handle a message of a page. Invalid messages, and code requested too often, are ignored."""
        match message:
            case {"content": {"do": "join" | "library"}} if not self._code.take():
                return
            case {"from": str(name), "content": {"do": "join"}}:
                self._join(name)
            case {"from": str(name), "content": {"do": "leave"}}:
                self._leave(name)
            case {"from": str(name), "content": {"do": str()} as content}:
                with self._lock:
                    page = self._pages.get(name)
                if page is not None:
                    page.heard()
                    self._shown.received(page, content)

    def _leave(self, name: str) -> None:
        with self._lock:
            page = self._pages.pop(name, None)
        if page is not None:
            self._shown.left(page)

    def _join(self, name: str) -> None:
        self._leave(name)
        page = HostedPage(lambda content: self._send({"to": name, "content": content}))
        with self._lock:
            self._pages[name] = page
            oldest = next(iter(self._pages)) if len(self._pages) > _PLACES else None
        if oldest is not None:
            self._leave(oldest)
        page.open(self._shown)

    def close(self) -> None:
        """Drop all pages, because the component is gone. Idempotent."""
        with self._lock:
            pages, self._pages = list(self._pages.values()), {}
        for page in pages:
            self._shown.left(page)


_offered: OrderedDict[str, Live[Any]] = OrderedDict()


def offer(shown: Live[Any]) -> str | None:
    """Let pages of a notebook connect to a view.

    Returns:
        The view's address; None outside a Jupyter kernel.
    """
    manager = _comm_manager()
    if manager is None:
        return None
    if TARGET not in manager.targets:
        manager.register_target(TARGET, _opened)
        _shell().events.register("post_run_cell", _catch_up)
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
    """Let no page connect to a view any more."""
    for address in [address for address, known in _offered.items() if known is shown]:
        del _offered[address]


def hang_up() -> None:
    """Close all views, and leave the kernel as it was before the first one."""
    while _offered:
        _offered.popitem()[1].close()
    manager = _comm_manager()
    if manager is not None and TARGET in manager.targets:
        manager.unregister_target(TARGET, _opened)
        _shell().events.unregister("post_run_cell", _catch_up)


def _catch_up(_result: object) -> None:
    """Bring outputs up to date that no page draws, such as where nbclient runs the notebook.

    It takes at most a tenth of the time.
    """
    global _next_catch_up  # noqa: PLW0603 (of the process, as the views are)
    began = time.monotonic()
    if began < _next_catch_up:
        return
    for shown in list(_offered.values())[-_UNWATCHED:]:
        shown.catch_up()
    ended = time.monotonic()
    _next_catch_up = ended + (ended - began) / SHARE


_next_catch_up = 0.0


def bootstrap(address: str, still: str) -> tuple[dict[str, str], dict[str, Any]]:
    """The output that makes a view live: a script that looks for a kernel, and connects to the view at ``address``.

    ``still`` is the name of the element that it hides.
    """
    display = uuid.uuid4().hex
    script = files("streamstate.widgets.live").joinpath("connect.js").read_text("utf-8")
    call = f'({script})("{TARGET}", "{address}", "{display}", "{hiding(still)}")'
    html = tag("div", tag("script", Html(call)), class_="streamstate")
    return {"text/plain": "", "text/html": html, EXEC: ""}, {EXEC: {"id": display}}


def hiding(*stills: str) -> str:
    """Return the style that hides still forms, with the room that JupyterLab leaves for them."""
    names = [f"#{name}" for name in stills]
    rows = [f".jp-OutputArea-child:has({name})" for name in names]
    return f"{', '.join([*names, *rows])} {{ display: none !important; }}" if names else ""


def widget_needed(environment: Mapping[str, str] = os.environ) -> bool:
    """Check if the notebook shows widgets but cannot open comms for Panel, as in VS Code and Colab.

    A JupyterLab started from a terminal of VS Code inherits its environment, but also sets ``JPY_SESSION_NAME``.

    Example:
        >>> widget_needed({"VSCODE_PID": "4711"}), widget_needed({"VSCODE_PID": "4711", "JPY_SESSION_NAME": "a.ipynb"})
        (True, False)
    """
    if "google.colab" in sys.modules:
        return True
    return "JPY_SESSION_NAME" not in environment and any(name in environment for name in _VSCODE)


def _opened(comm: Any, message: Mapping[str, Any]) -> None:
    shown = _offered.get(str(message["content"]["data"].get("view")))
    page = HostedPage(comm.send, comm.close)
    if shown is None:
        page.close()
        return

    def received(sent: Mapping[str, Any]) -> None:
        page.heard()
        shown.received(page, sent["content"]["data"])

    comm.on_msg(received)
    comm.on_close(lambda _: shown.left(page))
    page.open(shown)


def _comm_manager() -> Any:
    """Return the comm manager of the current Jupyter kernel, if there is one."""
    kernel = getattr(_shell(), "kernel", None)
    return getattr(kernel, "comm_manager", None)


def _shell() -> Any:
    """Return the shell of this process, if there is one."""
    from IPython.core.getipython import get_ipython

    return get_ipython()
