"""Causes of changes, checked against Spark queries whose input is known for each epoch."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from operators.processors import PANDAS_STATE, TRANSFORM
from operators.queries import JOINS, OTHERS, WINDOWS
from operators.running import INPUT, Query, Run, rows, with_settings
from pyspark.sql import SparkSession
from sampling import sampled

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("read_from_files")]

MINUTES = dt.timedelta(minutes=1)
NOON = dt.datetime(2024, 3, 31, 12, tzinfo=dt.UTC)


@dataclass(frozen=True)
class Change:
    """A key that differs from the previous epoch, and the facts that the oracle uses."""

    epoch: int
    row: Mapping[str, Any]
    keys: set[str | None]
    """The values of ``k`` in the epoch's input."""
    watermark: dt.datetime

    @property
    def cause(self) -> str:
        """The reported cause."""
        return str(self.row["_cause"])

    @property
    def kind(self) -> str:
        """The kind of change: the key was added, removed or changed."""
        return str(self.row["_change"])


def inputs(run: Run, epoch: int) -> pa.Table:
    """The rows that an epoch read, according to the file source's log."""

    def end(epoch_read: int) -> int:
        offsets = run.history.at(epoch_read).offsets if epoch_read >= 0 else None
        return int(offsets[0]["logOffset"]) if offsets else -1

    files = []
    for entry in range(end(epoch - 1) + 1, end(epoch) + 1):
        lines = (run.checkpoint / "sources" / "0" / str(entry)).read_text(encoding="utf-8").splitlines()[1:]
        files += [unquote(urlparse(json.loads(line)["path"]).path) for line in lines]
    return pa.concat_tables([INPUT.empty_table(), *(pq.read_table(file) for file in files)])


def changes(run: Run, table: str) -> Iterator[Change]:
    """All changes of a state table, epoch by epoch."""
    history = run.history
    for epoch in history.captured()[1:]:
        watermark = history.at(epoch).watermark or dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
        keys = set(inputs(run, epoch)["k"].to_pylist())
        page = history.diff(epoch - 1, epoch, table).page(limit=10_000)
        for row in page.to_dict("records"):
            assert list(row["_epochs"]) == [epoch]
            yield Change(epoch, {str(name): value for name, value in row.items()}, keys, watermark)


def ran(spark: SparkSession, query: Query, folder: Path) -> Run:
    """A finished and captured run."""
    run = Run(spark, folder)
    run.start(query, epochs=range(4))
    run.capture()
    return run


def ran_live(spark: SparkSession, query: Query, folder: Path) -> Run:
    """A run captured while the query is active, so that epochs without input are known."""
    run = Run(spark, folder)
    session = with_settings(spark, query.conf, {"spark.sql.streaming.noDataMicroBatches.enabled": "true"})
    frame = query.build(run.inputs.stream(session))
    writer = frame.writeStream.format("noop").outputMode(query.mode).option("checkpointLocation", str(run.checkpoint))
    running = writer.trigger(processingTime="0 seconds").start()
    try:
        for epoch in range(3):
            run.inputs.add(rows(epoch))
            running.processAllAvailable()
        run.capture()
    finally:
        running.stop()
    return run


@pytest.mark.parametrize("name", sampled(["tumbling window", "tumbling window, append"], 1))
def test_causes_of_an_aggregation(spark: SparkSession, tmp_path: Path, name: str) -> None:
    """Rows are written by input, and removed once the watermark has passed the window."""
    found = list(changes(ran(spark, WINDOWS[name], tmp_path), "op0"))
    for change in found:
        if change.kind == "removed":
            assert change.cause == "watermark"
            assert change.row["window"]["end"] <= change.watermark
        else:
            assert change.cause == "input"
            assert change.row["k"] in change.keys
    assert {change.kind for change in found} == {"added", "removed", "changed"}


