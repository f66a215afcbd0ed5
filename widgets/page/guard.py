"""Who may see the page: those who have the token, and pages of this very server.

The rule stands before all others of the server, so that it holds for the page, its scripts and its websocket alike.
A token in the address becomes a cookie that scripts cannot read and other sites cannot send, and leaves the address.
"""

from __future__ import annotations

import hmac
from collections.abc import Collection
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from tornado.httputil import HTTPServerRequest
from tornado.routing import Matcher, Rule
from tornado.web import RequestHandler

__all__ = ["rules"]

_REFUSED = """<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>streamstate: not allowed</title><style>
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 34em; margin: 4em auto; padding: 0 1em; }
</style></head><body><main><h1>Not allowed</h1><p>This page needs the token of the server that shows it. Open the whole
address that <code>streamstate serve</code> printed, or ask whoever started it.</p></main></body></html>"""


class _Guard:
    """Decides about requests.

    Args:
        token: what a viewer must know; None lets everyone in who can reach the server.
        hosts: the names that this server may be called by; None where any may be right.
    """

    def __init__(self, token: str | None, hosts: Collection[str] | None) -> None:
        self.token = token
        self.hosts = hosts

    def invited(self, request: HTTPServerRequest) -> bool:
        """Whether the address holds the right token."""
        given = request.query_arguments.get("token", [b""])[-1]
        return self.token is not None and "token" in request.query_arguments and self._right(given)

    def allowed(self, request: HTTPServerRequest) -> bool:
        """Whether this is a viewer, called by a page of this server."""
        host = request.headers.get("Host", "")
        origin = request.headers.get("Origin")
        if self.hosts is not None and (urlsplit(f"//{host}").hostname or "") not in self.hosts:
            return False  # another name for this machine, which someone else's page may have made up
        if origin is not None and urlsplit(origin).netloc != host:
            return False
        if self.token is None:
            return True
        return "token" not in request.query_arguments and self._right(self._cookie(request))

    def name(self, request: HTTPServerRequest) -> str:
        """The cookie: ports of one machine share theirs, so it names the port."""
        return f"streamstate-{urlsplit(f'//{request.host}').port or 80}"

    def _cookie(self, request: HTTPServerRequest) -> bytes:
        try:
            found = SimpleCookie(request.headers.get("Cookie", "")).get(self.name(request))
        except CookieError:
            return b""
        return found.value.encode() if found else b""

    def _right(self, given: bytes) -> bool:
        return self.token is not None and hmac.compare_digest(given, self.token.encode())


class _Matches(Matcher):
    """Takes the requests that a question is true of."""

    def __init__(self, question: Any) -> None:
        self._question = question

    def match(self, request: HTTPServerRequest) -> dict[str, Any] | None:
        """No arguments for the handler, or None where the request is not for it."""
        return {} if self._question(request) else None


class _Invite(RequestHandler):
    """Turns the token of an address into a cookie."""

    def initialize(self, guard: _Guard) -> None:
        """Called by Tornado with the arguments of the rule."""
        self._guard = guard

    def get(self) -> None:
        """Go on to the same address without the token."""
        rest = [pair for pair in parse_qsl(self.request.query, keep_blank_values=True) if pair[0] != "token"]
        self.set_cookie(self._guard.name(self.request), self._guard.token or "", httponly=True, samesite="Strict")
        self.set_header("Referrer-Policy", "no-referrer")
        path = "/" + self.request.path.lstrip("/")
        self.redirect(f"{path}?{urlencode(rest)}" if rest else path)


class _Refuse(RequestHandler):
    """Says no."""

    def prepare(self) -> None:
        """Whatever was asked."""
        self.set_status(403)
        self.finish(_REFUSED)


def rules(token: str | None, hosts: Collection[str] | None) -> list[Rule]:
    """The rules to put before a server's own.

    Args:
        token: what a viewer must know, or None.
        hosts: the names that this server may be called by, or None for any.
    """
    guard = _Guard(token, hosts)
    return [
        Rule(_Matches(guard.invited), _Invite, {"guard": guard}),
        Rule(_Matches(lambda request: not guard.allowed(request)), _Refuse),
    ]
