"""``ss.bootstrap``: a first checkpoint from rows, or from history, that the stream does not read again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from operators.queries import JOINS, WINDOWS, aggregated
from operators.running import Query, Run, rows, with_settings
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructType
from sampling import sampled

import streamstate as ss
from new_checkpoint.restored import gone_on
from streamstate.errors import InvalidArgumentError, StateWriteError, StreamStateError
from streamstate.operations.new_checkpoint.target import TargetTable
from streamstate.reports import WrittenCheckpoint
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.checkpoint.state_tables import Shape, StateSource
from streamstate.snapshots.spark.state_comparison import StateAt, state_differences

COUNTED = aggregated("count(v) AS rows", "max(v) AS most")
FROM_HISTORY = {"aggregation": COUNTED, "join": JOINS["left_outer"], "session window": WINDOWS["session window"]}


class History(Run):
    """Two files of history, and later two more."""

    def build(self, query: Query) -> DataFrame:
        """The query over all files."""
        return query.build(self.inputs.stream(with_settings(self.spark, query.conf)))

    def covered(self) -> list[str]:
        """The files that are there now."""
        return [str(self.inputs.folder / "*.parquet")]

    def state(self) -> DataFrame:
        """Return the state of ``COUNTED`` after the history, computed as a batch."""
        history = self.spark.read.schema("k string, v long, t timestamp").parquet(str(self.inputs.folder))
        return history.groupBy("k").agg(F.count("v").alias("count"), F.max("v").alias("max"))


@pytest.fixture
def history(spark: SparkSession, tmp_path: Path) -> History:
    """Its first two files."""
    made = History(spark, tmp_path)
    for epoch in range(2):
        made.inputs.add(rows(epoch))
    return made


def check(history: History, query: Query, new: WrittenCheckpoint) -> None:
    """Going on over two more files equals the query over all of them; the first two are not read again."""
    for epoch in (2, 3):
        history.inputs.add(rows(epoch))
    newest = gone_on(history, query, new)
    assert newest >= 2
    whole = Run(history.spark, history.folder / "whole")
    whole.start(query, epochs=range(4))
    states = (StateAt(path, CheckpointFiles(path).committed()[-1]) for path in (new.path, str(whole.checkpoint)))
    assert not state_differences(history.spark, *states)


def test_from_rows(history: History) -> None:
    """The rows are the state of epoch 0, and the stream goes on after the files that they cover."""
    target = history.folder / "made"
    new = ss.bootstrap(lambda: history.build(COUNTED), to=target, state=history.state(), offsets=[history.covered()])
    assert (new.epoch, new.rows) == (0, {"op0": history.state().count()})
    check(history, COUNTED, new)


@pytest.mark.slow
@pytest.mark.parametrize("name", sampled(FROM_HISTORY, 1))
@pytest.mark.parametrize("given", sampled(["offsets", "now"], 1))
def test_from_history(history: History, name: str, given: str) -> None:
    """The query reads it as one epoch; with offsets, only what they cover."""
    query = FROM_HISTORY[name]
    offsets: Any = [history.covered()] * (2 if name == "join" else 1) if given == "offsets" else None
    new = ss.bootstrap(
        lambda: history.build(query), to=history.folder / "made", batch=True, offsets=offsets, mode=query.mode
    )
    assert sum(new.rows.values()) > 0
    if name == "aggregation":
        check(history, query, new)


@pytest.mark.slow
def test_bad_input_writes_nothing(history: History) -> None:
    """Each error says what would be right."""
    state = history.state()
    cases: list[tuple[dict[str, Any], type[StreamStateError], str]] = [
        ({}, InvalidArgumentError, "either state="),
        ({"state": state, "batch": True}, InvalidArgumentError, "not both"),
        ({"state": state.drop("max")}, StateWriteError, "has k, count, max"),
        ({"state": state.unionAll(state.limit(1))}, StateWriteError, "Several rows for op0 have the key k ="),
        ({"state": {"op1": state}}, StreamStateError, "op0"),
        ({"state": state.selectExpr("k", "count", "'x' AS max")}, StateWriteError, "cannot be written"),
        ({"state": state, "offsets": []}, InvalidArgumentError, "one for each source"),
        ({"state": state, "offsets": [["nothing-*.parquet"]]}, InvalidArgumentError, "No file matches"),
        ({"state": state, "offsets": ["all"]}, InvalidArgumentError, "list of paths"),
        ({"state": state, "mode": "upsert"}, InvalidArgumentError, "update, append or complete"),
    ]
    for options, error, message in cases:
        with pytest.raises(error, match=message):
            ss.bootstrap(lambda: history.build(COUNTED), to=history.folder / "made", **options)
    assert sorted(path.name for path in history.folder.iterdir()) == ["input"]


def test_what_has_expired_is_refused(spark: SparkSession) -> None:
    """Timers in processing time and rows of a variable with a TTL: they would be gone with the first epoch."""
    kinds = {"k": StringType(), "value": LongType(), "ttlExpirationMs": LongType()}
    source = StateSource("op0_kept", Shape.KEYED, {}, "transformWithStateInPandasExec", "ProcessingTime")
    kept = TargetTable(source, StructType(), ("k",), kinds)
    kept.check_not_past(spark.sql("SELECT 'a' AS k, 1L AS value, 1L << 60 AS ttlExpirationMs"))
    past = spark.sql("SELECT * FROM VALUES ('a', 1L, 1000L), ('b', 2L, 1L << 60) AS rows (k, value, ttlExpirationMs)")
    with pytest.raises(StateWriteError, match=r"1 rows for op0_kept .* ttlExpirationMs is 1970-01-01 00:00:01"):
        kept.check_not_past(past)