def test_causes_of_session_windows(spark: SparkSession, tmp_path: Path) -> None:
    """A session is removed because the watermark passed its end, or because input merged it with an earlier one."""

    def events(*minutes: int, key: str = "a") -> pa.Table:
        times = [NOON + minute * MINUTES for minute in minutes]
        return pa.table([[key] * len(times), list(range(len(times))), times], schema=INPUT)

    tables = [events(0, 20, 50), events(8, 16), events(500, key="b"), events(501, key="b")]
    run = Run(spark, tmp_path)
    for table in tables:  # one run each, because files with the same timestamp are read in any order
        run.start_with(WINDOWS["session window"], [table])
    run.capture()
    found = list(changes(run, "op0"))
    gone = {
        (change.row["k"], change.row["sessionStartTime"]): change.cause for change in found if change.kind == "removed"
    }
    assert gone == {
        ("a", NOON + 20 * MINUTES): "input",
        ("a", NOON): "watermark",
        ("a", NOON + 50 * MINUTES): "watermark",
    }
    assert {change.cause for change in found if change.kind != "removed"} == {"input"}


@pytest.mark.parametrize("name", sampled(["dropDuplicates with a watermark", "dropDuplicatesWithinWatermark"], 1))
def test_causes_of_deduplication(spark: SparkSession, tmp_path: Path, name: str) -> None:
    """Keys are stored because of input and removed because of the watermark."""
    found = list(changes(ran(spark, OTHERS[name], tmp_path), "op0"))
    for change in found:
        assert change.cause == ("watermark" if change.kind == "removed" else "input")
        if change.kind == "removed":
            expires = change.row.get("expiresAtMicros_old")
            moment = change.row["t"] if expires is None else dt.datetime.fromtimestamp(expires / 1_000_000, dt.UTC)
            assert moment <= change.watermark
        else:
            assert change.row["k"] in change.keys
    assert {change.kind for change in found} == {"added", "removed"}


@pytest.mark.parametrize("side", [pytest.param("left", marks=pytest.mark.exhaustive), "right"])
def test_causes_of_a_join(joined: Run, side: str) -> None:
    """A side's rows are added by input, marked by the other side's, and removed or renumbered by the watermark."""
    found = list(changes(joined, f"op0_{side}"))
    values = ("k", "v", "t") if side == "left" else ("k2", "v2", "t2")
    for change in found:
        if change.cause == "input":
            assert change.row["field0"] in change.keys
            assert change.kind == "added" or all(
                change.row[f"{name}_old"] == change.row[f"{name}_new"] for name in values
            )
        else:
            assert change.cause == "watermark"
            before, after = (
                held(joined, epoch, side, change.row["field0"], values) for epoch in (change.epoch - 1, change.epoch)
            )
            assert before - after, "a row of that key was evicted"
    assert {change.kind for change in found} >= {"added", "removed"}
    assert {change.cause for change in found} == {"input", "watermark"}


