"""A client of a served page without a browser: it speaks Bokeh's protocol like the page."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import ssl
import time
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

from bokeh.util.serialization import make_id
from websocket import (
    ABNF,
    WebSocket,
    WebSocketConnectionClosedException,
    WebSocketTimeoutException,
    create_connection,
)

from streamstate.widgets.page import Server

_PATIENCE = 60.0


class Visitor:
    """An authenticated browser, with a cookie.

    Args:
        server: the server.
        trusted: the certificates that it trusts if the server uses HTTPS.
        url: the address that it opens first, such as the owner's; by default the server's.
    """

    def __init__(self, server: Server, trusted: ssl.SSLContext | None = None, url: str | None = None) -> None:
        self.server = server
        self.trusted = trusted
        response, _ = self.get("/?" + urlsplit(url or server.url).query, cookie="")
        self.cookie = (response.headers["Set-Cookie"] or "").partition(";")[0]

    def get(self, path: str, *, cookie: str | None = None, **headers: str) -> tuple[http.client.HTTPResponse, str]:
        """Send a request; return the response and its body."""
        port = self.server.port
        connection: http.client.HTTPConnection = (
            http.client.HTTPSConnection("localhost", port, timeout=_PATIENCE, context=self.trusted)
            if self.trusted
            else http.client.HTTPConnection("127.0.0.1", port, timeout=_PATIENCE)
        )
        cookies = {"Cookie": self.cookie if cookie is None else cookie}
        connection.request(
            "GET", path, headers=cookies | {name.replace("_", "-"): value for name, value in headers.items()}
        )
        response = connection.getresponse()
        body = response.read().decode("utf-8", "replace")
        connection.close()
        return response, body


class Tab:
    """A tab with the view of its address.

    Args:
        visitor: the browser.
        address: the query part of the URL.
        loading: how long the page takes to build the document that it pulled, in seconds.
    """

    def __init__(self, visitor: Visitor, address: str = "?query=delays", *, loading: float = 0) -> None:
        response, body = visitor.get(f"/{address}")
        assert response.status == 200, (response.status, body[-400:])
        found = re.search(r'"token":"([^"]+)"', body)
        assert found is not None
        server = visitor.server
        url = f"wss://localhost:{server.port}" if visitor.trusted else f"ws://127.0.0.1:{server.port}"
        self._line: WebSocket = create_connection(
            f"{url}/ws",
            subprotocols=["bokeh", found.group(1)],
            cookie=visitor.cookie,
            timeout=_PATIENCE,
            sslopt={"context": visitor.trusted} if visitor.trusted else None,
        )
        self._actions = 0
        self._hear()  # the server is ready
        self._send("PULL-DOC-REQ", {})
        time.sleep(loading)
        self._event({"type": "event", "name": "document_ready", "values": {"type": "map", "entries": []}})
        components: list[str] = []
        while len(components) < 2:  # the head, and later the view
            components += self._components(self._hear()[2])
        self.head, self.view = components[0], components[-1]
        self.say(self.head, {"do": "join"})
        self.say(self.view, {"do": "join"})

    def do(self, action: str, value: Any) -> int:
        """Send a user's action to the view; return its number, which the response repeats."""
        self._actions += 1
        self.say(self.view, {"do": action, "value": value, "n": self._actions})
        return self._actions

    def go(self, address: str) -> None:
        """Follow a link of the head."""
        self.say(self.head, {"do": "address", "value": address})

    def shown(self, number: int = 0, patience: float = _PATIENCE, part: str = "page") -> dict[str, Any]:
        """The first drawing of the view after an action was handled, recognized by a part that it has.

        Raises:
            TimeoutError: The page did not arrive.
        """
        end = time.monotonic() + patience
        while time.monotonic() < end:
            for content in self._contents(self._hear(max(0.01, end - time.monotonic()))[2]):
                if content.get("kind") == "show" and content["handled"] >= number and part in content:
                    return content
        raise TimeoutError(f"no page after action {number} within {patience} s")

    def address(self, part: str, patience: float = _PATIENCE) -> str:
        """The first address of the head that contains a text; a page shows it as its own.

        Raises:
            TimeoutError: No such address arrived.
        """
        end = time.monotonic() + patience
        while time.monotonic() < end:
            for content in self._contents(self._hear(max(0.01, end - time.monotonic()))[2]):
                if part in content.get("address", ""):
                    return str(content["address"])
        raise TimeoutError(f"no address with {part!r} within {patience} s")

    def wait_for_the_end(self) -> None:
        """Read until the server closes the connection."""
        with contextlib.suppress(OSError, WebSocketConnectionClosedException):
            while self._line.recv():
                pass

    def say(self, component: str, content: dict[str, Any]) -> None:
        """Send a message from a component."""
        data = _form({"from": "page", "content": content})
        event = {
            "type": "event",
            "name": "data_event",
            "values": {"type": "map", "entries": [["model", {"id": component}], ["data", data]]},
        }
        self._event(event)

    def _event(self, event: dict[str, Any]) -> None:
        self._send("PATCH-DOC", {"events": [{"kind": "MessageSent", "msg_type": "bokeh_event", "msg_data": event}]})

    def _send(self, kind: str, content: dict[str, Any]) -> None:
        for part in ({"msgid": make_id(), "msgtype": kind}, {}, content):
            self._line.send(json.dumps(part))

    def _hear(self, patience: float = _PATIENCE) -> tuple[Any, Any, Any]:
        end = time.monotonic() + patience
        header, metadata, content = (json.loads(self._receive(end)) for _ in range(3))
        for _ in range(2 * header.get("num_buffers", 0)):
            self._receive(end)
        return header, metadata, content

    def _receive(self, end: float) -> bytes:
        """The next fragment. The server's pings do not count, or they would extend the time limit."""
        while True:
            self._line.settimeout(max(0.01, end - time.monotonic()))
            try:
                opcode, frame = self._line.recv_data_frame(control_frame=True)
            except WebSocketTimeoutException as error:
                raise TimeoutError("no message arrived") from error
            if opcode == ABNF.OPCODE_CLOSE:
                raise WebSocketConnectionClosedException("The server closed the connection.")
            if opcode in (ABNF.OPCODE_TEXT, ABNF.OPCODE_BINARY):
                data: bytes = frame.data
                return data

    def _components(self, content: Any) -> list[str]:
        """The ids of the components that a message creates, in order."""
        found = re.findall(
            r'"name":"panel.models.esm.(?:ReactiveESM|AnyWidget)[^"]*","id":"([^"]+)"', _compact(content)
        )
        return found or re.findall(r'"name":"[^"]*(?:ESM|esm)[^"]*","id":"([^"]+)"', _compact(content))

    def _contents(self, content: Any) -> list[dict[str, Any]]:
        """The contents that a message sends to components."""
        texts = re.findall(r'\["data",("(?:[^"\\]|\\.)*")\]', _compact(content))
        return [json.loads(json.loads(text))["content"] for text in texts]

    def close(self) -> None:
        """Close the tab."""
        self._line.close()

    def __enter__(self) -> Tab:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _compact(content: Any) -> str:
    return json.dumps(content, separators=(",", ":"))


def _form(value: Any) -> Any:
    """A value as serialized by Bokeh."""
    if isinstance(value, dict):
        return {"type": "map", "entries": [[name, _form(item)] for name, item in value.items()]}
    return [_form(item) for item in value] if isinstance(value, list) else value
