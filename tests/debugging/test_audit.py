"""Replays of deterministic queries equal the recorded states; sources of nondeterminism are found and named."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from input_files import in_turn
from operators.processors import TRANSFORM
from operators.queries import JOINS, OTHERS, WINDOWS
from operators.running import Query, Run
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import DoubleType
from sampling import sampled
from stepping import builder, tree, untouched

import streamstate as ss
from streamstate.errors import (
    EpochGoneError,
    InvalidArgumentError,
    NotACheckpointError,
    NotReplayableError,
)
from streamstate.reports import Audit

pytestmark = pytest.mark.slow

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]

EPOCHS = 3
FILES = 3


class Arrival(StatefulProcessor):
    """Stores rows in the order in which they arrive."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the list."""
        self._kept = handle.getListState("kept", "v long")

    def handleInputRows(self, key: tuple[Any, ...], rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        """Append the values."""
        for frame in rows:
            for value in frame["v"].tolist():
                self._kept.appendValue((value,))
        return iter(())


def timed(stream: DataFrame) -> DataFrame:
    """An aggregate of all functions that return the epoch's timestamp."""
    columns = {"a": "current_timestamp()", "b": "current_date()", "c": "unix_timestamp()", "d": "localtimestamp()"}
    stamped = stream.selectExpr("k", "v", *(f"{call} AS {name}" for name, call in columns.items()))
    return stamped.groupBy("k").agg(F.count("*"), F.sum("v"), *(F.max(name) for name in columns))


def by_processor(processor: StatefulProcessor, time_mode: str) -> Callable[[DataFrame], DataFrame]:
    """A query with a processor, whose input rows come from several partitions."""
    return lambda stream: (
        stream.repartition("v")
        .groupBy("k")
        .transformWithStateInPandas(processor, "k string, n long", "update", time_mode)
    )


CLEAN = {
    "aggregation and the epoch's own time": Query(timed, ()),
    "sliding window": WINDOWS["sliding window"],
    "session window": WINDOWS["session window"],
    "event-time timers": TRANSFORM["pandas, event time and timers"],
    "processing-time timers": TRANSFORM["rows, processing time, TTL and timers"],
    "deduplication": OTHERS["dropDuplicates with a watermark"],
    "join": JOINS["left_outer"],
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", sampled(CLEAN, 1))
def test_a_deterministic_query_is_clean(spark: SparkSession, tmp_path: Path, name: str) -> None:
    """All states equal the recorded ones, even with another number of partitions; the original is unchanged."""
    run, query = Run(spark, tmp_path), CLEAN[name]
    run.start(query, epochs=range(EPOCHS))
    before = tree(run.checkpoint)
    audit = ss.Checkpoint(run.checkpoint).audit(builder(run, query), replays=1, mode=query.mode, spark=spark)
    assert audit.clean, repr(audit)
    assert audit.first is None
    assert [(replay.partitions, replay.upto) for replay in audit.replays] == [
        (2, audit.epochs[-1]),
        (3, audit.epochs[-1]),
    ]
    assert repr(audit).startswith("Deterministic")
    assert untouched(before, run.checkpoint)


def outside(folder: Path) -> Callable[[DataFrame], DataFrame]:
    """An aggregate of values that depend on the content of a file."""
    path = str(folder / "rate.txt")

    @F.udf("long")
    def rated(v: int) -> int:
        with open(path) as file:  # noqa: PTH123 (what a user writes)
            return v * int(file.read())

    return lambda stream: stream.withColumn("x", rated("v")).groupBy("k").agg(F.sum("x"))


@F.udf(DoubleType())
def wall_clock(v: int) -> float:
    """Add the current time."""
    return v + time.time()


def shuffled(aggregate: Any) -> Callable[[DataFrame], DataFrame]:
    """An aggregate of repartitioned rows."""
    return lambda stream: stream.repartition("v").groupBy("k").agg(aggregate)


FAULTS: dict[str, tuple[Callable[[Path], Callable[[DataFrame], DataFrame]], str, bool]] = {
    "rand": (lambda _: lambda s: s.withColumn("r", F.rand(42)).groupBy("k").agg(F.max("r")), "rand()", True),
    "uuid": (lambda _: lambda s: s.withColumn("r", F.expr("uuid()")).groupBy("k").agg(F.max("r")), "uuid()", True),
    "now": (lambda _: lambda s: s.withColumn("r", F.expr("now()")).groupBy("k").agg(F.max("r")), "now()", True),
    "wall clock": (
        lambda _: lambda s: s.withColumn("r", wall_clock("v")).groupBy("k").agg(F.max("r")),
        "time.time",
        True,
    ),
    "outside": (outside, "open", True),
    "collect_list": (lambda _: shuffled(F.collect_list("v")), "collect_list(v)", False),
    "first": (lambda _: shuffled(F.first("v")), "first(v)", False),
    "list state": (lambda _: by_processor(Arrival(), "None"), "the order of rows in TransformWithState", False),
}
"""The query, the likely cause, and whether a replay with the same number of partitions diverges, by name."""


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", sampled(FAULTS, 1))
def test_a_divergence_is_found_and_its_cause_is_named(spark: SparkSession, tmp_path: Path, name: str) -> None:
    """An audit reports the first diverging epoch, table and key, both values, and the most likely cause."""
    make, cause, same_partitions = FAULTS[name]
    (tmp_path / "rate.txt").write_text("3")
    query = Query(make(tmp_path), ())
    frame = several_files(spark, tmp_path, query)
    checkpoint = tmp_path / "checkpoint"
    run_to_the_end(frame(), checkpoint)
    (tmp_path / "rate.txt").write_text("4")
    audit = ss.Checkpoint(checkpoint).audit(frame, replays=1, spark=spark)
    assert not audit.clean
    assert [replay.same for replay in audit.replays] == [not same_partitions, False]
    first = audit.first
    assert first is not None
    assert (first.epoch, first.table.split("_")[0], "k" in "".join(first.key)) == (0, "op0", True)
    assert first.recorded != first.replayed
    assert first.suspects[0].what.startswith(cause), repr(audit)
    assert repr(audit).startswith("Not deterministic at epochs 0 to 2")
    assert cause.split("(")[0] in audit._repr_html_()


def several_files(spark: SparkSession, folder: Path, query: Query) -> Callable[[], DataFrame]:
    """Write input with several files per epoch; return the query over it."""
    source = folder / "input"
    source.mkdir()
    for number in range(EPOCHS * FILES):
        values = [*range(number * 12, number * 12 + 12)]
        file = source / f"{number:03}.parquet"
        pd.DataFrame({"k": [f"k{v % 2}" for v in values], "v": values}).to_parquet(file)
        in_turn(file, number)
    reader = spark.readStream.schema("k string, v long").option("maxFilesPerTrigger", FILES)
    return lambda: query.build(reader.parquet(str(source)))


def run_to_the_end(frame: DataFrame, checkpoint: Path) -> None:
    """Run a query over the available input until it ends."""
    writer = frame.writeStream.format("noop").outputMode("update").option("checkpointLocation", str(checkpoint))
    writer.trigger(availableNow=True).start().awaitTermination()


@pytest.fixture(scope="module")
def plain(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Callable[[], DataFrame]]:
    """The folder and the code of a finished query with three epochs."""
    folder = tmp_path_factory.mktemp("plain")
    frame = several_files(spark, folder, Query(lambda s: s.groupBy("k").agg(F.sum("v")), ()))
    run_to_the_end(frame(), folder / "checkpoint")
    return folder, frame


@pytest.mark.exhaustive
def test_part_of_a_history_is_audited(
    spark: SparkSession, plain: tuple[Path, Callable[[], DataFrame]], tmp_path: Path
) -> None:
    """Replays start from the recorded state before the first epoch. With a directory, they are kept."""
    folder, frame = plain
    reported: list[tuple[str, float | None]] = []
    audit = ss.Checkpoint(folder / "checkpoint").audit(
        frame,
        epochs=(1, 2),
        replays=1,
        partitions=5,
        store=tmp_path / "store",
        directory=tmp_path / "kept",
        spark=spark,
        progress=lambda line, share: reported.append((line, share)),
    )
    assert audit.clean, repr(audit)
    assert [replay.partitions for replay in audit.replays] == [2, 5]
    assert {path.name for path in (tmp_path / "kept").iterdir()} >= {"replay-1", "replay-2"}
    assert ss.open_store(tmp_path / "store")["checkpoint"].captured() == [0, 1, 2]
    assert [line for line, _ in reported] == [
        f"Replay {number} of 2: epoch {epoch}" for number in (1, 2) for epoch in (1, 2)
    ]
    assert [share for _, share in reported] == [0, 0.25, 0.5, 0.75]


def test_changed_code_is_distinguished_from_nondeterminism(
    spark: SparkSession, plain: tuple[Path, Callable[[], DataFrame]]
) -> None:
    """If the replays agree and the query has no suspects, the report suggests that the code or the input changed."""
    folder, frame = plain
    audit = ss.Checkpoint(folder / "checkpoint").audit(
        lambda: (
            frame()
            .sparkSession.readStream.schema("k string, v long")
            .option("maxFilesPerTrigger", FILES)
            .parquet(str(folder / "input"))
            .withColumn("v", F.col("v") + 1)
            .groupBy("k")
            .agg(F.sum("v"))
        ),
        epochs=(1, 1),
        replays=1,
        spark=spark,
    )
    assert audit.first is not None
    assert (audit.first.epoch, audit.first.suspects) == (1, ())
    assert "the code, the settings or the input may have changed" in repr(audit)


def test_an_invalid_audit_is_refused_before_anything_runs(
    spark: SparkSession, plain: tuple[Path, Callable[[], DataFrame]], tmp_path: Path
) -> None:
    """Missing epochs, sources that do not keep their input and invalid arguments are refused."""
    folder, frame = plain
    checkpoint = folder / "checkpoint"
    before = tree(checkpoint)

    def socket() -> DataFrame:
        lines = spark.readStream.format("socket").option("host", "localhost").option("port", "9").load()
        return lines.groupBy("value").count()

    with pytest.raises(EpochGoneError, match=r"cannot be replayed: 3, 4\. .*\nEpochs 0 to 2 can be replayed"):
        ss.Checkpoint(checkpoint).audit(frame, epochs=(2, 4), spark=spark)
    with pytest.raises(NotReplayableError, match="socket"):
        ss.Checkpoint(checkpoint).audit(socket, spark=spark)
    with pytest.raises(NotACheckpointError):
        ss.Checkpoint(tmp_path).audit(frame, spark=spark)
    invalid: list[dict[str, Any]] = [{"epochs": (2, 1)}, {"replays": 0}, {"partitions": 2}, {"directory": folder}]
    for arguments in invalid:
        with pytest.raises(InvalidArgumentError):
            ss.Checkpoint(checkpoint).audit(frame, spark=spark, **arguments)
    assert untouched(before, checkpoint)


def test_an_interrupt_leaves_nothing_behind(
    spark: SparkSession, plain: tuple[Path, Callable[[], DataFrame]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a temporary folder nor a running query is left."""
    folder, frame = plain
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def interrupt(line: str, share: float | None) -> None:
        if share:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ss.Checkpoint(folder / "checkpoint").audit(frame, spark=spark, progress=interrupt)
    assert [path for path in tmp_path.iterdir() if "audit" in path.name] == []
    assert spark.streams.active == []


def test_an_audit_says_where_records_may_be_missing() -> None:
    """Of the first epochs."""
    doubts = dict.fromkeys(range(7), "19 records of 20 offsets are left")
    shown = repr(Audit("checkpoint", "id", "update", range(7), 1, ("op0",), (), (), doubts))
    assert "Epoch 4: 19 records of 20 offsets are left.\n  And 2 more epochs in doubts." in shown