@pytest.fixture(scope="module")
def joined(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A left outer join in which some rows of a key are evicted before others, which later input matches."""

    def events(epoch: int) -> pa.Table:
        start = NOON + dt.timedelta(hours=epoch)
        minutes = [0, 10, 20, 30, 50, 59]
        numbers = [1, 2, 3, 4, 5, 7] if epoch % 2 else [1, 7, 13, 2, 5, 11]
        names = ["a", "a", "b", "b", "a", "b"]
        return pa.table([names, numbers, [start + minute * MINUTES for minute in minutes]], schema=INPUT)

    run = Run(spark, tmp_path_factory.mktemp("joined"))
    for epoch in range(5):  # one run each, so that no epoch reads two files
        run.start_with(JOINS["left_outer"], [events(epoch)])
    run.capture()
    return run


def held(run: Run, epoch: int, side: str, key: str, values: tuple[str, ...]) -> set[tuple[Any, ...]]:
    """The rows of one key on one side of the join."""
    found = run.history.at(epoch).table(f"op0_{side}").to_arrow().to_pylist()
    return {tuple(row[name] for name in values) for row in found if row["field0"] == key}


def test_causes_of_a_limit(spark: SparkSession, tmp_path: Path) -> None:
    """Its count changes because of input."""
    found = list(changes(ran(spark, OTHERS["limit"], tmp_path), "op0"))
    assert {change.cause for change in found} == {"input"}


@pytest.mark.parametrize("name", sampled(["no timeout", "event-time timeout"], 1))
def test_causes_of_a_stateful_function(spark: SparkSession, tmp_path: Path, name: str) -> None:
    """A change is attributed to the key's input or to its timeout if only one of the two was possible."""
    found = list(changes(ran_live(spark, PANDAS_STATE[name], tmp_path), "op0"))
    check_user_code(found)
    expected = {"input"} if name == "no timeout" else {"input", "timer"}
    assert {change.cause for change in found} >= expected
    assert {change.cause for change in found} - {"unknown"} == expected


@pytest.mark.exhaustive
def test_causes_of_a_processor_with_timers(spark: SparkSession, tmp_path: Path) -> None:
    """``input`` if no timer of the key can have fired, ``timer`` if there was no input."""
    run = ran_live(spark, TRANSFORM["rows, event time and timers"], tmp_path)
    causes = set()
    for table in run.history.tables():
        found = list(changes(run, table))
        if table != "op0_timers":
            check_user_code(found)
        for change in found:
            if table == "op0_timers" and change.kind == "removed" and change.cause == "timer":
                assert change.row["expiration_timestamp_ms"] <= change.watermark.timestamp() * 1000
            causes.add((table == "op0_timers", change.kind, change.cause))
    assert (True, "removed", "timer") in causes
    assert (False, "changed", "input") in causes
    assert (False, "changed", "timer") in causes


@pytest.mark.exhaustive
def test_causes_of_a_processor_with_ttl(spark: SparkSession, tmp_path: Path) -> None:
    """``ttl`` only if the value had expired when the batch began."""
    run = Run(spark, tmp_path)
    for epoch in (0, 7, 8):  # new keys, so that values expire without being written again
        named = [name if name is None else f"{name}/{epoch}" for name in rows(epoch)["k"].to_pylist()]
        renamed = rows(epoch).set_column(0, "k", pa.array(named))
        run.start_with(TRANSFORM["rows, processing time, TTL and timers"], [renamed])
    run.capture()
    causes = set()
    for table in run.history.tables():
        found = list(changes(run, table))
        for change in found:
            causes.add((table, change.kind, change.cause))
            if change.cause == "ttl":
                assert change.row["ttlExpirationMs_old"] <= began(run, change.epoch)
        if table != "op0_timers":
            check_user_code(found)
    assert ("op0_short", "removed", "ttl") in causes
    assert {kind for table, kind, cause in causes if table == "op0_kept" and cause == "ttl"} == set()


def began(run: Run, epoch: int) -> int:
    """Return the time at which Spark began the batch, according to its offset log."""
    head = (run.checkpoint / "offsets" / str(epoch)).read_text(encoding="utf-8").splitlines()[1]
    return int(json.loads(head)["batchTimestampMs"])


def check_user_code(found: list[Change]) -> None:
    """``input`` is right if the key had input, ``timer`` if it had none."""
    for change in found:
        if change.cause == "input":
            assert change.row["k"] in change.keys
        if change.cause == "timer":
            assert change.row["k"] not in change.keys


def test_repartitioning_changes_no_row(spark: SparkSession, tmp_path: Path) -> None:
    """An epoch that only repartitioned the state equals the previous one, so it has no causes."""
    run = Run(spark, tmp_path)
    run.start(WINDOWS["tumbling window"], epochs=range(2))
    run.capture()
    before = run.history.live().epoch
    spark._streamingCheckpointManager.repartition(str(run.checkpoint), 3, False)
    run.capture()
    run.start(WINDOWS["tumbling window"], epochs=range(2, 3))
    run.capture()
    assert len(run.history.diff(before, before + 1)) == 0
    assert {change.cause for change in changes(run, "op0")} == {"input", "watermark"}
