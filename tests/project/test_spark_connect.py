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
def process(remote: str, folder: Path) -> Iterator[tuple[dict[str, str], int | None]]:
    """The outcomes of all calls in a process that uses Spark Connect, which ends with the block, and its port."""
    folder.mkdir()
    checkpoint = copied(unpacked(CURRENT, folder) / "counted" / "checkpoint", folder / "checkpoint")
    program = run(remote, checkpoint, folder)
    try:
        assert program.stdout is not None
        outcomes, port = json.loads(program.stdout.readline())
        yield outcomes, port
        program.communicate(timeout=300)
    finally:
        program.kill()


def check(outcomes: dict[str, str]) -> None:
    """Check that calls without Spark succeed, that the others say what they need, and that none starts Java."""
    needing = {name: text for name, text in outcomes.items() if name.startswith("needs Spark: ")}
    assert {name: text for name, text in outcomes.items() if name not in needing and text != "done"} == {}
    assert {name: text for name, text in needing.items() if not refuses(text)} == {}


def refuses(text: str) -> bool:
    """Return whether an error says that a call needs a classic session where the query runs."""
    said = "This call needs a classic Spark session in the process that runs the query, and this process uses Spark"
    return text.startswith(f"SparkConnectError: {said} Connect.") and "Java was started" not in text


def test_a_client_needs_no_server(tmp_path: Path) -> None:
    """No call waits for a server that cannot be reached."""
    with process("nowhere", tmp_path / "client") as (outcomes, _):
        check(outcomes)


@pytest.mark.slow
def test_the_thin_client_has_all_that_needs_no_jvm(tmp_path: Path) -> None:
    """Without py4j and the classes of classic sessions, everything but these is there."""
    with process("thin", tmp_path / "client") as (outcomes, _):
        check(outcomes)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_server_here_and_a_client_of_it_elsewhere(tmp_path: Path) -> None:
    """In the first process a classic session runs the server, but PySpark's functions are those of Spark Connect."""
    with process("local[2]", tmp_path / "server") as (here, port):
        check(here)
        with process(f"sc://localhost:{port}", tmp_path / "client") as (elsewhere, _):
            check(elsewhere)
