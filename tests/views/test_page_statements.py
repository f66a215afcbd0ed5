"""SQL of a page's viewers: the same statements as in a notebook, with limits that no statement can exceed."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import psutil
import pytest
from browser.lab import wait_until
from browser.stores import flights
from served_viewer import Tab, Visitor

import streamstate as ss
from streamstate.reports import Store
from streamstate.state_inspect.temporal_index.query_interrupts import QueryStopped, RunningStatements
from streamstate.widgets.page import serve, statement_worker, statements
from streamstate.widgets.page.address import Address
from streamstate.widgets.page.statements import Statements

ATTACKS = {
    "many rows": "SELECT count(*) FROM delays a, delays b, delays c, delays d, delays e, delays f, delays g",
    "endless": "WITH RECURSIVE t AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM t) SELECT count(*) FROM t",
    "a long list": "SELECT len(range(5000000000))",
    "long text": "SELECT len(repeat(repeat('x', 100000000), 100))",
    "long texts": "SELECT string_agg(repeat('x', 10000000), '') FROM range(1000)",
    "doubling": "WITH RECURSIVE t AS (SELECT 'x' AS s UNION ALL SELECT s || s FROM t) SELECT max(len(s)) FROM t",
    "sorting": "SELECT * FROM range(2000000000) AS t(i) ORDER BY sha256(i::text)",
    "a wide result": f"SELECT {', '.join(['repeat($$x$$, 100000)'] * 100)} FROM range(1000)",
    "deep": "SELECT " + "(" * 1_900 + "1" + ")" * 1_900,
}
REFUSED = {
    "a file": "SELECT * FROM read_text('/etc/hostname')",
    "a setting": "SELECT current_setting('home_directory')",
    "the environment": "SELECT getenv('HOME')",
    "a write": "CREATE TABLE x AS SELECT 1",
    "two": "SELECT 1; SELECT 2",
    "the index": 'SELECT * FROM "delays/op0"',
    "input": "FROM delays.inputs",
}
MOST = 2_500_000_000
"""Bytes of memory that a process with a statement never has."""
SECONDS = 3.0
"""The time that a statement may take here."""
WORKER = f"from streamstate.widgets.page import statement_worker as it; it.SECONDS = {SECONDS}; it.main()"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """A store with the query ``delays``."""
    path = tmp_path_factory.mktemp("stated") / "store"
    flights(path)
    return ss.open_store(path)


@pytest.fixture(scope="module")
def running(store: Store) -> Iterator[Statements]:
    """The runner of statements over the store, whose processes allow them less time."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(statements, "_COMMAND", [sys.executable, "-P", "-c", WORKER])
        running = Statements(store)
        yield running
        running.close()


def test_a_statement_has_the_rows_of_the_store(running: Statements, store: Store) -> None:
    """Past epochs too, with two columns of one name; the answer says which epochs were read."""
    text = "SELECT carrier, count(*) AS n, sum(flights) AS n FROM delays VERSION AS OF 2 GROUP BY carrier ORDER BY 1"
    found = running.run(text)
    expected = store.sql(text).to_arrow()
    assert (found["columns"], found["epochs"], found["more"]) == (["carrier", "n", "n"], {"delays": [2]}, False)
    columns = [column.to_pylist() for column in expected.columns]
    assert [[cell["text"] for cell in row] for row in found["rows"]] == [
        [str(value) for value in row] for row in zip(*columns, strict=True)
    ]


def test_a_result_is_cut_to_its_first_rows(running: Statements) -> None:
    """And to about a megabyte."""
    many = running.run("SELECT range AS i FROM range(5000)")
    assert (len(many["rows"]), many["more"]) == (statement_worker.ROWS, True)
    wide = running.run(f"SELECT {', '.join(['i + 10000000000000000'] * 900)} FROM range(1000) t(i)")
    assert 0 < len(wide["rows"]) < statement_worker.ROWS
    assert wide["more"]


@pytest.mark.parametrize("text", REFUSED.values(), ids=[*REFUSED])
def test_a_statement_reads_relations_only(running: Statements, text: str) -> None:
    """The policy is that of ``store.sql``."""
    assert running.run(text)["problem"]


@pytest.mark.slow
@pytest.mark.parametrize("text", ATTACKS.values(), ids=[*ATTACKS])
def test_an_expensive_statement_harms_nobody(running: Statements, text: str) -> None:
    """It ends within its time and its memory, with a reason; the next statement runs."""
    peak = [0]
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.02):
            for child in psutil.Process().children():
                try:
                    peak[0] = max(peak[0], child.memory_info().rss)
                except psutil.NoSuchProcess:
                    continue

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    began = time.monotonic()
    found = running.run(text)
    took = time.monotonic() - began
    done.set()
    watcher.join()
    assert found.get("problem") or found["rows"]
    assert took < 3 * statement_worker.SECONDS
    assert peak[0] < MOST
    assert running.run("SELECT 1 AS one")["columns"] == ["one"]


