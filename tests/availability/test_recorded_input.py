"""A query whose input is recorded is handed over and taken over: each row is recorded once, and counted once."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from recording.line_server import LineServer
from recording.test_recording import rows_in
from spark_settings import PLAIN_FILES

import streamstate as ss
from availability.owners import until
from streamstate.operations.availability.standby import OWNER
from streamstate.operations.drill.processes import kill_session

pytestmark = [pytest.mark.exhaustive, pytest.mark.timeout(600)]


@pytest.fixture
def server() -> Iterator[LineServer]:
    """A TCP server, which forgets what it has sent."""
    server = LineServer()
    yield server
    server.close()


def letters(port: int) -> DataFrame:
    """Counts by the first letter of the lines of a server."""
    spark: SparkSession = ss.session(**PLAIN_FILES)
    lines = spark.readStream.format("socket").options(host="127.0.0.1", port=port).load()
    return lines.groupBy(F.col("value").substr(1, 1).alias("letter")).agg(F.count("*").alias("n"))


def test_a_handover_and_a_takeover(spark: SparkSession, server: LineServer, tmp_path: Path) -> None:
    """Each owner records what the server sends to it."""
    build, store, sent = partial(letters, server.port), tmp_path / "store", 0
    recording, query = store / "letters" / "_inputs" / "0", tmp_path / "checkpoint"

    def send(connections: int) -> None:
        nonlocal sent
        server.send([f"{'abc'[number % 3]}{number}" for number in range(sent, sent + 30)], connections=connections)
        sent += 30
        until(lambda: len(rows_in(recording)) == sent)

    running = ss.start(build(), "letters", store, checkpoint=query, trigger="200ms", record_input=True)
    send(1)
    send(1)
    running.wait(epoch=1)  # so that there is an epoch to warm up with
    try:
        report = running.hand_over(build, lease=3)
    finally:
        running.newest.stop()
    first = report.owner
    try:
        assert running.state == "stopped"
        send(2)
        standby = first.standby()
        try:
            standby.wait()
            kill_session(first.process.pid)
            until(lambda: standby.status().state == OWNER)
            send(3)
            history = ss.open_store(store)["letters"]
            until(lambda: sum(row["count"] for row in history.live().table().to_arrow().to_pylist()) == sent)
        finally:
            standby.stop()
    finally:
        first.stop()
    assert sorted(int(row["value"][1:]) for row in rows_in(recording)) == [*range(sent)]
    assert history.live().table().to_arrow()["count"].to_pylist() == [sent // 3] * 3
    read = [row.value for epoch in history.epochs()["epoch"] for row in history.inputs(int(epoch)).collect()]
    assert len(read) == len(set(read)) == sent
