"""The network of the page: limits on what viewers send and leave unread, and headers that keep other sites out."""

from __future__ import annotations

import logging
import re
import secrets
import traceback
from typing import Any

from panel.io.server import WSHandler
from tornado.httputil import HTTPHeaders, HTTPServerRequest
from tornado.web import OutputTransform

from streamstate.widgets.live.hosts import RateLimit
from streamstate.widgets.page.guard import Visitors

LARGEST = 256 * 1024
"""The largest message to the server, in bytes; addresses and conditions are far shorter."""
_BURST, _PER_SECOND = 1_500, 300.0
"""The limit for fragments, three per message: a slider that moves fast sends 60 messages a second."""
_UNREAD = 32 * 1024 * 1024
"""The most bytes that may wait for a viewer who does not read them."""
_TOO_MUCH = 1008
_LOGGED, _LOGGED_PER_SECOND, _LONGEST_RECORD = 10, 0.1, 2_000
"""Records of each of Bokeh's logs at once and per second, and the characters of each."""
_SCRIPT = re.compile(rb"<script(?=[\s>])")
_POLICY = (
    "default-src 'none'; script-src 'self' blob: 'nonce-{nonce}'; style-src 'self' 'unsafe-inline';"
    " img-src 'self' data: blob:; font-src 'self' data:; connect-src 'self' blob:;"
    " frame-ancestors 'none'; base-uri 'none'; form-action 'none'; object-src 'none'"
)
_HEADERS = {
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class BriefLog(logging.Filter):
    """Keeps a log short, whatever viewers send: Bokeh logs a traceback, with the message, for each that it refuses."""

    def __init__(self) -> None:
        super().__init__()
        self._limit = RateLimit(_LOGGED, _LOGGED_PER_SECOND)
        self._left_out = 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Check if a record is logged, and shorten its message."""
        if not self._limit.take():
            self._left_out += 1
            return False
        text = record.getMessage()
        if record.exc_info and record.exc_info[1] is not None:
            text += "\n" + "".join(traceback.format_exception(record.exc_info[1]))
        if len(text) > _LONGEST_RECORD:
            half = _LONGEST_RECORD // 2
            text = f"{text[:half]} … {text[-half:]}"
        if self._left_out:
            text += f"\n{self._left_out:,} records before this one were left out."
        self._left_out = 0
        record.msg, record.args, record.exc_info = text, (), None
        return True


for _name in ("bokeh.server.protocol_handler", "bokeh.server.views.ws", "bokeh.protocol"):
    logging.getLogger(_name).addFilter(BriefLog())


class TabConnection(WSHandler):
    """The websocket of a tab. It is closed if the viewer floods it, or does not read."""

    def __init__(self, *arguments: Any, visitors: Visitors, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self._visitors = visitors
        self._limit = RateLimit(_BURST, _PER_SECOND)
        self._counted = self._flooded = False

    def open(self, *arguments: Any, **keywords: Any) -> Any:
        """Called when the connection is open."""
        self._visitor = getattr(self.request, "streamstate_visitor", None)
        self._visitors.connections[self._visitor] += 1
        self._counted = True
        return super().open(*arguments, **keywords)  # type: ignore[no-untyped-call]

    def close(self, code: int | None = None, reason: str | None = None) -> None:
        """Close the connection; what is already on its way is not looked at."""
        self._flooded = True
        super().close(code, reason)

    def on_close(self) -> None:
        """Called when the connection is closed."""
        if self._counted:
            self._counted = False
            self._visitors.connections -= {self._visitor: 1}
        super().on_close()

    async def on_message(self, fragment: str | bytes) -> None:
        """Handle a fragment of a message."""
        if self._flooded:
            return  # fragments that were already on their way
        if not self._limit.take():
            self.close(_TOO_MUCH, "Too many messages.")
        else:
            await super().on_message(fragment)

    async def write_message(self, message: Any, *how: Any, **more: Any) -> None:  # type: ignore[override]  # as Bokeh's
        """Send a fragment, or close the connection if the viewer has left too much unread."""
        line = self.ws_connection
        stream = getattr(line, "stream", None)
        # Tornado has no public size; there is no buffer once the stream is closed.
        if stream is not None and len(getattr(stream, "_write_buffer", None) or ()) > _UNREAD:
            stream.close()
        await super().write_message(message, *how, **more)


class SecurityHeaders(OutputTransform):
    """Adds headers to every answer: the page loads nothing from elsewhere, and no other site can embed or read it."""

    def __init__(self, request: HTTPServerRequest) -> None:
        self._static = request.path.startswith("/static/")

    def transform_first_chunk(
        self,
        status_code: int,
        headers: HTTPHeaders,
        chunk: bytes,
        finishing: bool,  # noqa: FBT001 (Tornado's)
    ) -> tuple[int, HTTPHeaders, bytes]:
        """Called by Tornado with the headers and the start of the body, which for a page is all of it."""
        nonce = secrets.token_urlsafe(16)
        if headers.get("Content-Type", "").startswith("text/html"):
            chunk = _SCRIPT.sub(b'<script nonce="%s"' % nonce.encode(), chunk)
            if "Content-Length" in headers:
                headers["Content-Length"] = str(len(chunk))
        headers["Content-Security-Policy"] = _POLICY.format(nonce=nonce)
        headers.update(_HEADERS)
        if not self._static:
            headers["Cache-Control"] = "no-store"
        return status_code, headers, chunk
