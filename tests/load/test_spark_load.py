"""The load that capture keeps is what Spark reports of each epoch."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest
from conftest import Source, letters

import streamstate as ss
from streamstate.snapshots.capture.spark_load import load_of, with_tasks
from streamstate.snapshots.store.epoch_load import EpochLoad, OperatorLoad, ShedCounts, SourceLoad

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EPOCHS = 3


@pytest.fixture(scope="module")
def started(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A query that has run some epochs, captured in its process."""
    from pyspark.sql import functions as F

    folder = tmp_path_factory.mktemp("load")
    source = Source(spark, folder / "input", "k string, v long")
    for epoch in range(EPOCHS):
        source.add(letters(epoch))
    shed = [F.count(F.lit(1)).alias("rows"), F.count("k").alias("kept"), F.lit(7).alias("level")]
    seen = source.stream().observe("streamstate_shed", *shed, F.count_if(F.col("v") < 3).alias("dropped_sampled"))
    frame = seen.withColumn("t", F.timestamp_seconds("v")).withWatermark("t", "2 seconds")
    running = ss.start(
        frame.groupBy(F.window("t", "1 second"), "k").count(), "q", folder / "store", checkpoint=folder / "checkpoint"
    )
    assert running.query is not None
    running.query.processAllAvailable()
    running.capture.wait()
    yield running
    running.stop()


@pytest.fixture(scope="module")
def events(started: Any) -> dict[int, dict[str, Any]]:
    """Spark's events by epoch, as JSON has them."""
    found = [json.loads(event.json()) for event in started.query._jsq.recentProgress()]
    return {event["batchId"]: event for event in found if "addBatch" in event["durationMs"]}


def _kept(started: Any) -> dict[int, EpochLoad]:
    entries = started.history.recorded.entries()
    return {entry.epoch: EpochLoad.of(entry.load) for entry in entries}


def test_every_epoch_has_the_facts_that_spark_reports(started: Any, events: dict[int, dict[str, Any]]) -> None:
    """Field by field, with Spark's own event as the oracle."""
    kept = _kept(started)
    assert kept.keys() == events.keys()
    for epoch, event in events.items():
        load, times = kept[epoch], event["durationMs"]
        assert load.seconds * 1000 == pytest.approx(times["triggerExecution"])
        assert {name: round(seconds * 1000) for name, seconds in load.phases.items()} | {
            "triggerExecution": times["triggerExecution"]
        } == times
        assert load.rows == event["numInputRows"]
        assert [(source.name, source.rows) for source in load.sources] == [
            (source["description"], source["numInputRows"])
            for source in event["sources"]
            if "streamstate_shared" not in str(source["endOffset"])  # it binds the level, and has no rows
        ]
        for operator, reported in zip(load.operators, event["stateOperators"], strict=True):
            assert operator.name == reported["operatorName"]
            assert operator.rows == reported["numRowsTotal"]
            assert operator.updated == reported["numRowsUpdated"]
            assert operator.memory_bytes == reported["memoryUsedBytes"]
            assert operator.update_seconds * 1000 == pytest.approx(reported["allUpdatesTimeMs"])
            assert operator.commit_seconds * 1000 == pytest.approx(reported["commitTimeMs"])
            assert operator.stores.items() <= reported["customMetrics"].items()
        observed = event["observedMetrics"]["streamstate_shed"]
        dropped = {"sampled": count} if (count := observed["dropped_sampled"]) else {}
        assert load.shed == ShedCounts(observed["rows"], observed["kept"], dropped, level=7)
    assert kept[0].operators[0].stores["rocksdbSstFileSize"] >= 0
    assert kept[0].watermark_lag is None  # there is no watermark yet
    times = events[EPOCHS - 1]["eventTime"]
    behind = pd.Timestamp(times["max"]) - pd.Timestamp(times["watermark"])
    assert kept[EPOCHS - 1].watermark_lag == behind.total_seconds() > 20


def test_pysparks_own_progress_gives_the_same(started: Any, events: dict[int, dict[str, Any]]) -> None:
    """Connect and the controller have PySpark's objects, not JSON."""
    for progress in started.query.recentProgress:
        if progress["batchId"] in events:
            assert load_of(progress) == load_of(events[progress["batchId"]])


