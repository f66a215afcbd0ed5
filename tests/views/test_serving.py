"""A store as a page: who may see it, what its address says, and that nothing stays behind."""

from __future__ import annotations

import datetime as dt
import http.client
import subprocess
import sys
import threading
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from browser.lab import wait_until
from browser.stores import flights
from hypothesis import given
from hypothesis import strategies as st

import streamstate as ss
from streamstate.command_line import main
from streamstate.snapshots.errors import InvalidArgumentError, StoreError
from streamstate.widgets.page import Server, serve
from streamstate.widgets.page.address import Address
from streamstate.widgets.page.model import Catalogue, PageModel


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with the query ``delays``."""
    path = tmp_path_factory.mktemp("served") / "store"
    flights(path)
    return path


@pytest.fixture(scope="module")
def server(path: Path) -> Iterator[Server]:
    """That store, served with the token ``secret``."""
    with serve(path, token="secret") as server:
        yield server


def ask(server: Server, path: str, **headers: str) -> http.client.HTTPResponse:
    """One request, its answer read."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    connection.request("GET", path, headers={name.replace("_", "-"): value for name, value in headers.items()})
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer


UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec_WebSocket_Key": "x" * 22 + "==",
    "Sec_WebSocket_Version": "13",
}


@pytest.mark.parametrize(
    "asked", ["/", "/?query=delays", "/?token=wrong", "/?token=", "/static/js/bokeh.min.js", "/no"]
)
def test_without_the_token_nothing_is_shown(server: Server, asked: str) -> None:
    """Neither the page nor its scripts nor what does not exist."""
    assert ask(server, asked).status == 403


def test_a_websocket_needs_the_token_and_a_page_of_this_server(server: Server) -> None:
    """The right cookie, and not called by another site's page."""
    cookie = f"streamstate-{server.port}=secret"
    other = {"Origin": "http://evil.example"}
    assert ask(server, "/ws", **UPGRADE).status == 403
    assert ask(server, "/ws", Cookie=f"streamstate-{server.port}=wrong", **UPGRADE).status == 403
    assert ask(server, "/ws", Cookie=cookie, **UPGRADE, **other).status == 403
    assert ask(server, "/ws", Cookie=cookie, **UPGRADE).status != 403


def test_the_token_becomes_a_cookie_and_leaves_the_address(server: Server) -> None:
    """A link can be followed with it; the rest of the link stays; no script and no other site gets the cookie."""
    answer = ask(server, "/?query=delays&token=secret&epoch=2")
    assert (answer.status, answer.headers["Location"]) == (302, "/?query=delays&epoch=2")
    cookie = answer.headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert ask(server, "/", Cookie=cookie.split(";")[0]).status == 200


def test_a_redirect_stays_here(server: Server) -> None:
    """An address that looks like another machine's is a path of this one."""
    assert ask(server, "//evil.example/?token=secret").headers["Location"] == "/evil.example/"


def test_another_name_for_this_machine_is_refused(path: Path) -> None:
    """Also without a token: a page elsewhere may have its name mean this machine."""
    with serve(path, token="") as server:
        assert ask(server, "/").status == 200
        assert ask(server, "/", Host=f"evil.example:{server.port}").status == 403


def test_others_need_a_token(path: Path) -> None:
    """Where other machines can reach it, there is no page without one."""
    with pytest.raises(InvalidArgumentError, match="token"):
        serve(path, token="", host="0.0.0.0")


def test_a_port_that_is_taken_is_said(path: Path, server: Server) -> None:
    """And leaves no thread."""
    before = set(threading.enumerate())
    with pytest.raises(StoreError, match="another port"):
        serve(path, port=server.port)
    assert set(threading.enumerate()) <= before


