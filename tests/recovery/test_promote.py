"""``Checkpoint.promote``: a fork takes the place of a stopped query, as the same query."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from operators.processors import TRANSFORM
from operators.queries import JOINS, OTHERS, WINDOWS
from operators.running import FORMAT_1, HDFS, Query, Run, rows
from oracle import captured_rows, spark_rows
from py4j.protocol import Py4JJavaError
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from sampling import sampled
from stepping import builder

import streamstate as ss
from recovery.promotable import SUMS, Pair
from recovery.test_rescale import tree
from streamstate.errors import CaptureError, NotACheckpointError, PromotionError, QueryError
from streamstate.operations.in_place import renames_folders
from streamstate.operations.promotion import promoting, requirements
from streamstate.operations.promotion.switch import REPLACED, Switch
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.checkpoint.fork_record import Barrier
from streamstate.snapshots.checkpoint.hadoop_files import HadoopFiles
from streamstate.snapshots.spark.state_comparison import StateAt, state_differences


def started(frame: DataFrame, checkpoint: Path, sink: Path | None = None, mode: str = "update", **trigger: Any) -> Any:
    """Start a query, by default over the available input."""
    writer = frame.writeStream.format("noop" if sink is None else "parquet").outputMode(mode)
    writer = writer.option("checkpointLocation", str(checkpoint)).trigger(**trigger or {"availableNow": True})
    return writer.start(None if sink is None else str(sink))


def test_the_fork_takes_over(spark: SparkSession, pair: Pair) -> None:
    """The checkpoint has the fork's state and its own query id; the old one is kept, and the fork is unchanged."""
    before, fork = tree(pair.over), tree(pair.fork)
    query_id = CheckpointFiles(pair.over).query_id
    steps: list[tuple[str, float | None]] = []
    promotion = ss.Checkpoint(pair.fork).promote(over=pair.over, spark=spark, progress=lambda *step: steps.append(step))
    assert (promotion.epoch, promotion.checkpoint, promotion.fork) == (1, str(pair.over), str(pair.fork))
    assert promotion.kept == str(pair.kept)
    assert promotion.differences == {"op0": (1, 1)}
    assert "op0: rows only in the old state 1, only in the new 1" in repr(promotion)
    assert "<li>op0: rows only in the old state 1" in promotion._repr_html_()
    assert ss.Checkpoint(pair.over).promotion().differences == promotion.differences
    assert CheckpointFiles(pair.over).query_id == query_id
    assert state_differences(spark, StateAt(str(pair.fork), 1), StateAt(str(pair.over), 1), exact=True) == []
    assert tree(pair.fork) == fork
    assert {**tree(pair.kept), REPLACED: ""} == {**before, REPLACED: ""}
    assert pair.beside == {pair.over.name, pair.kept.name, pair.fork.name}
    assert steps[-1] == ("done", 1.0)


@pytest.mark.usefixtures("uncompared")
def test_undo_restores_the_checkpoint(spark: SparkSession, pair: Pair) -> None:
    """To the byte; after that the promotion is gone, and the fork can be promoted again."""
    before = tree(pair.over)
    promotion = ss.Checkpoint(pair.fork).promote(over=pair.over, spark=spark)
    ss.Checkpoint(pair.over).promotion().undo()
    assert tree(pair.over) == before
    assert pair.beside == {pair.over.name, pair.fork.name}
    with pytest.raises(PromotionError, match="no longer holds this promotion"):
        promotion.undo()
    with pytest.raises(PromotionError, match="No fork has taken the place"):
        ss.Checkpoint(pair.over).promotion()
    assert ss.Checkpoint(pair.fork).promote(over=pair.over, spark=spark).epoch == 1


SINK = Query(
    lambda s: WINDOWS["tumbling window, append"].build(s).selectExpr("k", "window.start AS start", "`sum(v)` AS total"),
    ("op0",),
    "append",
)


@pytest.mark.slow
def test_a_file_sink_gets_each_row_once(spark: SparkSession, tmp_path: Path) -> None:
    """Before and after the promotion together, the sink has the rows that a batch over the whole input computes."""
    run, sink = Run(spark, tmp_path), tmp_path / "out"
    for epoch in range(3):
        run.inputs.add(rows(epoch))
    build = builder(run, SINK)
    started(build(), run.checkpoint, sink, "append").awaitTermination()
    fork = ss.Checkpoint(run.checkpoint).fork(tmp_path / "fork", at=1)
    ss.Checkpoint(fork).step(build, epochs=9, mode="append", spark=spark)
    promotion = ss.Checkpoint(fork).promote(over=run.checkpoint, spark=spark)
    for epoch in range(3, 6):
        run.inputs.add(rows(epoch))
    query = started(build(), run.checkpoint, sink, "append")
    query.awaitTermination()
    first, *later = query.recentProgress
    assert (first["batchId"], first["numInputRows"]) == (promotion.epoch + 1, 0)
    assert [progress["numInputRows"] for progress in later] == [11, 11, 11, 0]
    found = Counter(map(tuple, spark.read.parquet(str(sink)).collect()))
    end = CheckpointFiles(run.checkpoint).planned(later[-1]["batchId"])
    assert end is not None
    assert end.watermark is not None
    late = spark.read.parquet(str(run.inputs.folder))
    batch = SINK.build(late).where(f"start + INTERVAL 1 HOUR <= TIMESTAMP '{end.watermark.isoformat()}'")
    assert found == Counter(map(tuple, batch.collect()))
    with pytest.raises(PromotionError, match=r"has run epoch .* since the promotion"):
        promotion.undo()


