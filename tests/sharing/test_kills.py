"""A serving process is killed at any moment and started again: no file is torn, and the subscriber goes on."""

from __future__ import annotations

import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import synthetic

import streamstate as ss
from streamstate.sharing.granted_view import GrantedView
from streamstate.sharing.recipients import Recipients
from streamstate.sharing.replica import COPY
from streamstate.sharing.server import ENDPOINT
from streamstate.state_inspect.store import Store

COLUMNS = (["key", "value"], ["value"])


@contextmanager
def serving(store: Store, port: int) -> Iterator[subprocess.Popen[str]]:
    """A process that serves a store, which is killed at the end of the block."""
    command = [sys.executable, "-m", "streamstate", "share", "serve", store.path, "--port", str(port), "--rate", "1e6"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        try:
            yield process
        finally:
            process.kill()
    assert process.returncode == -signal.SIGKILL  # it did not end by itself


def listens(process: subprocess.Popen[str]) -> None:
    """Wait until the process serves."""
    assert process.stdout is not None
    assert any("http" in line for line in process.stdout)


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def check_files(store: Store, checked: set[Path]) -> None:
    """Each file that was made since the last check has exactly the changes of the view that it is named after."""
    views = {
        contract.terms.grant(table): GrantedView(store["q"], table)
        for contract in store.contracts()
        for table in contract.terms.tables
    }
    files = {*Path(store.path.removeprefix("file://"), "_sharing", "files").glob("*/*.parquet")} - checked
    for file in files:
        before, epoch = file.stem.split("-")
        expected = views[file.parent.name].changes(int(before) if before else None, int(epoch))
        assert pq.read_table(file).equals(expected.replace_schema_metadata(None)), file
    checked |= files


@pytest.mark.parametrize(
    "kills",
    [
        pytest.param(2, marks=pytest.mark.slow),
        pytest.param(30, marks=[pytest.mark.exhaustive, pytest.mark.timeout(3600)]),
    ],
)
def test_a_serving_process_that_is_killed(tmp_path: Path, kills: int) -> None:
    """While it starts, makes files of a view that is new each time, and answers; epochs are added meanwhile."""
    chosen, port, checked = random.Random(29), free_port(), set[Path]()
    states = list[synthetic.State | None]([{"a": 1}])
    synthetic.write(tmp_path / "store", states)
    store = ss.open_store(tmp_path / "store")
    token = Recipients(store.layout).issue("partner")
    theirs = ss.open_share(token.profile(f"http://127.0.0.1:{port}{ENDPOINT}"), cache=tmp_path / "copy", refresh=False)
    with theirs.follow(0.02):
        for kill in range(kills):
            where = f"value <> {kill % 10} AND key <> 'z{kill}'"
            store["q"].publish("partner", name=f"s{kill}", columns=COLUMNS[kill % 2], where=where)
            with serving(store, port) as process:
                states += [{key: chosen.randint(0, 9) for key in "abcdef"} for _ in range(4)]
                synthetic.write(tmp_path / "store", states)
                if kill % 3:
                    listens(process)
                time.sleep(chosen.uniform(0, 0.5 if kill % 3 else 3))
            check_files(store, checked)
    with serving(store, port) as process:
        listens(process)
        theirs.refresh()
    check_files(store, checked)
    assert checked
    assert [fresh.error for fresh in theirs.freshness()] == [None] * kills
    queries = {branch.query_id.rpartition("#s")[2]: branch.name for branch in theirs.lineage.branches()}
    for kill in range(kills):
        columns = COLUMNS[kill % 2]
        for epoch, state in enumerate(states):
            whole = [{"key": key, "value": value} for key, value in (state or {}).items() if value != kill % 10]
            table = theirs[queries[f"{kill}"]].at(epoch).table().to_arrow().to_pylist()
            found = [tuple(value for name, value in row.items() if name != COPY) for row in table]
            assert sorted(found) == sorted(tuple(row[name] for name in columns) for row in whole)
    assert {*store.usage()["recipient"]} <= {"partner"}  # the tables that servers write can be read