def test_stopping_leaves_nothing(path: Path) -> None:
    """No thread and no port; stopping twice is once."""
    before = set(threading.enumerate())
    server = serve(path)
    assert ask(server, server.url.partition(f":{server.port}")[2]).status == 302
    server.stop()
    server.stop()
    assert set(threading.enumerate()) <= before
    with pytest.raises(OSError, match="refused"):
        ask(server, "/")


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | st.dates()
    | st.datetimes(timezones=st.just(dt.UTC))
    | st.decimals(allow_nan=False),
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(st.text(), st.integers(0, 10**9), st.dictionaries(st.text(), values, min_size=1))
def test_an_address_names_what_it_was_made_of(query: str, epoch: int, key: dict[str, Any]) -> None:
    """Any names, any key that state can have: written and read again it is the same."""
    query = query.encode("utf-8", "ignore").decode() or "q"
    address = Address(query, "browser", "op0", epoch, (1, 2), key)
    assert Address.read(address.text()) == address


@given(st.text())
def test_an_address_can_be_anything(text: str) -> None:
    """What is not understood is left out."""
    Address.read(text)
    assert Address.read(f"?epoch={text}&between={text}").query is None


@pytest.mark.parametrize(
    "key", ['{"a":{"$time":"never"}}', '{"$decimal":"x"}', "[1]", "{", "[" * 5_000, '{"a":{"$struct":3}}', "{}"]
)
def test_a_key_that_makes_no_sense_is_none(key: str) -> None:
    """Whoever wrote the link."""
    assert Address.read(f"key={key}").key is None


def test_a_key_keeps_its_types() -> None:
    """A number is no text, and a decimal no number."""
    key = {"a": 1, "b": "1", "c": Decimal("1.0")}
    assert Address.read(Address("q", key=key).text()).key == key


def test_many_viewers_ask_for_the_queries_once() -> None:
    """What all of them show is looked up for all of them."""
    asked: list[int] = []

    def queries() -> list[str]:
        asked.append(1)
        return ["delays"]

    catalogue = Catalogue(queries)
    assert [catalogue.queries() for _ in range(20)] == [["delays"]] * 20
    assert len(asked) == 1


def test_the_head_links_to_queries_and_marks_the_current(path: Path) -> None:
    """Each link is an address that can be opened by itself."""
    store = ss.open_store(path)
    message = PageModel(store, Catalogue(store.queries)).drawing(Address("delays", epoch=2)).message
    assert message["queries"] == [{"name": "delays", "address": "?query=delays", "current": True}]
    assert message["sections"][0]["address"] == "?query=delays&section=browser&epoch=2"


WITHOUT_SPARK = """
import sys, urllib.request
sys.modules["pyspark"] = None  # importing it fails
from streamstate.widgets.page import serve
with serve({path!r}, token="") as server:
    print(urllib.request.urlopen(server.url).status)
"""


def test_it_needs_no_spark(path: Path) -> None:
    """Not even its package."""
    ran = subprocess.run(
        [sys.executable, "-c", WITHOUT_SPARK.format(path=str(path))], capture_output=True, text=True, check=False
    )
    assert (ran.stdout, ran.returncode) == ("200\n", 0), ran.stderr


def test_the_command_serves_until_it_is_told_to_stop(path: Path) -> None:
    """It prints where, with the token, and ends well."""
    command = [sys.executable, "-m", "streamstate", "serve", str(path), "--token", "t"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = wait_until(lambda: next(each for each in process.stdout or () if "http" in each), "the address")
        assert line.strip().endswith("/?token=t")
        process.terminate()
        rest, errors = process.communicate(timeout=30)
    assert process.returncode == 0
    assert "Traceback" not in errors
    assert rest.endswith("Stopped.\n")


def test_the_command_says_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In a line, not a traceback; what makes no sense is refused with what does."""
    assert main(["serve", str(tmp_path / "none")]) == 1
    assert capsys.readouterr().err.startswith("streamstate: ")
    with pytest.raises(SystemExit):
        main(["serve", "x", "--port", "99999"])
    assert "0 to 65535" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["serve", "x", "--storage-option", "region"])
    assert "K=V" in capsys.readouterr().err