def test_the_tasks_of_an_epoch_are_those_of_its_longest_stage(started: Any, spark: SparkSession) -> None:
    """Those of the newest epochs; an epoch that Spark does not know has none."""
    partitions = int(spark.conf.get("spark.sql.shuffle.partitions") or 0)
    tasks = with_tasks(EpochLoad(1.0), started.query, EPOCHS - 1).tasks
    assert tasks is not None
    assert 0 <= tasks.worst_partition < tasks.tasks
    assert 0 <= tasks.median_seconds <= tasks.worst_seconds
    assert tasks.stateful == (tasks.tasks == partitions)
    assert with_tasks(EpochLoad(1.0), started.query, 999).tasks is None
    assert any(load.tasks is not None for load in _kept(started).values())


def test_the_history_shows_what_is_kept(started: Any, events: dict[int, dict[str, Any]]) -> None:
    """The frame has a row per epoch, in units of seconds and rows."""
    load = started.history.load()
    frame = load.to_pandas().set_index("epoch")
    for epoch, event in events.items():
        seconds = event["durationMs"]["triggerExecution"] / 1000
        assert frame.loc[epoch, "seconds"] == pytest.approx(seconds)
        assert frame.loc[epoch, "rows"] == event["numInputRows"]
        if event["numInputRows"]:
            assert frame.loc[epoch, "service_rate"] == pytest.approx(event["numInputRows"] / seconds)
        assert frame.loc[epoch, "state_rows"] == event["stateOperators"][0]["numRowsTotal"]
    assert load.operators()["operator"].unique().tolist() == ["op0"]
    assert set(load.phases().columns) > {"epoch", "addBatch", "walCommit"}
    assert "None of the sources tells how much waits in it" in " ".join(load.unknown)
    assert f"Epoch {max(events)} took" in repr(load)
    assert "<table" in load._repr_html_()


def test_kafkas_backlog_is_known_by_partition() -> None:
    """What waits is the newest offset less the epoch's end, of each partition; a new partition waits whole."""
    progress = {
        "batchId": 3,
        "durationMs": {"triggerExecution": 2000, "addBatch": 1500},
        "sources": [
            {
                "description": "KafkaV2[Subscribe[flights]]",
                "numInputRows": 70,
                "endOffset": {"flights": {"0": 100, "1": 90}},
                "latestOffset": {"flights": {"0": 130, "1": 90, "2": 5}},
            },
            {"description": "FileStreamSource[file:/in]", "numInputRows": 2, "endOffset": {"logOffset": 1}},
            {"description": "binding", "numInputRows": 1, "endOffset": {"streamstate_shared": {"limit": 7}}},
        ],
    }
    load = load_of(progress)
    behind = {"flights/0": 30, "flights/1": 0, "flights/2": 5}
    assert load.sources == (
        SourceLoad("KafkaV2[Subscribe[flights]]", 70, 35, backlog_partitions=behind),
        SourceLoad("FileStreamSource[file:/in]", 2),
    )
    assert load.rows == 72
    assert EpochLoad.of(load.text()) == load


def test_an_event_of_another_form_loses_its_load_and_no_epoch() -> None:
    """Capture never depends on what the load is read from."""
    from streamstate.snapshots.capture.epoch_entries import BatchProgress

    event = {"runId": "r", "sources": [{"numInputRows": 4}], "stateOperators": [{"operatorName": "new"}]}
    assert BatchProgress.of(event) == BatchProgress("r", 4, None)


def test_a_load_keeps_all_its_parts_as_text() -> None:
    """Facts that are not known are left out, and come back as None."""
    load = EpochLoad(
        1.5,
        {"addBatch": 1.0},
        (SourceLoad("a", 1, 0, None, {"t/0": 0}), SourceLoad("b", 2)),
        (OperatorLoad("dedupe", 3, 2, 100, 0.1, 0.2, {"rocksdbSstFileSize": 9}),),
        watermark_lag=0.0,
    )
    assert EpochLoad.of(load.text()) == load
    assert "null" not in load.text()
