"""A store served as a page: who may see it, what its URLs mean, and that stopping it leaves nothing behind."""

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
from served_viewer import Tab, Visitor

import streamstate as ss
from streamstate.command_line import main
from streamstate.errors import InvalidArgumentError, StoreError
from streamstate.widgets.page import Server, serve
from streamstate.widgets.page.address import Address
from streamstate.widgets.page.head import Catalogue, PageModel
from streamstate.widgets.page.statements import Statements


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with the query ``delays``."""
    path = tmp_path_factory.mktemp("served") / "store"
    flights(path)
    return path


@pytest.fixture(scope="module")
def server(path: Path) -> Iterator[Server]:
    """The store, served with the token ``secret``."""
    with serve(path, token="secret") as server:
        yield server


def request(server: Server, path: str, **headers: str) -> http.client.HTTPResponse:
    """Send one request and read its response."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=300)
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
    "url_path", ["/", "/?query=delays", "/?token=wrong", "/?token=", "/static/js/bokeh.min.js", "/no"]
)
def test_nothing_is_shown_without_the_token(server: Server, url_path: str) -> None:
    """Neither the page nor its scripts are served; unknown paths are refused the same way."""
    assert request(server, url_path).status == 403


def test_a_websocket_needs_the_cookie_and_the_servers_origin(server: Server) -> None:
    """The cookie has to be right, and the request must not come from another site's page."""
    cookie = request(server, "/?token=secret").headers["Set-Cookie"].split(";")[0]
    foreign_origin = {"Origin": "http://evil.example"}
    assert request(server, "/ws", **UPGRADE).status == 403
    for wrong in ("wrong", "secret"):
        assert request(server, "/ws", Cookie=f"streamstate-{server.port}={wrong}", **UPGRADE).status == 403
    assert request(server, "/ws", Cookie=cookie, **UPGRADE, **foreign_origin).status == 403
    assert request(server, "/ws", Cookie=cookie, **UPGRADE).status != 403


def test_the_token_moves_from_the_url_to_a_cookie(server: Server) -> None:
    """The rest of the link is kept; scripts and other sites cannot read the cookie."""
    answer = request(server, "/?query=delays&token=secret&epoch=2")
    assert (answer.status, answer.headers["Location"]) == (302, "/?query=delays&epoch=2")
    cookie = answer.headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert "secret" not in cookie
    assert request(server, "/", Cookie=cookie.split(";")[0]).status == 200


def test_a_redirect_stays_on_this_server(server: Server) -> None:
    """A path that looks like the URL of another host stays a path of this one."""
    assert request(server, "//evil.example/?token=secret").headers["Location"] == "/evil.example/"


def test_an_unknown_host_name_is_rejected(path: Path) -> None:
    """This also holds without a token, because of DNS rebinding."""
    with serve(path, token="") as server:
        assert request(server, "/").status == 200
        assert request(server, "/", Host=f"evil.example:{server.port}").status == 403


def test_a_token_is_required_if_other_machines_can_connect(path: Path) -> None:
    """The page is not served without one."""
    with pytest.raises(InvalidArgumentError, match="token"):
        serve(path, token="", host="0.0.0.0")


def test_a_port_in_use_is_reported(path: Path, server: Server) -> None:
    """No thread remains."""
    before = set(threading.enumerate())
    with pytest.raises(StoreError, match="another port"):
        serve(path, port=server.port)
    assert set(threading.enumerate()) <= before


def test_stopping_frees_threads_and_port(path: Path) -> None:
    """Stopping twice is allowed."""
    before = set(threading.enumerate())
    server = serve(path)
    assert request(server, server.url.partition(f":{server.port}")[2]).status == 302
    server.stop()
    server.stop()
    assert set(threading.enumerate()) <= before
    with pytest.raises(OSError, match="refused"):
        request(server, "/")


def test_a_view_that_opens_while_the_page_loads_is_shown(server: Server) -> None:
    """The page has pulled the document, without the view, and has not yet reported that it is loaded."""
    with Tab(Visitor(server), loading=2) as tab:
        assert tab.shown()["page"]["rows"]


def test_stopping_ends_the_views_of_open_tabs(path: Path) -> None:
    """A tab's views draw on threads of their own, which end with the server."""
    before = set(threading.enumerate())
    with serve(path) as server:
        tab = Tab(Visitor(server))
        tab.shown()
    tab.close()
    wait_until(lambda: not set(threading.enumerate()) - before, "the threads to end", timeout=20)


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


@pytest.mark.slow
@given(st.text(), st.integers(0, 10**9), st.dictionaries(st.text(), values, min_size=1))
def test_an_address_survives_a_round_trip(query: str, epoch: int, key: dict[str, Any]) -> None:
    """Any name and any key of a state table can be written to a URL and read back."""
    query = query.encode("utf-8", "ignore").decode() or "q"
    address = Address(query, "browser", "op0", epoch, (1, 2), key)
    assert Address.read(address.text()) == address


