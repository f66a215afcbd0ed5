"""Queries of a Spark Connect server are started, captured and watched by a client that has no JVM."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from typing import Any

import pytest

from project import connect_queries
from project.connect_server import connect_server

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

TOTALS = dict(sum((Counter({row["k"]: row["v"]}) for row in connect_queries._ROWS), Counter()))


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The observations of a client, up to the end of its server."""
    folder = tmp_path_factory.mktemp("connect")
    (folder / "client").mkdir()
    with connect_server(folder) as (address, server):
        command = [sys.executable, connect_queries.__file__, address, str(server.pid), str(folder / "client")]
        client = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, timeout=500)
    return dict(json.loads(line) for line in client.stdout.splitlines())


def test_the_session_is_that_of_the_client(seen: dict[str, Any]) -> None:
    """No other is started; settings that are fixed when the server starts are refused."""
    assert seen["session"] is True
    assert seen["setting"].startswith("SessionError: Spark is running, and these settings cannot be changed")


@pytest.mark.parametrize("name", ["temporary", "given"])
def test_a_query_leads_to_its_checkpoint(seen: dict[str, Any], name: str) -> None:
    """Its plan names it, with a location of its own or without; the capture ends with the query."""
    found = seen[name]
    assert (found["is its"], found["name"], found["capture"], found["rows"]) == (True, name, "stopped", TOTALS)
    assert found["input rows"] == [20, 20, 20]
    assert found["load"] == {"rows": [20, 20, 20], "known": True, "tasks": 0}
    if name == "given":
        assert found["path"].endswith("/a [check] point, runId = 1")
        assert found["after the end"] == f"no error: {found['path']!r}"
    else:
        assert "this machine does not have that folder" in found["after the end"]


def test_a_query_without_a_checkpoint_to_capture_says_why(seen: dict[str, Any]) -> None:
    """It keeps no state, or has planned no batch yet, or has ended before."""
    assert seen["stateless"] == "NoStateError: stateless keeps no state, so there is nothing to capture."
    assert seen["idle"].startswith("WaitTimeoutError: idle planned no batch within 0.5 s")
    assert seen["ended"].startswith("QueryError: idle ended before it planned a batch")


def test_a_client_starts_queries(seen: dict[str, Any]) -> None:
    """They run in the server, are captured by path, stopped and resumed."""
    found = seen["started"]
    assert (found["waited"], found["state"], found["rows"], found["then"]) == (2, "running", 5, "stopped")
    assert (found["again"], found["finished"], found["captured"], found["active"]) == (2, "finished", TOTALS, [])
    assert found["described"] == "no error: None"
    assert "is in use by started" in found["taken"]
    assert found["no state"].startswith("NoStateError: ")
    assert "append" in found["mode"]
    assert "is a batch DataFrame" in found["batch"]


def test_magics_start_and_list_queries(seen: dict[str, Any]) -> None:
    """Cells of Python and of SQL; queries that are not captured are listed too."""
    found = seen["magics"]
    assert found["errors"] == {}
    assert found["rows"] == [TOTALS, TOTALS]
    assert "Through Spark Connect, cell has no plan yet." in found["printed"]
    assert "not captured" in found["printed"]


def test_what_needs_a_jvm_says_so(seen: dict[str, Any]) -> None:
    """A frame of Spark Connect is called that."""
    assert {name: text for name, text in seen["refused"].items() if "uses Spark Connect" not in text} == {}


def test_a_server_that_goes_away_ends_its_queries(seen: dict[str, Any]) -> None:
    """Each call says so within seconds, and what was captured stays."""
    found = seen["lost"]
    assert (found["state"], found["capture"], found["epoch"], found["rows"]) == ("failed", "stopped", 2, TOTALS)
    texts = [found[name] for name in ("error", "wait", "checkpoint", "session", "start")]
    assert [text for text in texts if "does not answer" not in text] == []
    assert found["seconds"] < 60
