"""Who may see the page: browsers that have the token, and pages of this very server.

The rules of this module are checked before all others, so that they hold for the page, its scripts and its websocket
alike. A token in the address becomes a cookie that scripts cannot read and other sites cannot send, and is removed from
the address.

Browsers report in ``Sec-Fetch-Site`` which site caused a request. From another site, only a link that opens the page in
a tab is answered, with an empty page that loads the same address again. That second request comes from this server's
own page, so that no other site causes a request that carries the cookie.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from html import escape
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from tornado.httputil import HTTPServerRequest
from tornado.routing import Matcher, Rule
from tornado.web import RequestHandler

LOCAL = frozenset({"127.0.0.1", "localhost", "::1"})
"""Addresses that only this machine can reach."""

_LASTS = 24 * 3600.0
"""Seconds after its last request for which a browser stays admitted."""
_REMEMBERED = 1_000
"""The most admitted browsers; beyond that, the one whose last request is oldest is dropped."""
_TABS, _ALL_TABS = 20, 100
"""The most tabs of one browser, and of all together; each tab has threads and a document."""
_LINES = 2
"""The most connections per tab: one may be lost without the server knowing."""


class Visitors:
    """The admitted browsers. A cookie holds a random number, of which only a digest is kept.

    Apart from :attr:`tabs`, it is used only by the event loop.
    """

    def __init__(self) -> None:
        self.tabs: dict[Any, str | None] = {}
        """The viewer of each open tab, and its browser."""
        self.connections: Counter[str | None] = Counter()
        """Open websockets of each browser."""
        self._seen: dict[str, float] = {}
        self._owners: set[str] = set()

    def admit(self, *, owner: bool = False) -> str:
        """Admit a browser, if so as the ``owner``'s; returns the value of its cookie."""
        cookie = secrets.token_urlsafe(32)
        while len(self._seen) >= _REMEMBERED:
            self._drop(min(self._seen, key=lambda name: self._seen[name]))
        self._seen[_digest(cookie)] = time.monotonic()
        if owner:
            self._owners.add(_digest(cookie))
        return cookie

    def owns(self, name: str | None) -> bool:
        """Check if a browser is the owner's."""
        return name in self._owners

    def _drop(self, name: str) -> None:
        self._seen.pop(name, None)
        self._owners.discard(name)

    def name(self, cookie: str) -> str | None:
        """Return the name of the browser with this cookie; None if it was not admitted, or too long ago."""
        name = _digest(cookie)
        seen = self._seen.get(name)
        if seen is None or time.monotonic() - seen > _LASTS:
            self._drop(name)
            return None
        self._seen[name] = time.monotonic()
        return name

    def full(self, name: str | None) -> str:
        """Return why a browser cannot open another tab; empty if it can. Without a token, no browser has a name."""
        if name is not None and sum(owner == name for owner in self.tabs.values()) >= _TABS:
            return f"This browser already has {_TABS} open tabs of this store."
        if len(self.tabs) >= _ALL_TABS:
            return f"The server already has {_ALL_TABS} open tabs."
        return ""

    def crowded(self, name: str | None) -> bool:
        """Check if a browser has more connections than its tabs need."""
        return self.connections[name] >= _LINES * (_ALL_TABS if name is None else _TABS)


def _digest(cookie: str) -> str:
    return hashlib.sha256(cookie.encode()).hexdigest()


_PAGE = """<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>streamstate: {title}</title>{head}<style>
:root {{ color-scheme: light dark; }}
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 34em; margin: 4em auto; padding: 0 1em; }}
</style></head><body><main><h1>{title}</h1><p>{text}</p></main></body></html>"""
_REFUSED = (
    "This page needs the token of its server. Open the complete address that <code>streamstate serve</code> printed,"
    ' or ask the person who started it. If you followed a link from another site, <a href="">reload the page</a>.'
)


@dataclass(frozen=True)
class AccessRules:
    """The conditions under which the page is shown.

    Attributes:
        token: what a viewer must know; None admits everyone who can reach the server.
        owner_token: what the owner of the queries must know, who sees their input; None if nobody does.
        hosts: the valid host names of this server; None if any may be valid.
        origin: the address at which browsers see the page, if it is not this server's own, such as
            ``https://state.org``.
        port: the server's port, for the cookie's name, because all ports of a machine share their cookies.
        secure: whether browsers send the cookie only over HTTPS.
    """

    token: str | None
    owner_token: str | None
    hosts: Collection[str] | None
    origin: str | None
    port: int
    secure: bool

    @property
    def cookie(self) -> str:
        """The cookie's name."""
        return f"streamstate-{self.port}"