@pytest.mark.slow
@pytest.mark.parametrize(
    "follower",
    [True, pytest.param(False, marks=pytest.mark.exhaustive)],
    ids=["a capture that goes on", "later captures"],
)
def test_the_history_goes_on(spark: SparkSession, pair: Pair, tmp_path: Path, follower: bool) -> None:
    """Every epoch equals Spark's: those before the promotion the old checkpoint's, those after it the new one's."""
    run = pair.run
    run.capture()
    capture = ss.Checkpoint(run.checkpoint).follow(run.store, "q", spark=spark) if follower else None
    before = tmp_path / "before"
    shutil.copytree(run.checkpoint, before)
    promotion = ss.Checkpoint(pair.fork).promote(over=pair.over, spark=spark)
    if not follower:
        assert run.capture().epochs == ()  # the promoted state is not the query's own at that epoch
    run.start(SUMS, epochs=range(2, 4))
    newest = CheckpointFiles(pair.over).committed()[-1]
    if capture is None:
        run.capture()
    else:
        capture.wait(newest, timeout=300)
        capture.stop()
    assert run.history.captured() == [*range(newest + 1)]
    for epoch in run.history.captured():
        checkpoint = before if epoch <= promotion.epoch else pair.over
        expected = spark_rows(spark, checkpoint, "op0", epoch)
        assert captured_rows(run.history.at(epoch).table()) == expected, epoch
    assert run.history.diff(promotion.epoch, promotion.epoch + 1).counts == {"added": 0, "removed": 0, "changed": 1}


@pytest.mark.usefixtures("uncompared")
def test_an_epoch_that_was_not_captured_before_is_a_gap(spark: SparkSession, pair: Pair, tmp_path: Path) -> None:
    """The fork's state is never taken for the query's own; the kept checkpoint still has it."""
    ss.Checkpoint(pair.fork).promote(over=pair.over, spark=spark)
    assert ss.Checkpoint(pair.over).capture(tmp_path / "store", "q").epochs == ()
    assert ss.Checkpoint(pair.kept).capture(tmp_path / "store", "q").epochs == (0, 1)


CONTINUED: dict[str, tuple[Query, dict[str, str]]] = {
    "HDFS": (WINDOWS["sliding window"], HDFS),
    "format 1": (OTHERS["two aggregations"], FORMAT_1),
    "deduplication": (OTHERS["dropDuplicatesWithinWatermark"], {}),
    "transformWithState": (TRANSFORM["rows, event time and timers"], {}),
    "join": (JOINS["full_outer"], {}),
    "self-join": (JOINS["self"], {}),
    "session window": (WINDOWS["session window"], {}),
}


@pytest.mark.exhaustive  # two queries each
@pytest.mark.parametrize("name", CONTINUED)
def test_the_promoted_query_continues(spark: SparkSession, tmp_path: Path, name: str) -> None:
    """After more input, its state equals that of the original, which went on without the promotion."""
    query, settings = CONTINUED[name]
    run = Run(spark, tmp_path)
    run.start(query, settings, epochs=range(2))
    fork = ss.Checkpoint(run.checkpoint).fork(tmp_path / "fork", at=0)
    ss.Checkpoint(fork).step(builder(run, query, settings), epochs=9, mode=query.mode, spark=spark)
    promoted, unchanged = run.checkpoint, tmp_path / "unchanged"
    ss.Checkpoint(fork).promote(over=promoted, spark=spark)
    shutil.copytree(f"{promoted}.before-promotion-{CheckpointFiles(fork).committed()[-1]}", unchanged)
    shutil.rmtree(fork)  # nothing of it is needed
    run.start(query, settings, epochs=range(2, 4))
    run.checkpoint = unchanged
    run.start(query, settings, epochs=range(0))
    states = [StateAt(str(path), CheckpointFiles(path).committed()[-1]) for path in (promoted, unchanged)]
    assert states[0].epoch == states[1].epoch + 1
    assert state_differences(spark, *states) == []


