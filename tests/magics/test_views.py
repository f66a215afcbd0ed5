"""The views of ``%state``: browser, timeline, dashboard, store overview, and the served page."""

from __future__ import annotations

from pathlib import Path
from urllib.request import HTTPCookieProcessor, build_opener

import pytest
from notebook_shell import Shell, bare_shell  # noqa: F401 (a fixture)
from synthetic import copy_of, write

from streamstate.errors import InvalidArgumentError, NotAStoreError
from streamstate.extension import unload
from streamstate.magics.state import STATE


@pytest.fixture
def reader(bare_shell: Shell, tmp_path: Path) -> Shell:
    """A shell that uses a store with the query ``q``."""
    copy_of(tmp_path / "s", [{"a": epoch} for epoch in range(3)])
    bare_shell.run(f"%config StreamState.store = {str(tmp_path / 's')!r}")
    return bare_shell


def test_options_are_parsed_with_and_without_a_name() -> None:
    """The name of a query is optional."""
    assert STATE.parser.parse_line("").name is None
    assert STATE.parser.parse_line("--store elsewhere").store == "elsewhere"
    assert STATE.parser.parse_line("timeline").name is None
    line = STATE.parser.parse_line("q dashboard -o view")
    assert (line.name, line.verb.name, line.output) == ("q", "dashboard", "view")


def test_serve_is_a_verb() -> None:
    """A query with that name can be read through its table."""
    line = STATE.parser.parse_line("serve here --port 8899")
    assert (line.verb.name, line.store, line.port, line.stop) == ("serve", "here", 8899, False)
    assert STATE.parser.parse_line("serve.op0 at 3").name == "serve.op0"


@pytest.mark.parametrize(("line", "kind"), [("q", "StateBrowser"), ("q timeline", "Timeline")])
def test_a_query_is_shown(reader: Shell, line: str, kind: str) -> None:
    """The requested view can be assigned with -o or in Python."""
    _needs(kind)
    assert type(reader.run(f"%state {line} -o kept")).__name__ == kind
    assert type(reader.names["kept"]).__name__ == kind
    reader.run(f"mine = %state {line}")
    assert type(reader.names["mine"]).__name__ == kind


@pytest.mark.parametrize(
    ("line", "kind"), [("q dashboard", "QueryDashboard"), ("timeline", "Timeline"), ("", "StoreOverview")]
)
def test_a_dashboard_and_a_store_are_shown(reader: Shell, line: str, kind: str) -> None:
    """Both are views."""
    _needs(kind)
    assert type(reader.run(f"%state {line}")).__name__ == kind


def test_the_browser_is_saved(reader: Shell, tmp_path: Path) -> None:
    """To a file that is not replaced unless that is asked for."""
    reader.run("%state q save browser.html --epochs 1..2 -o report")
    assert list(reader.names["report"].epochs) == [1, 2]
    assert "<html" in (tmp_path / "browser.html").read_text(encoding="utf-8")
    assert "--overwrite" in reader.fails("%state q save browser.html", InvalidArgumentError)
    reader.run("%state q save browser.html --overwrite")


def test_a_missing_store_is_an_error(bare_shell: Shell) -> None:
    """The store is opened before a view is created, and there is no server to stop."""
    assert "is not a store" in bare_shell.fails("%state", NotAStoreError)
    assert "serves no store" in bare_shell.fails("%state serve --stop", InvalidArgumentError)


def test_a_store_is_served_once_until_it_is_stopped(reader: Shell, tmp_path: Path) -> None:
    """The same line prints the URL again, and another store is refused. Unloading stops the server."""
    pytest.importorskip("streamstate.widgets.page")
    reader.run("%state serve -o server")
    url = reader.names["server"].url
    assert url in reader.printed
    with build_opener(HTTPCookieProcessor()).open(url) as response:
        assert response.status == 200
    reader.run("%state serve")
    assert url in reader.printed
    write(tmp_path / "other", [{"a": 1}])
    assert "--stop" in reader.fails("%state serve other", InvalidArgumentError)
    reader.run("%state serve --stop")
    assert "no longer served" in reader.printed
    reader.run("%state serve -o server")
    url = reader.names["server"].url
    unload(reader.ipython)
    with pytest.raises(OSError, match="refused"):
        build_opener().open(url)


def _needs(kind: str) -> None:
    """Skip the test if the view is not installed."""
    widgets = pytest.importorskip("streamstate.widgets")
    if not hasattr(widgets, kind):
        pytest.skip(f"{kind} is not available")