@given(st.text())
def test_any_address_can_be_parsed(text: str) -> None:
    """Parts that cannot be parsed are left out."""
    Address.read(text)
    assert Address.read(f"?epoch={text}&between={text}").query is None


@pytest.mark.parametrize(
    "key", ['{"a":{"$time":"never"}}', '{"$decimal":"x"}', "[1]", "{", "[" * 5_000, '{"a":{"$struct":3}}', "{}"]
)
def test_an_invalid_key_in_an_address_is_ignored(key: str) -> None:
    """Links can come from anywhere."""
    assert Address.read(f"key={key}").key is None


def test_a_key_keeps_its_types() -> None:
    """A number is not read as text, nor a decimal as a float."""
    key = {"a": 1, "b": "1", "c": Decimal("1.0")}
    assert Address.read(Address("q", key=key).text()).key == key


def test_viewers_share_one_lookup_of_the_queries(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The list of queries is read once for all viewers."""
    lookups: list[int] = []

    def queries() -> list[str]:
        lookups.append(1)
        return ["delays"]

    store = ss.open_store(path)
    monkeypatch.setattr(store, "queries", queries)
    catalogue = Catalogue(store, Statements(store))
    assert [catalogue.queries() for _ in range(20)] == [["delays"]] * 20
    assert len(lookups) == 1


def test_the_header_links_to_queries_and_marks_the_current_one(path: Path) -> None:
    """Each link is a URL that can be opened directly."""
    store = ss.open_store(path)
    message = PageModel(Catalogue(store, Statements(store))).drawing(Address("delays", epoch=2)).message
    assert message["queries"] == [{"name": "delays", "address": "?query=delays", "current": True}]
    assert message["sections"][0]["address"] == "?query=delays&section=browser&epoch=2"


WITHOUT_SPARK = """
import sys, urllib.request
sys.modules["pyspark"] = None  # importing it fails
from streamstate.widgets.page import serve
with serve({path!r}, token="") as server:
    print(urllib.request.urlopen(server.url).status)
"""


@pytest.mark.slow
def test_serving_does_not_import_spark(path: Path) -> None:
    """The pyspark package is not imported."""
    ran = subprocess.run(
        [sys.executable, "-c", WITHOUT_SPARK.format(path=str(path))], capture_output=True, text=True, check=False
    )
    assert (ran.stdout, ran.returncode) == ("200\n", 0), ran.stderr


@pytest.mark.slow
def test_the_command_serves_until_it_is_stopped(path: Path) -> None:
    """It prints the URL with the token, and exits with status 0."""
    command = [sys.executable, "-m", "streamstate", "serve", str(path), "--token", "t"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = wait_until(lambda: next(text for text in process.stdout or () if "http" in text), "the address")
        assert line.strip().endswith("/?token=t")
        process.terminate()
        rest, errors = process.communicate(timeout=300)
    assert process.returncode == 0
    assert "Traceback" not in errors
    assert rest.endswith("Stopped.\n")


def test_the_command_reports_errors_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """There is no traceback. The message for an invalid option shows the valid form, and not the given value."""
    assert main(["serve", str(tmp_path / "none")]) == 1
    assert capsys.readouterr().err.startswith("streamstate: ")
    with pytest.raises(SystemExit):
        main(["serve", "x", "--port", "99999"])
    assert "0 to 65535" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["serve", "x", "--storage-option", "hushhush"])
    message = capsys.readouterr().err
    assert "K=V" in message
    assert "hushhush" not in message


def test_an_empty_token_is_rejected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither an unset variable nor an empty file opens the page to everyone."""
    empty = tmp_path / "token"
    empty.write_text("\n")
    for option in (["--token", ""], ["--token-file", str(empty)]):
        assert main(["serve", "x", *option]) == 1
        assert "is empty" in capsys.readouterr().err
    monkeypatch.setenv("STREAMSTATE_TOKEN", "")
    assert main(["serve", "x"]) == 1
    assert "STREAMSTATE_TOKEN is empty" in capsys.readouterr().err


def test_secrets_come_from_files_and_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other users can see command lines. An option overrides the file, and the file overrides the variable."""
    from streamstate.command_line import parser
    from streamstate.command_line.arguments import storage_options
    from streamstate.command_line.serve import token

    (tmp_path / "token").write_text("from file\n")
    (tmp_path / "options").write_text("# the store's\nAWS_REGION = eu\n\nAWS_SECRET_ACCESS_KEY=a=b\n")
    monkeypatch.setenv("STREAMSTATE_TOKEN", "from environment")

    def given(*options: str) -> Any:
        return parser().parse_args(["serve", "x", *options])

    assert token(given()) == "from environment"
    assert token(given("--token-file", str(tmp_path / "token"))) == "from file"
    assert token(given("--token", "from line")) == "from line"
    assert token(given("--no-token")) == ""
    file = ["--storage-options-file", str(tmp_path / "options")]
    assert storage_options(given(*file, "--storage-option", "AWS_REGION=us")) == {
        "AWS_REGION": "us",
        "AWS_SECRET_ACCESS_KEY": "a=b",
    }
