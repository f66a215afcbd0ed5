"""Beside Spark Connect, everything that needs no JVM works, and the rest says that it needs a classic session."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from recorded.unpacked import CURRENT, copied, unpacked

from project.connect_calls import run


@contextmanager
def process(remote: str, folder: Path, only_spark: Path) -> Iterator[tuple[dict[str, str], int | None]]:
    """The outcomes of all calls in a process that uses Spark Connect, which ends with the block, and its port."""
    folder.mkdir()
    checkpoint = copied(unpacked(CURRENT, folder) / "counted" / "checkpoint", folder / "checkpoint")
    program = run(remote, checkpoint, only_spark, folder)
    try:
        assert program.stdout is not None
        outcomes, port = json.loads(program.stdout.readline())
        yield outcomes, port
        program.communicate(timeout=60)
    finally:
        program.kill()


@pytest.fixture(scope="module")
def only_spark(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint that has snapshots alone, which rocksdict or Spark can read."""
    return unpacked("3.5", tmp_path_factory.mktemp("snapshots")) / "RocksDB" / "aggregation"


def check(outcomes: dict[str, str]) -> None:
    """Check that calls without Spark succeed, that the others name what works, and that none leaves Java running."""
    needing = {name: text for name, text in outcomes.items() if name.startswith("needs Spark: ")}
    assert {name: text for name, text in outcomes.items() if name not in needing and text != "done"} == {}
    assert {name: text for name, text in needing.items() if not right(name, text)} == {}


def right(name: str, text: str) -> bool:
    """Return whether the error of a call that needs a classic session says so, and names the table that needs Spark."""
    error = "CaptureError" if name.endswith("follow with Spark") else "SparkConnectError"
    reads = "Spark has to read op0: " in text or not name.endswith("with Spark")
    return text.startswith(error) and reads and "uses Spark Connect" in text and "Java was started" not in text


def test_a_client_needs_no_server(tmp_path: Path, only_spark: Path) -> None:
    """No call waits for a server that cannot be reached."""
    with process("nowhere", tmp_path / "client", only_spark) as (outcomes, _):
        check(outcomes)


def test_the_thin_client_has_all_that_needs_no_jvm(tmp_path: Path, only_spark: Path) -> None:
    """Without py4j and the classes of classic sessions, everything but these is there."""
    with process("thin", tmp_path / "client", only_spark) as (outcomes, _):
        check(outcomes)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_server_here_and_a_client_of_it_elsewhere(tmp_path: Path, only_spark: Path) -> None:
    """In the first process a classic session runs the server, but PySpark's functions are those of Spark Connect."""
    with process("local[2]", tmp_path / "server", only_spark) as (here, port):
        check(here)
        with process(f"sc://localhost:{port}", tmp_path / "client", only_spark) as (elsewhere, _):
            check(elsewhere)