@pytest.mark.usefixtures("uncompared")
def test_an_old_process_cannot_commit(spark: SparkSession, pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """A query that still ran on the old checkpoint, unseen, fails at its next epoch; the promoted one goes on."""
    build = builder(pair.run, SUMS)
    old = started(build(), pair.over, processingTime="100 milliseconds")
    old.processAllAvailable()
    for module in (promoting, requirements):
        monkeypatch.setattr(module, "check_stopped", lambda *_: None)  # as if it ran elsewhere
    ss.Checkpoint(pair.fork).promote(over=pair.over, spark=spark)
    pair.run.inputs.add(rows(2))
    with pytest.raises(StreamingQueryException, match=r"CONCURRENT_STREAM_LOG_UPDATE.*detected for 2"):
        old.awaitTermination(120)
    assert CheckpointFiles(pair.over).committed() == [1]
    started(build(), pair.over).awaitTermination()
    assert CheckpointFiles(pair.over).committed() == [1, 2, 3]
    assert spark_rows(spark, pair.over, "op0", 3) != spark_rows(spark, pair.kept, "op0", 1)
    assert CheckpointFiles(pair.kept).committed() == [0, 1]


@pytest.mark.usefixtures("uncompared")
@pytest.mark.parametrize("renames", [True, False], ids=["folders", "files"])
def test_an_epoch_begun_during_the_promotion_reverses_it(
    spark: SparkSession, pair: Pair, monkeypatch: pytest.MonkeyPatch, renames: bool
) -> None:
    """The old checkpoint is looked at once more when nobody can reach it any more."""
    exchange = Switch.exchange

    def late(switch: Switch, check: Callable[[str], None]) -> None:
        """Another process plans an epoch just before the switch."""
        shutil.copy(pair.over / "offsets" / "1", pair.over / "offsets" / "2")
        exchange(switch, check)

    monkeypatch.setattr("streamstate.operations.promotion.switch.renames_folders", lambda _: renames)
    monkeypatch.setattr(Switch, "exchange", late)
    with pytest.raises(PromotionError, match=r"began epoch 2 during the promotion.*\nThe promotion was reversed"):
        ss.Checkpoint(pair.fork).promote(over=pair.over, spark=spark)
    assert CheckpointFiles(pair.over).begun() == [0, 1, 2]
    assert pair.beside == {pair.over.name, pair.fork.name}


@pytest.mark.exhaustive  # as in tests/services/s3
def test_with_hadoops_client(spark: SparkSession, pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on other file systems: files are copied, and folders renamed one after the other."""
    from streamstate.operations.promotion import switch

    for module in (promoting, switch):
        monkeypatch.setattr(module, "files_for", lambda *_: HadoopFiles(spark))
    monkeypatch.setattr(switch, "exchanged", lambda *_: False)
    before = tree(pair.over)
    promotion = ss.Checkpoint(pair.fork).promote(over=pair.over, spark=spark)
    assert state_differences(spark, StateAt(str(pair.fork), 1), StateAt(str(pair.over), 1)) == []
    promotion.undo()
    assert tree(pair.over) == before


@pytest.mark.usefixtures("uncompared")
def test_the_kept_checkpoint_is_not_started(spark: SparkSession, pair: Pair) -> None:
    """It would write to the same sink a second time. It can be forked."""
    ss.Checkpoint(pair.fork).promote(over=pair.over, spark=spark)
    frame = builder(pair.run, SUMS)()
    with pytest.raises(PromotionError, match=r"was replaced by a fork after epoch 1.*\nFork it"):
        ss.start(frame, "q", pair.over.parent / "store", checkpoint=pair.kept)
    with pytest.raises(PromotionError, match="was replaced by a fork"):
        ss.Checkpoint(pair.fork).promote(over=pair.kept, spark=spark)
    assert ss.Checkpoint(pair.kept).fork(pair.over.parent / "again").epoch == 1


# What is wrong
def refused(pair: Pair, spark: SparkSession, error: type[Exception], message: str, **changed: Any) -> None:
    """Promoting raises the error, and changes nothing."""
    before = tree(pair.over.parent)
    arguments = {"fork": pair.fork, "over": pair.over, **changed}
    with pytest.raises(error, match=message):
        ss.Checkpoint(arguments["fork"]).promote(over=arguments["over"], spark=spark)
    assert tree(pair.over.parent) == before


def test_a_fork_behind_or_ahead_is_refused(spark: SparkSession, pair: Pair) -> None:
    """The message has the epochs to run, and where."""
    early = ss.Checkpoint(pair.over).fork(pair.over.parent / "early", at=0)
    behind = r"behind: .* at epoch 0, .* at epoch 1.\nRun epochs 1 to 1 on the fork: ss.Checkpoint\(.*epochs=1\)"
    refused(pair, spark, PromotionError, behind, fork=early)
    shutil.copy(pair.fork / "offsets" / "1", pair.fork / "offsets" / "2")
    shutil.copy(pair.fork / "commits" / "1", pair.fork / "commits" / "2")
    refused(pair, spark, PromotionError, r"ahead: .* at epoch 2, .* at epoch 1.\nRun .* until epoch 2 is committed")


@pytest.mark.parametrize("side", sampled(["fork", "over"], 1))
def test_an_epoch_that_was_begun_is_refused(spark: SparkSession, pair: Pair, side: str) -> None:
    """Its results may be in the sink."""
    offsets = getattr(pair, side) / "offsets"
    shutil.copy(offsets / "1", offsets / "2")
    refused(pair, spark, PromotionError, r"Epoch 2 of .* was begun but not committed.*\nStart the query with the same")


@pytest.mark.usefixtures("uncompared")
def test_other_queries_and_folders_are_refused(spark: SparkSession, pair: Pair) -> None:
    """A fork of another query, a missing checkpoint, one folder for both, and a fork that was promoted already."""
    folder = pair.over.parent
    refused(pair, spark, NotACheckpointError, "is not the checkpoint", over=folder / "nowhere")
    refused(pair, spark, NotACheckpointError, "is not the checkpoint", fork=folder / "nowhere")
    refused(pair, spark, PromotionError, "the same folder", fork=pair.over)
    other = ss.Checkpoint(pair.over).fork(folder / "other")
    refused(pair, spark, PromotionError, "a fork of another query: of ", over=other.path)
    kept = pair.kept
    kept.mkdir()
    (kept / "file").touch()
    refused(pair, spark, PromotionError, "already exists.\nMove it away")
    shutil.rmtree(kept)
    ss.Checkpoint(pair.fork).promote(over=pair.over, spark=spark)
    refused(pair, spark, PromotionError, "has taken the place of .* already, after epoch 1")
    refused(pair, spark, PromotionError, "has not run since a fork took its place", fork=other.path)


def test_other_input_is_refused(spark: SparkSession, pair: Pair) -> None:
    """Another file, another offset, another number of sources."""
    log = pair.fork / "sources" / "0" / "1"
    text = log.read_text()
    log.write_text(text.replace("00001.parquet", "00009.parquet"))
    refused(pair, spark, PromotionError, "has not read the same input .*: sources/0 differs")
    log.write_text(text)
    plan = pair.fork / "offsets" / "1"
    plan.write_text(f"{plan.read_text()}\n7")
    refused(pair, spark, PromotionError, "reads 2 sources, .* 1, or they have other names")


@pytest.mark.parametrize("replacing", [False, True])
def test_no_query_starts_behind_a_barrier(spark: SparkSession, pair: Pair, tmp_path: Path, replacing: bool) -> None:
    """While a promotion replaces files one by one, neither Spark nor a capture takes a half of them for all."""
    metadata = pair.over / "metadata"
    metadata.write_text(Barrier(metadata.read_text(), replacing).text())
    (pair.over / ".metadata.crc").unlink()
    before = tree(pair.over)
    with pytest.raises(Py4JJavaError, match="streamstate_is_replacing_this_checkpoint"):
        started(pair.run.inputs.stream(spark).groupBy("k").count(), pair.over)
    with pytest.raises(CaptureError, match=r"are being replaced, or that was interrupted\.\n.*promotion\(\)"):
        ss.Checkpoint(pair.over).capture(tmp_path / "store", "q")
    assert tree(pair.over) == before


@pytest.mark.parametrize("uri", ["s3a://bucket/delays", "abfss://container@account/delays", "hdfs://nodes/delays"])
def test_folders_are_renamed_where_that_is_one_step(uri: str) -> None:
    """On the local disk and in HDFS; in an object store files are replaced behind a barrier."""
    assert renames_folders(uri) == uri.startswith("hdfs")


@pytest.mark.usefixtures("uncompared")
def test_a_running_query_is_refused(spark: SparkSession, pair: Pair) -> None:
    """Neither of the two may run; nor may the promoted query when the promotion is undone."""
    promotion = ss.Checkpoint(pair.fork).promote(over=pair.over, spark=spark)
    query = spark.readStream.format("rate").load().writeStream.format("noop").start()
    try:
        for file in (pair.fork / "metadata", pair.over / "metadata"):
            text = file.read_text()
            file.write_text(json.dumps({**json.loads(text), "id": str(query.id)}))
            with pytest.raises(QueryError, match=r"is running.*\nStop it first"):
                promotion.undo() if file.parent == pair.over else ss.Checkpoint(pair.fork).promote(
                    over=pair.over, spark=spark
                )
            file.write_text(text)
    finally:
        query.stop()
