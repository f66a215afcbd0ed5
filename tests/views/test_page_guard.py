"""A served page is protected from other sites, other machines and logs."""

from __future__ import annotations

import logging
import re
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from bokeh.util.token import get_token_payload
from browser.lab import wait_until
from browser.stores import flights
from served_viewer import Tab, Visitor

from streamstate.errors import InvalidArgumentError
from streamstate.widgets.page import Server, guard, serve

CROSS = {"Sec_Fetch_Site": "cross-site"}
LINK = {"Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "document"}
UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec_WebSocket_Key": "x" * 22 + "==",
    "Sec_WebSocket_Version": "13",
}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with the query ``delays``."""
    path = tmp_path_factory.mktemp("guarded") / "store"
    flights(path)
    return path


@pytest.fixture(scope="module")
def server(path: Path) -> Iterator[Server]:
    """The store, served with the token ``the-secret``."""
    with serve(path, token="the-secret") as server:
        yield server


@pytest.fixture(scope="module")
def visitor(server: Server) -> Visitor:
    """A browser that has logged in with the token."""
    return Visitor(server)


def test_the_page_contains_neither_token_nor_cookie(visitor: Visitor) -> None:
    """Scripts can read the page's content, which includes Bokeh's session token."""
    _, body = visitor.get("/", User_Agent="marked")
    found = re.search(r'"token":"([^"]+)"', body)
    assert found is not None
    payload = get_token_payload(found.group(1))
    assert payload["cookies"] == {}
    assert visitor.cookie.partition("=")[2] not in body
    assert "the-secret" not in body
    assert "marked" not in str(payload)


@pytest.mark.parametrize(
    "url_path",
    [
        "/autoload.js?bokeh-autoload-element=x",
        "/metadata",
        "/components/panel.widgets/Button/_css/x",
        "/index.html",
    ],
)
def test_only_the_paths_that_the_page_needs_are_served(visitor: Visitor, url_path: str) -> None:
    """Other Bokeh and Panel paths embed the page elsewhere or import modules by name."""
    assert visitor.get(url_path)[0].status == 404


def test_unsigned_sessions_are_rejected(visitor: Visitor) -> None:
    """Sessions are signed: a session ID without the server's signature is not accepted."""
    answer, _ = visitor.get("/?bokeh-session-id=mine")
    assert answer.status != 200


@pytest.mark.parametrize("url_path", ["/", "/?token=the-secret", "/static/js/bokeh.min.js", "/ws"])
@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Sec_Fetch_Mode": "no-cors", "Sec_Fetch_Dest": "script"},
        {"Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "iframe"},
        {"Sec_Fetch_Mode": "websocket", "Sec_Fetch_Dest": "websocket"},
    ],
)
def test_cross_site_requests_are_rejected(visitor: Visitor, url_path: str, headers: dict[str, str]) -> None:
    """Scripts, frames and connections are refused even with the cookie; a sibling domain counts as another site."""
    for site in ("cross-site", "same-site"):
        answer, _ = visitor.get(
            url_path, **{**headers, "Sec_Fetch_Site": site}, **(UPGRADE if url_path == "/ws" else {})
        )
        assert answer.status == 403
        assert "Set-Cookie" not in answer.headers
        assert "Access-Control-Allow-Origin" not in answer.headers


def test_a_link_from_another_site_reloads_the_page(visitor: Visitor) -> None:
    """The response has no content and no cookie; it loads the same URL again."""
    answer, body = visitor.get("/?query=delays&token=the-secret", **CROSS, **LINK)
    assert (answer.status, answer.headers["Set-Cookie"]) == (200, None)
    assert 'http-equiv="refresh" content="0; url=/?query=delays&amp;token=the-secret"' in body


def test_every_response_has_security_headers(server: Server, visitor: Visitor) -> None:
    """Pages, scripts, redirects and errors forbid framing, sniffing and caching."""
    answers = [visitor.get(path)[0] for path in ("/", "/static/js/bokeh.min.js", "/none", "/?token=the-secret")]
    answers.append(visitor.get("/", cookie="")[0])
    assert [answer.status for answer in answers] == [200, 200, 404, 302, 403]
    for answer in answers:
        policy = answer.headers["Content-Security-Policy"]
        assert "frame-ancestors 'none'" in policy
        assert "default-src 'none'" in policy
        assert "unsafe-eval" not in policy
        assert "script-src 'self' blob: 'nonce-" in policy
        assert answer.headers["X-Frame-Options"] == "DENY"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Referrer-Policy"] == "no-referrer"
    assert answers[0].headers["Cache-Control"] == "no-store"


def test_each_browser_has_its_own_cookie(server: Server) -> None:
    """The cookie is random and differs from the token; it is invalid once the server has dropped it."""
    first, second = Visitor(server), Visitor(server)
    assert first.cookie != second.cookie
    assert first.get("/")[0].status == 200
    server._visitors._seen.clear()
    assert first.get("/")[0].status == 403


def test_logs_do_not_contain_the_token(visitor: Visitor, caplog: pytest.LogCaptureFixture) -> None:
    """Neither a correct token nor a mistyped one is logged."""
    with caplog.at_level(logging.DEBUG):
        visitor.get("/?token=the-secret&query=delays")
        visitor.get("/?token=the-secreT&query=delays")
        visitor.get("/none?token=the-secret", **CROSS)
    assert "/?query=delays" in caplog.text
    assert "secre" not in caplog.text


