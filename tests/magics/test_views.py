"""What ``%state`` shows: a query's timeline and dashboard, a whole store, and a store as a page."""

from __future__ import annotations

from pathlib import Path
from urllib.request import HTTPCookieProcessor, build_opener

import pytest
from notebook_shell import Shell, bare_shell  # noqa: F401 (a fixture)
from synthetic import write

from streamstate.extension import unload
from streamstate.magics.state import STATE
from streamstate.snapshots.errors import InvalidArgumentError, NotAStoreError


@pytest.fixture
def reader(bare_shell: Shell, tmp_path: Path) -> Shell:
    """A shell that uses a store with one query ``q``."""
    write(tmp_path / "s", [{"a": epoch} for epoch in range(3)])
    bare_shell.run(f"%config StreamState.store = {str(tmp_path / 's')!r}")
    return bare_shell


def test_a_line_without_a_name_is_about_the_store() -> None:
    """Options of one query need its name."""
    assert STATE.parser.parse_line("").relation is None
    assert STATE.parser.parse_line("--store elsewhere").store == "elsewhere"
    assert STATE.parser.parse_line("q --timeline").timeline
    assert STATE.parser.parse_line("q --dashboard -o view").output == "view"


def test_serve_is_a_verb_and_a_query_of_that_name_is_still_reached() -> None:
    """With its table."""
    served = STATE.parser.parse_line("serve here --port 8899")
    assert (served.verb, served.store, served.port, served.stop) == ("serve", "here", 8899, False)
    assert STATE.parser.parse_line("serve.op0 --at 3").relation == "serve.op0"


@pytest.mark.parametrize(("line", "kind"), [("q", "StateBrowser"), ("q --timeline", "Timeline")])
def test_a_query_is_shown(reader: Shell, line: str, kind: str) -> None:
    """As the view that was asked for, which -o and an assignment keep as well."""
    _needs(kind)
    assert type(reader.run(f"%state {line} -o kept")).__name__ == kind
    assert type(reader.names["kept"]).__name__ == kind
    reader.run(f"mine = %state {line}")
    assert type(reader.names["mine"]).__name__ == kind


@pytest.mark.parametrize(("line", "kind"), [("q --dashboard", "QueryDashboard"), ("", "StoreOverview")])
def test_a_dashboard_and_a_store_are_shown(reader: Shell, line: str, kind: str) -> None:
    """Likewise."""
    _needs(kind)
    assert type(reader.run(f"%state {line}")).__name__ == kind


def test_a_store_that_is_not_there_says_so(bare_shell: Shell) -> None:
    """Before anything to look at is loaded."""
    assert "is not a store" in bare_shell.fails("%state", NotAStoreError)
    assert "serves nothing" in bare_shell.fails("%state serve --stop", InvalidArgumentError)


def test_a_store_is_served_once_until_it_is_stopped(reader: Shell, tmp_path: Path) -> None:
    """The same line again shows where; another store needs the first to be stopped; unloading stops it."""
    pytest.importorskip("streamstate.widgets.page")
    reader.run("%state serve -o server")
    url = reader.names["server"].url
    assert url in reader.said
    with build_opener(HTTPCookieProcessor()).open(url) as answer:
        assert answer.status == 200
    reader.run("%state serve")
    assert url in reader.said
    write(tmp_path / "other", [{"a": 1}])
    assert "--stop" in reader.fails("%state serve other", InvalidArgumentError)
    reader.run("%state serve --stop")
    assert "no longer served" in reader.said
    reader.run("%state serve -o server")
    url = reader.names["server"].url
    unload(reader.ipython)
    with pytest.raises(OSError, match="refused"):
        build_opener().open(url)


def _needs(kind: str) -> None:
    """Views that this installation lacks are not tested."""
    widgets = pytest.importorskip("streamstate.widgets")
    if not hasattr(widgets, kind):
        pytest.skip(f"there is no {kind} here")
