"""``streamstate capture`` and ``follow`` run in processes of their own beside a query, as a service does."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest
from recorded.unpacked import unpacked

import streamstate as ss
from commands.test_capture_metrics import scraped

SECONDS = 300


@contextmanager
def following(checkpoint: Path, store: Path, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """``streamstate follow`` in a process of its own."""
    command = [sys.executable, "-m", "streamstate", "follow", str(checkpoint), "--store", str(store)]
    command += map(str, arguments)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def line_with(output: IO[str] | None, text: str) -> str:
    """The next line that contains a text."""
    assert output is not None
    return next(line for line in output if text in line)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoint of a query with four epochs."""
    return unpacked("4.2", tmp_path_factory.mktemp("recorded")) / "RocksDB-with-changelog" / "aggregation"


def test_a_missing_checkpoint_is_reported_at_once(tmp_path: Path) -> None:
    """Before Spark starts; with a name, too, although ``Checkpoint.follow`` would wait."""
    with following(tmp_path / "none", tmp_path / "store", "--name", "q") as process:
        output, errors = process.communicate(timeout=SECONDS)
    assert (process.returncode, output) == (1, "")
    assert "is not the checkpoint of a streaming query" in errors
    assert not (tmp_path / "store").exists()


def test_waiting_for_a_checkpoint_ends_with_a_signal(tmp_path: Path) -> None:
    """The status is 0, as for a capture that was stopped."""
    with following(tmp_path / "none", tmp_path / "store", "--wait", "--metrics", 0) as process:
        line_with(process.stderr, "Metrics at")
        process.terminate()
        assert process.communicate(timeout=SECONDS) == ("", "")
    assert process.returncode == 0


@pytest.mark.parametrize("command", ["capture", "follow"])
def test_neither_spark_nor_pandas_is_loaded(checkpoint: Path, tmp_path: Path, command: str) -> None:
    """They would take a second to start with, and 100 MiB for good."""
    program = f"""
import os, signal, sys, threading, time
from streamstate.command_line import main
def end():
    while not os.path.exists({str(tmp_path / "store/q/_epochs/_delta_log/00000000000000000002.json")!r}):
        time.sleep(0.05)
    os.kill(os.getpid(), signal.SIGTERM)
if {command!r} == "follow":
    threading.Thread(target=end, daemon=True).start()
status = main([{command!r}, {str(checkpoint)!r}, "--store", {str(tmp_path / "store")!r}, "--name", "q"])
print(status, sorted({{"pandas", "pyspark", "py4j"}} & set(sys.modules)))
"""
    run = [sys.executable, "-c", program]
    process = subprocess.run(run, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert (process.stdout.splitlines()[-1], process.stderr) == ("0 []", "")
    assert ss.open_store(tmp_path / "store")["q"].captured() == [0, 1, 2, 3]


def test_follow_says_first_where_it_stands(checkpoint: Path, tmp_path: Path) -> None:
    """Also if the store is up to date, so that no pass follows."""
    copy = shutil.copytree(checkpoint, tmp_path / "copy")
    ss.Checkpoint(copy).capture(tmp_path / "store", "q", verify="never")
    with following(copy, tmp_path / "store") as process:
        line = line_with(process.stdout, "q: ")
    assert re.match(rf"\d{{4}}-\d\d-\d\dT[\d:]+Z q: following {copy}: up to date at epoch 3$", line)
    with following(copy, tmp_path / "new", "--every", 50) as process:
        assert line_with(process.stdout, "copy: ").endswith(
            f"following {copy}: committed up to epoch 3, captured nothing\n"
        )


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_follow_runs_until_a_signal(checkpoint: Path, tmp_path: Path, number: signal.Signals) -> None:
    """It prints a line for each pass, and serves metrics; a signal ends it with status 0."""
    with following(checkpoint, tmp_path / "store", "--name", "q", "--metrics", 0) as process:
        address = line_with(process.stderr, "Metrics at")
        last = line_with(process.stdout, "epochs 1 to 3 captured")
        found = scraped(int(re.findall(r":(\d+)/", address)[0]))
        process.send_signal(number)
        output, errors = process.communicate(timeout=SECONDS)
    assert (process.returncode, output, errors) == (0, "", "")
    assert re.match(r"\d{4}-\d\d-\d\dT[\d:]+Z q: epochs 1 to 3 captured, \d+ rows in [\d.]+ s$", last)
    assert found["streamstate_captured_epochs_total"] == 4
    assert (found["streamstate_lag_epochs"], found["streamstate_last_captured_epoch"]) == (0, 3)
    assert ss.open_store(tmp_path / "store")["q"].captured() == [0, 1, 2, 3]


@pytest.mark.slow
def test_follow_starts_before_its_query(checkpoint: Path, tmp_path: Path) -> None:
    """With ``--wait`` it looks for the checkpoint until there is one; ``--json`` prints an object for each pass."""
    late, store = tmp_path / "late", tmp_path / "store"
    with following(late, store, "--wait", "--json", "--every", 2, "--metrics", 0) as process:
        line_with(process.stderr, "Metrics at")
        shutil.copytree(checkpoint, late)
        passes = [json.loads(line_with(process.stdout, "epochs")) for _ in range(2)]
        process.terminate()
        process.communicate(timeout=SECONDS)
    assert process.returncode == 0
    assert [one["epochs"] for one in passes] == [[0], [1, 2, 3]]
    assert {one["query"] for one in passes} == {"late"}
    assert passes[-1]["behind"] == 0


@pytest.mark.slow
def test_an_error_that_retrying_cannot_fix_ends_follow(checkpoint: Path, tmp_path: Path) -> None:
    """The status is 1; the reason is on standard error, without a traceback."""
    copy = shutil.copytree(checkpoint, tmp_path / "copy")
    with following(copy, tmp_path / "store") as process:
        line_with(process.stdout, "epochs 1 to 3 captured")
        (copy / "metadata").write_text('{"id": "another"}')
        output, errors = process.communicate(timeout=SECONDS)
    assert (process.returncode, output) == (1, "")
    assert errors.startswith("streamstate: ")
    assert "now it holds another query's" in errors
    assert len(errors.splitlines()) <= 3


@pytest.mark.slow
def test_capture_brings_a_store_up_to_date(checkpoint: Path, tmp_path: Path) -> None:
    """Once with epochs, and then with none."""
    command = [sys.executable, "-m", "streamstate", "capture", str(checkpoint), "--store", str(tmp_path / "store")]
    run = [subprocess.run([*command, *more], capture_output=True, text=True, check=False) for more in (["--json"], [])]
    assert [(one.returncode, one.stderr) for one in run] == [(0, ""), (0, "")]
    report = json.loads(run[0].stdout)
    assert (report["query"], report["epochs"], report["gaps"]) == ("aggregation", [0, 1, 2, 3], [])
    assert run[1].stdout == "aggregation: up to date\n"