class _Guard(Matcher):
    """Decides about requests, and removes the token from them, so that no log contains it."""

    def __init__(self, access: AccessRules, visitors: Visitors) -> None:
        self.access = access
        self.visitors = visitors

    def match(self, request: HTTPServerRequest) -> dict[str, Any] | None:
        """The arguments of the answer to a request: ``invite``, ``again``, ``refuse`` or ``full``; None if it passes.

        Called by Tornado once for each request.
        """
        verdict = self._judged(request, _without_token(request))
        return None if verdict == "pass" else {"target_kwargs": {"guard": self, "verdict": verdict}}

    def _judged(self, request: Any, token: bytes | None) -> str:  # noqa: PLR0911 (one line for each answer)
        if request.method not in {"GET", "HEAD"} or not self._valid_host(request):
            return "refuse"
        if request.headers.get("Sec-Fetch-Site", "none") not in {"same-origin", "none"}:
            opened = _opened_in_a_tab(request)
            if opened and token is not None:
                request.streamstate_token = token
            return "again" if opened else "refuse"
        if not self._from_here(request):
            return "refuse"
        name = self.visitors.name(self._cookie(request))
        request.streamstate_visitor = name
        if _same(token, self.access.owner_token):
            request.streamstate_owner = True
            return "invite"
        if self.access.token is not None:
            if token is not None:
                return "invite" if _same(token, self.access.token) else "refuse"
            if name is None:
                return "refuse"
        if request.path == "/ws":
            return "full" if self.visitors.crowded(name) else "pass"
        return "full" if request.path in {"", "/"} and self.visitors.full(name) else "pass"

    def _valid_host(self, request: HTTPServerRequest) -> bool:
        """Check if the host name is one of this server's; another site may have pointed its own name here."""
        host = urlsplit(f"//{request.headers.get('Host', '')}").hostname or ""
        return self.access.hosts is None or host in self.access.hosts

    def _from_here(self, request: HTTPServerRequest) -> bool:
        """Check if the request comes from a page of this server, or from no page at all."""
        origin = request.headers.get("Origin")
        if origin is None or origin == self.access.origin:
            return True
        netloc = urlsplit(origin).netloc
        if self.access.origin is not None and (urlsplit(origin).hostname or "") not in LOCAL:
            return False
        return netloc == request.headers.get("Host", "")

    def _cookie(self, request: HTTPServerRequest) -> str:
        try:
            found = SimpleCookie(request.headers.get("Cookie", "")).get(self.access.cookie)
        except CookieError:
            return ""
        return found.value if found else ""


def _same(given: bytes | None, token: str | None) -> bool:
    """Compare a token in constant time."""
    return given is not None and token is not None and hmac.compare_digest(given, token.encode())


def _opened_in_a_tab(request: HTTPServerRequest) -> bool:
    """Check if a link opens the page in a tab, not in a frame or as part of another page."""
    mode, target = request.headers.get("Sec-Fetch-Mode"), request.headers.get("Sec-Fetch-Dest")
    return (mode, target) == ("navigate", "document") and request.method == "GET"


def _without_token(request: HTTPServerRequest) -> bytes | None:
    """Remove the token from a request and return it; None if there is none."""
    given = request.arguments.pop("token", None)
    request.query_arguments.pop("token", None)
    if given is None:
        return None
    rest = [pair for pair in parse_qsl(request.query, keep_blank_values=True) if pair[0] != "token"]
    request.query = urlencode(rest)
    request.uri = request.path + (f"?{request.query}" if rest else "")
    return given[-1]


class _Answer(RequestHandler):
    """The answer to a request that does not pass."""

    def initialize(self, guard: _Guard, verdict: str) -> None:
        """Called by Tornado with what :meth:`_Guard.match` returned."""
        self.guard = guard
        self.verdict = verdict

    def prepare(self) -> None:
        """Answer any request."""
        match self.verdict:
            case "invite":
                self._invite()
            case "again":
                self._again()
            case "full":
                why = self.guard.visitors.full(self._visitor()) or "Too many connections."
                self._page(429, "Too many tabs", f"{escape(why)} Close some, wait a few seconds, and reload this page.")
            case _:
                self._page(403, "Not allowed", _REFUSED)

    def _invite(self) -> None:
        """Turn the token in the address into a cookie, and redirect to the same address without the token."""
        access, visitors, request = self.guard.access, self.guard.visitors, self.request
        owner = getattr(request, "streamstate_owner", False)
        if self._visitor() is None or (owner and not visitors.owns(self._visitor())):
            cookie = visitors.admit(owner=owner)
            self.set_cookie(access.cookie, cookie, httponly=True, samesite="Strict", secure=access.secure)
        path = "/" + request.path.lstrip("/")
        self.redirect(f"{path}?{request.query}" if request.query else path)

    def _again(self) -> None:
        """Make the browser load the same address again, including its token, from a page of this server."""
        pairs = parse_qsl(self.request.query, keep_blank_values=True)
        token = getattr(self.request, "streamstate_token", None)
        if token is not None:
            pairs.append(("token", token.decode("utf-8", "replace")))
        address = escape("/" + self.request.path.lstrip("/") + (f"?{urlencode(pairs)}" if pairs else ""))
        link = f'<a href="{address}">Open the page.</a>'
        self._page(200, "Opening …", link, f'<meta http-equiv="refresh" content="0; url={address}">')

    def _visitor(self) -> str | None:
        return getattr(self.request, "streamstate_visitor", None)

    def _page(self, status: int, title: str, text: str, head: str = "") -> None:
        """Answer with a page of one paragraph."""
        self.set_status(status)
        self.finish(_PAGE.format(title=title, text=text, head=head))


def guarded(access: AccessRules, visitors: Visitors) -> Rule:
    """Return the routing rule that answers a request, unless it may pass; it must come before all others."""
    return Rule(_Guard(access, visitors), _Answer)