@pytest.mark.slow
def test_the_number_of_tabs_is_limited(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page reports that the limit is reached, and closing a tab makes room for another one."""
    monkeypatch.setattr(guard, "_TABS", 2)
    with serve(path) as server:
        visitor = Visitor(server)
        with Tab(visitor), Tab(visitor):
            answer, body = visitor.get("/")
            assert (answer.status, "already has 2 open tabs" in body) == (429, True)
            with Tab(Visitor(server)):
                assert server.viewers == 3
        wait_until(lambda: visitor.get("/")[0].status == 200, "a tab to close")


def test_behind_a_proxy_the_page_has_the_proxys_address(path: Path) -> None:
    """The proxy may or may not pass the host name on; the cookie is HTTPS-only, and other origins are rejected."""
    with serve(path, token="t", allow_origin="https://State.example.com:443/") as server:
        assert server.url == "https://state.example.com/?token=t"
        named = {"Host": "state.example.com", "Origin": "https://state.example.com"}
        visitor = Visitor(server)
        answer, _ = visitor.get("/?token=t", cookie="", Host="state.example.com")
        assert "Secure" in answer.headers["Set-Cookie"]
        cookie = answer.headers["Set-Cookie"].split(";")[0]
        for host in ("state.example.com", f"127.0.0.1:{server.port}"):
            assert visitor.get("/ws", cookie=cookie, **{**named, "Host": host}, **UPGRADE)[0].status not in (403, 429)
        for origin in ("http://state.example.com", "https://evil.example", "https://state.example.com:444", "null"):
            assert visitor.get("/ws", cookie=cookie, **{**named, "Origin": origin}, **UPGRADE)[0].status == 403
        assert visitor.get("/", cookie=cookie, Host="evil.example")[0].status == 403


@pytest.mark.parametrize(
    "origin", ["state.example.com", "https://", "https://x.org/path", "ftp://x.org", "https://x:y"]
)
def test_an_invalid_origin_is_rejected(path: Path, origin: str) -> None:
    """The error says what is expected."""
    with pytest.raises(InvalidArgumentError, match=r"https://state\.example\.com"):
        serve(path, allow_origin=origin)


def test_a_token_is_required_behind_a_proxy(path: Path) -> None:
    """Other machines can reach the proxy."""
    with pytest.raises(InvalidArgumentError, match="Without a token"):
        serve(path, token="", allow_origin="https://state.example.com")


def test_the_server_supports_https(path: Path, tmp_path: Path) -> None:
    """Page, cookie and WebSocket work with a certificate; a wrong key is reported."""
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost"]
    command += ["-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(cert)]
    subprocess.run(command, check=True, capture_output=True)
    with serve(path, tls_cert=cert, tls_key=key) as server:
        assert server.url.startswith("https://127.0.0.1:")
        visitor = Visitor(server, ssl.create_default_context(cafile=str(cert)))
        with Tab(visitor) as tab:
            assert tab.shown(tab.do("epoch", 2))["epoch"] == 2
    with pytest.raises(InvalidArgumentError, match="tls_key"):
        serve(path, tls_cert=cert)
    with pytest.raises(InvalidArgumentError, match="Cannot use the certificate"):
        serve(path, tls_cert=cert, tls_key=cert)


@pytest.fixture
def owned(path: Path) -> Iterator[Server]:
    """The store, served with a second address for its owner."""
    with serve(path, token="the-secret", why=True) as server:
        yield server


def why_not(visitor: Visitor) -> str:
    """Return the reason why a browser sees no input behind changes."""
    with Tab(visitor) as tab:
        return str(tab.shown()["why_not"])


def test_only_the_owners_address_admits_the_owner(owned: Server) -> None:
    """The viewers' does not, and the owner's is another one."""
    assert owned.owner_url is not None
    assert "the-secret" not in owned.owner_url
    assert "The owner of a query sees" in why_not(Visitor(owned))
    assert ".describe(build_query)" in why_not(
        Visitor(owned, url=owned.owner_url)
    )  # of a query whose plan is known here


def test_a_viewer_becomes_the_owner_with_the_owners_address(owned: Server) -> None:
    """The browser gets another cookie, which the address of viewers does not take away; a wrong token is refused."""
    viewer = Visitor(owned)
    before, query = viewer.cookie, urlsplit(owned.owner_url or "").query
    answer, _ = viewer.get(f"/?{query}")
    owner = (answer.headers["Set-Cookie"] or "").partition(";")[0]
    assert owner != before
    assert viewer.get("/?token=the-secret", cookie=owner)[0].headers["Set-Cookie"] is None
    assert viewer.get(f"/?{query}x", cookie="")[0].status == 403
    viewer.cookie = owner
    assert ".describe(build_query)" in why_not(viewer)
    viewer.cookie = before
    assert "The owner of a query sees" in why_not(viewer)


@pytest.mark.slow
def test_without_a_token_nobody_is_the_owner_by_chance(path: Path) -> None:
    """Everyone is a viewer then; the owner still needs the owner's address, which exists only on request."""
    with serve(path, token="", why=True) as server:
        anyone = Visitor(server, url="http://127.0.0.1/")
        assert "The owner of a query sees" in why_not(anyone)
        assert ".describe(build_query)" in why_not(Visitor(server, url=server.owner_url))
    with serve(path) as server:
        assert server.owner_url is None


def test_a_dropped_browser_is_no_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its place is taken by others, or it did not come back for a day."""
    monkeypatch.setattr(guard, "_REMEMBERED", 2)
    visitors = guard.Visitors()
    name = visitors.name(visitors.admit(owner=True))
    assert visitors.owns(name)
    assert not visitors.owns(None)
    for _ in range(2):
        visitors.admit()
    assert not visitors.owns(name)
