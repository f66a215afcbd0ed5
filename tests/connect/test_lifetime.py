"""Output and errors of the worker process reach the user, and it never outlives the process that started it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psutil
import pytest

from connect.conftest import outcome

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def seen(recorded_query: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The observations of one program's user."""
    found: dict[str, Any] = outcome("lifetime_program.py", recorded_query, tmp_path_factory.mktemp("made"))
    return found


def test_progress_output_and_warnings_appear_in_the_client(seen: dict[str, Any]) -> None:
    """The progress callback is called here, and what ``build_query`` prints and warns of appears here."""
    assert "Epoch 2" in seen["progress"]
    assert seen["printed"].startswith("from build_query\n")
    assert "mind the gap" in seen["warned"]


def test_errors_are_those_of_the_call(seen: dict[str, Any]) -> None:
    """An error has its own class and message; a class of the user's program is that class."""
    assert seen["own error"].endswith("not today")
    assert seen["its class"] == "the user's"
    assert seen["no checkpoint"].startswith("NotACheckpointError: ")


@pytest.mark.parametrize(
    ("case", "said"),
    [
        ("a frame outside", "uses frame, an object of the type DataFrame of Spark Connect, which cannot be sent"),
        ("a lock", "uses lock, an object of the type lock, which cannot be sent"),
        ("a frame", "Pass a function that makes what it needs itself, such as build_query"),
    ],
)
def test_what_cannot_travel_is_named(seen: dict[str, Any], case: str, said: str) -> None:
    """The error names the variable, and says that the function has to make it itself."""
    assert seen[case].startswith("InvalidArgumentError: ")
    assert said in seen[case]


def test_an_interrupt_ends_the_call_in_the_worker(seen: dict[str, Any]) -> None:
    """The fork stays at its last committed epoch, and can be stepped again."""
    error, seconds = seen["interrupt"]
    assert error.startswith("KeyboardInterrupt")
    assert seconds < 30
    assert seen["after it"] == 1


def test_a_worker_that_dies_is_named_and_replaced(seen: dict[str, Any]) -> None:
    """The call that it ran fails; the next call starts another."""
    assert seen["killed"].startswith("SparkConnectError: The worker process with the classic Spark session has ended")
    assert "Call it again" in seen["killed"]
    assert seen["an object of the killed one"].startswith("SparkConnectError: ")
    assert seen["after the kill"] == 4


def test_what_only_the_server_has_is_named(seen: dict[str, Any]) -> None:
    """A data source whose jar the worker lacks, and a table; the next call starts a worker with other jars."""
    source = seen["a source of the server"]
    assert source.startswith("SparkConnectError: The worker process, in which this call runs, cannot find kafka")
    assert "PYSPARK_SUBMIT_ARGS" in source
    assert source.endswith("and call again.")
    assert "does not know `only_there` or any other table of the server" in seen["a table of the server"]


def test_no_process_is_left(seen: dict[str, Any]) -> None:
    """Failed calls start none, and the worker and its Java end with the program."""
    assert seen["started by 100 failed calls"] == 0
    assert seen["left"]
    assert not [pid for pid in seen["left"] if psutil.pid_exists(pid)]
