"""Beside Spark Connect every call gives the answer that it gives beside a classic session, row by row."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from connect.conftest import outcome
from connect.user_calls import answers

DRILLED = [True, 0, 3]
"""The answer of a drill of the recorded query over three epochs."""


@pytest.fixture(scope="module")
def classic(recorded_query: Path, tmp_path_factory: pytest.TempPathFactory, spark: Any) -> Any:
    """The answers of most calls beside a classic session."""
    return json.loads(json.dumps(answers(spark, recorded_query, tmp_path_factory.mktemp("classic"), "most")))


@pytest.fixture(scope="module")
def all_classic(recorded_query: Path, tmp_path_factory: pytest.TempPathFactory, spark: Any) -> Any:
    """The answers of all calls beside a classic session, and those of a drill, in which nothing is lost."""
    found = answers(spark, recorded_query, tmp_path_factory.mktemp("all_classic"), "all")
    return json.loads(json.dumps({**found, "drill": DRILLED}))


@pytest.mark.exhaustive  # the programs of the other files have no server either
def test_no_server_is_needed(recorded_query: Path, tmp_path: Path, classic: Any) -> None:
    """A step, a check and an explanation run in the worker process; the server is asked for nothing."""
    client = outcome("user_program.py", "nowhere", recorded_query, tmp_path, "few")
    assert {"step", "check", "why"} <= client.keys()
    assert client == {name: classic[name] for name in client}


@pytest.mark.exhaustive
@pytest.mark.timeout(900)
def test_a_session_that_starts_its_own_server(recorded_query: Path, tmp_path: Path, all_classic: Any) -> None:
    """``remote("local[2]")``: a classic context is in the process too, and serves Spark Connect only."""
    assert outcome("user_program.py", "local[2]", recorded_query, tmp_path, "all") == all_classic


@pytest.mark.slow
def test_a_server_of_its_own(recorded_query: Path, tmp_path: Path, classic: Any, server: str) -> None:
    """A client of a server that runs elsewhere: the calls that use its session."""
    assert outcome("user_program.py", server, recorded_query, tmp_path, "most") == classic


@pytest.mark.exhaustive
@pytest.mark.timeout(900)
def test_all_calls_beside_a_server_of_its_own(
    recorded_query: Path, tmp_path: Path, all_classic: Any, server: str
) -> None:
    """Every verb that runs the user's code does so in the worker process."""
    assert outcome("user_program.py", server, recorded_query, tmp_path, "all") == all_classic


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a server of Spark Connect."""
    import pyspark

    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    folder = tmp_path_factory.mktemp("server")
    submit = ["bash", str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), "--master", "local[2]"]
    settings = {"spark.connect.grpc.binding.port": port, "spark.ui.enabled": "false"}
    for key, value in settings.items():
        submit += ["--conf", f"{key}={value}"]
    submit += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
    environment = {**os.environ, "SPARK_CONNECT_AUTHENTICATE_TOKEN": "token"}
    with (folder / "log").open("w") as log:
        program = subprocess.Popen(submit, env=environment, cwd=folder, stdout=log, stderr=log)
    try:
        wait_for(port, program)
        yield f"sc://localhost:{port}"
    finally:
        program.terminate()
        program.wait()


def wait_for(port: int, program: subprocess.Popen[bytes]) -> None:
    """Wait until the server listens."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and program.poll() is None:
        with socket.socket() as attempt:
            if attempt.connect_ex(("localhost", port)) == 0:
                return
        time.sleep(0.1)
    pytest.fail("The server of Spark Connect did not start.")