def test_a_statement_that_takes_too_long_is_stopped(running: Statements, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that does not stop by itself: then its process is killed."""
    monkeypatch.setattr(statements, "SECONDS", 0.5)
    monkeypatch.setattr(statements, "_GRACE", 0.0)
    running.run("SELECT 1")
    assert "it took too long" in running.run(ATTACKS["endless"])["problem"]


@pytest.mark.slow
def test_a_newer_request_ends_a_statement(running: Statements) -> None:
    """At once, long before its time is over."""
    running.run("SELECT 1")
    task, ended = RunningStatements(), []

    def work() -> None:
        try:
            with task.active():
                running.run(ATTACKS["endless"])
        except QueryStopped:
            ended.append("stopped")

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    wait_until(lambda: any(child.cpu_percent(0.1) > 20 for child in psutil.Process().children()), "the statement", 60)
    task.stop()
    thread.join(5)
    assert ended == ["stopped"]
    assert running.run("SELECT 2 AS two")["columns"] == ["two"]


def test_only_some_statements_run_at_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that finds no process in time says so."""
    monkeypatch.setattr(statements, "_WAIT", 0.05)
    busy = Statements(store)
    taken = [busy._free.get() for _ in range(statements.PROCESSES)]
    assert "of other viewers" in busy.run("SELECT 1")["problem"]
    for process in taken:
        busy._free.put(process)
    busy.close()


@pytest.mark.slow
def test_closing_leaves_no_process_and_no_file(store: Store) -> None:
    """Also if a statement was killed."""
    before = {child.pid for child in psutil.Process().children()}
    closing = Statements(store)
    closing.run("SELECT 1")
    folder = closing._processes[-1]._folder
    assert folder is not None
    assert Path(folder.name).exists()
    closing._processes[-1].interrupt()
    closing.close()
    closing.close()
    assert not Path(folder.name).exists()
    assert {child.pid for child in psutil.Process().children()} <= before


@pytest.mark.slow
def test_a_store_that_is_gone_is_reported(tmp_path: Path) -> None:
    """The process says why it cannot open it."""
    flights(tmp_path / "store")
    gone = Statements(ss.open_store(tmp_path / "store"))
    (tmp_path / "store").rename(tmp_path / "elsewhere")
    assert "is not a store" in gone.run("SELECT 1")["problem"]
    gone.close()


@pytest.fixture(scope="module")
def visitor(store: Store) -> Iterator[Visitor]:
    """A viewer of the served store."""
    with serve(store) as server:
        yield Visitor(server)


def answered(tab: Tab, number: int = 0) -> dict[str, Any]:
    """The first drawing of the SQL tab with the result of its statement."""
    while (seen := tab.shown(number, part="relations"))["busy"]:
        pass
    return seen


def test_the_address_of_a_statement_shows_its_result(visitor: Visitor) -> None:
    """After a drawing without it; the relations of the query are listed, and pages can be turned."""
    text = "SELECT carrier, flights FROM delays VERSION AS OF 2 ORDER BY carrier, flights"
    at = Address("delays", "sql", view={"sql": text, "size": "10", "page": "1"})
    with Tab(visitor, at.text()) as tab:
        seen = tab.shown(part="relations")
        assert seen["busy"]
        assert seen["relations"] == [{"name": "delays.op0", "columns": ["carrier", "origin", "flights", "mean"]}]
        seen = answered(tab)
        assert (seen["columns"], seen["offset"], seen["total"]) == (["carrier", "flights"], 10, 27)
        assert seen["summary"] == "27 rows · delays at epoch 2"
        assert len(seen["rows"]) == 10
        seen = answered(tab, tab.do("page", 2))
        assert (seen["offset"], len(seen["rows"])) == (20, 7)


@pytest.mark.slow
def test_a_statement_that_is_run_is_in_the_address(visitor: Visitor) -> None:
    """The tab shows a statement's error."""
    with Tab(visitor, "?query=delays&section=sql") as tab:
        assert tab.shown(part="relations")["selection"]["sql"] == ""
        seen = answered(tab, tab.do("run", "SELECT nothing FROM delays"))
        assert "carrier, origin, flights, mean" in seen["problem"]
        seen = answered(tab, tab.do("run", "SELECT 1 --" + "x" * 5_000))
        assert "at most 4,000" in seen["problem"]
        tab.do("run", "SELECT max(flights) FROM delays")
        assert parse_qs(tab.address("max")[1:])["sql"] == ["SELECT max(flights) FROM delays"]
