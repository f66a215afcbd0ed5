"""The filter: what an epoch keeps, counts and weighs, and that whatever runs it again keeps the same."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from conftest import Source
from oracle import spark_rows
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from spark_settings import SHARED

import streamstate as ss
from streamstate.errors import (
    InvalidArgumentError,
    InvalidNameError,
    QueryError,
    UnknownColumnError,
    VariableError,
)
from streamstate.reports import History, Running
from streamstate.shedding import declare_level, level_for, weighted_count, weighted_mean, weighted_sum
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.store.epoch_load import ShedCounts
from streamstate.variables.shedding.level import ALL, Level

pytestmark = pytest.mark.slow

ROWS, GROUPS = 600, 3
LEVELS = (level_for(), level_for("delay > 60", 0.25), level_for(None, 0.5))
"""The level of each epoch of the recorded query."""
SCHEMA = "event_id string, k long, delay double"


def rows_of(epoch: int) -> dict[str, list[Any]]:
    """Rows of which some have no id, and some no delay."""
    numbers = range(ROWS * epoch, ROWS * (epoch + 1))
    return {
        "event_id": [None if number % 50 == 0 else f"e{number}" for number in numbers],
        "k": [number % GROUPS for number in numbers],
        "delay": [None if number % 40 == 7 else float(number % 120) for number in numbers],
    }


@dataclass
class Recorded:
    """A query of three epochs, each with a level of its own; its level was set again since."""

    source: Source
    folder: Path
    progress: list[Any]

    @property
    def store(self) -> Path:
        """The store."""
        return self.folder / "store"

    @property
    def checkpoint(self) -> ss.Checkpoint:
        """The query's checkpoint."""
        return ss.Checkpoint(self.folder / "q")

    @property
    def history(self) -> History:
        """The captured query."""
        return ss.open_store(self.store)["q"]

    def build(self) -> DataFrame:
        """The query's code."""
        kept = ss.shed(self.source.stream(), value="delay", weight="w")
        return totals(kept)


def totals(kept: DataFrame) -> DataFrame:
    """Totals by key, with their errors."""
    return kept.groupBy("k").agg(
        F.count("*").alias("n"),
        weighted_sum("delay").alias("total"),
        weighted_mean("delay").alias("mean"),
        weighted_count().alias("rows"),
    )


def ended(
    frame: DataFrame, name: str, store: Path, checkpoint: Path | str | None = None, **options: Any
) -> tuple[Running, list[Any]]:
    """Run a query over all available input."""
    running = ss.start(frame, name, store, checkpoint=checkpoint, trigger="available-now", **options)
    running.wait(timeout=300)
    assert running.query is not None
    progress = list(running.query.recentProgress)
    running.stop()
    return running, progress


def counted(progress: Any) -> ShedCounts:
    """The counts of a progress event."""
    found = ShedCounts.observed({name: row.asDict() for name, row in progress["observedMetrics"].items()})
    assert found is not None
    assert found.rows == found.kept + sum(found.dropped.values())
    return found


@pytest.fixture(scope="module")
def recorded(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """The query has ended."""
    folder = tmp_path_factory.mktemp("shed")
    made = Recorded(Source(spark, folder / "input", SCHEMA), folder, [])
    for epoch, level in enumerate(LEVELS):
        made.source.add(rows_of(epoch))
        if epoch:
            ss.shared(made.store, "q_shed").set(level)
        _, progress = ended(made.build(), "q", made.store, folder / "q")
        made.progress.extend(progress)
    ss.shared(made.store, "q_shed").set(level_for(None, 0.01))
    return made


def added_file(recorded: Recorded) -> Path:
    """A file of input more, for the test to remove."""
    recorded.source.add(rows_of(3))
    return max(recorded.source.folder.glob("*.parquet"))


@dataclass(frozen=True)
class Judged:
    """A row of input, and what a level makes of it: the rule, written again in Python."""

    key: int
    delay: float | None
    no_id: bool
    share: int
    reason: str
    kept: bool

    @property
    def weight(self) -> float:
        """Its weight, if it is kept."""
        return ALL / self.share


def judged(spark: SparkSession, epoch: int, value: Mapping[str, Any]) -> list[Judged]:
    """The rows of an epoch under a level."""
    level, rows = Level.of(value), rows_of(epoch)
    known = [*zip(*rows.values(), strict=True)]
    hashes = [row[0] for row in spark.createDataFrame(known, SCHEMA).select(F.xxhash64("event_id")).collect()]
    made = []
    for (event, key, delay), hashed in zip(known, hashes, strict=True):
        share, interval = ALL if event is None else level.share(delay), level.interval(delay)
        reason = str(interval) if interval else "no_value"
        made.append(Judged(key, delay, event is None, share, reason, hashed % ALL < share))
    return made


def expected(spark: SparkSession, levels: Sequence[Mapping[str, Any]]) -> dict[int, Any]:
    """The result after epochs with some levels: the kept rows, and the three estimates with their errors."""
    kept = [row for epoch, level in enumerate(levels) for row in judged(spark, epoch, level) if row.kept]
    found: dict[int, Any] = {}
    for key in range(GROUPS):
        rows = [row for row in kept if row.key == key]
        valued = [(row.weight, row.delay) for row in rows if row.delay is not None]
        total = sum(w * x for w, x in valued)
        mean = total / sum(w for w, _ in valued)
        estimates = {
            "total": (total, sum(w * (w - 1) * x * x for w, x in valued) ** 0.5),
            "mean": (mean, sum(w * (w - 1) * (x - mean) ** 2 for w, x in valued) ** 0.5 / sum(w for w, _ in valued)),
            "rows": (sum(row.weight for row in rows), sum(row.weight * (row.weight - 1) for row in rows) ** 0.5),
        }
        found[key] = {"k": key, "n": len(rows)} | {
            name: {"estimate": pytest.approx(value), "error": pytest.approx(error, rel=1e-6, abs=1e-6)}
            for name, (value, error) in estimates.items()
        }
    return found


def result_of(history: History, epoch: int | None = None) -> dict[int, Any]:
    """The same, as the captured result has it."""
    snapshot = history.live() if epoch is None else history.at(epoch)
    return {row["k"]: row for row in snapshot.result().to_arrow().to_pylist()}


@pytest.mark.parametrize("epoch", range(len(LEVELS)))
def test_an_epoch_keeps_what_its_level_says(spark: SparkSession, recorded: Recorded, epoch: int) -> None:
    """By the id's hash; all rows without an id; rows without a value by the base share. Errors follow from them."""
    assert expected(spark, LEVELS[: epoch + 1]) == result_of(recorded.history, epoch)


@pytest.mark.parametrize("epoch", range(len(LEVELS)))
def test_each_row_is_counted_once(spark: SparkSession, recorded: Recorded, epoch: int) -> None:
    """Kept and dropped are all rows, by the reason, with the level's version."""
    counts, rows = counted(recorded.progress[epoch]), judged(spark, epoch, LEVELS[epoch])
    assert counts.rows == ROWS
    assert counts.kept == sum(row.kept for row in rows)
    assert counts.kept_null_id == sum(row.no_id for row in rows) == ROWS // 50
    assert counts.dropped == Counter(row.reason for row in rows if not row.kept)
    assert counts.intervals == Counter(row.reason for row in rows if not row.no_id and row.delay is not None)
    assert counts.level == epoch


def test_sql_reads_estimates_and_errors(recorded: Recorded) -> None:
    """As fields of the result's structs, without Spark."""
    found = ss.open_store(recorded.store).sql("SELECT k, total.estimate AS e, total.error AS s FROM q.result")
    rows = result_of(recorded.history)
    assert [(row["e"], row["s"]) for row in found.to_arrow().to_pylist()] == [
        (rows[row["k"]]["total"]["estimate"], rows[row["k"]]["total"]["error"]) for row in found.to_arrow().to_pylist()
    ]
    first = result_of(recorded.history, 0)
    assert {row[name]["error"] for name in ("total", "mean", "rows") for row in first.values()} == {0.0}


def test_a_replay_keeps_the_same(recorded: Recorded) -> None:
    """Each epoch sees the level that it was bound to, not the newest."""
    assert recorded.checkpoint.replay(recorded.build, epochs=(0, 2)).same


@pytest.mark.exhaustive  # a replay keeps the same
def test_an_audit_finds_it_deterministic(recorded: Recorded) -> None:
    """Also with another number of partitions."""
    assert recorded.checkpoint.audit(recorded.build, epochs=(1, 2)).clean


def test_a_fork_may_see_another_level(spark: SparkSession, recorded: Recorded, tmp_path: Path) -> None:
    """A step without values is bound as the original was; with a value, its epochs see that."""
    same, other = (recorded.checkpoint.fork(tmp_path / name, at=0) for name in ("same", "other"))
    same.step(recorded.build, epochs=2)
    assert spark_rows(spark, same.path, "op0", 2) == spark_rows(spark, recorded.checkpoint.path, "op0", 2)
    what_if = level_for(None, 0.1)
    other.step(recorded.build, epochs=2, shared={"q_shed": what_if})
    other.capture(tmp_path / "store", "other")
    table = ss.open_store(tmp_path / "store")["other"].live().table().to_arrow().to_pylist()
    counts = {key: row["n"] for key, row in expected(spark, (LEVELS[0], what_if, what_if)).items()}
    assert {row["k"]: row["count"] for row in table} == counts
    with pytest.raises(InvalidArgumentError, match="Invalid level of shedding"):
        recorded.checkpoint.fork(tmp_path / "bad", at=0).step(
            recorded.build, shared={"q_shed": {"bounds": [], "keep": [], "base": 1}}
        )


def test_the_input_behind_a_change_is_what_was_kept(spark: SparkSession, recorded: Recorded) -> None:
    """Inputs are all rows of the epoch; those behind a change are the kept ones of its key."""
    assert recorded.history.inputs(1).count() == ROWS
    kept = sum(row.kept for row in judged(spark, 1, LEVELS[1]) if row.key == 1)
    why = recorded.history.why(1, k=1)
    with why.bound():
        assert why.sides["rows"].count() == kept


def test_a_fork_that_runs_has_a_level_of_its_own(spark: SparkSession, recorded: Recorded, tmp_path: Path) -> None:
    """It begins with the level of the epoch that was forked; setting its level moves the fork, and the fork alone."""
    fork = recorded.checkpoint.fork(tmp_path / "fork", at=1)
    running, _ = ended(recorded.build(), "forked", recorded.store, fork.path)
    level = ss.shared(recorded.store, "forked_shed")
    assert level.get() == LEVELS[1]
    assert expected(spark, (*LEVELS[:2], LEVELS[1])) == result_of(running.history)
    level.set(LEVELS[0])
    added = added_file(recorded)
    _, progress = ended(recorded.build(), "forked", recorded.store, fork.path)
    assert counted(progress[-1]).kept == ROWS
    assert running.history.bindings().query("epoch > 1")["variable"].unique().tolist() == ["forked_shed"]
    added.unlink()


def test_a_query_that_sheds_no_more_goes_on(recorded: Recorded, tmp_path: Path) -> None:
    """Spark cannot remove the source that binds epochs, so the level stays, without effect."""
    fork = recorded.checkpoint.fork(tmp_path / "fork", at=1)
    kept_all = totals(recorded.source.stream().withColumn("w", F.lit(1.0)))
    running, _ = ended(kept_all, "plain", recorded.store, fork.path)
    counts = [sum(row["n"] for row in result_of(recorded.history, 1).values())]
    counts.append(sum(row["n"] for row in result_of(running.history).values()))
    assert counts[1] - counts[0] == ROWS


def test_spark_filters_without_python(spark: SparkSession, recorded: Recorded, tmp_path: Path) -> None:
    """The rows are in compiled stages; the level is read once, in a plan of one row beside them."""
    spark.conf.set("spark.sql.codegen.wholeStage", "true")
    query = recorded.build().writeStream.format("noop").outputMode("update").trigger(availableNow=True)
    started = query.option("checkpointLocation", str(tmp_path / "plain")).start()
    started.awaitTermination()
    spark.conf.set("spark.sql.codegen.wholeStage", SHARED["spark.sql.codegen.wholeStage"])
    counts = [counted(progress) for progress in started.recentProgress]
    assert {(each.kept, each.level) for each in counts} == {(ROWS, None)}, "no level is bound"
    plan = started._jsq.streamingQuery().lastExecution().executedPlan().toString()
    assert plan.count("BatchEvalPython") == plan.count("Range (0, 1") == 1, plan
    for operator in ("Filter (isnotnull(_streamstate_shed_kept", "Project [event_id"):
        assert all("*(" in line for line in plan.splitlines() if operator in line), plan


def test_counts_are_right_under_every_sink_and_plan(spark: SparkSession, recorded: Recorded, tmp_path: Path) -> None:
    """A function that reads an epoch several times, adaptive plans, several partitions, and epochs without rows."""

    def several_times(batch: DataFrame, _epoch: int) -> None:
        batch.count()
        batch.write.format("noop").mode("append").save()

    declare_level(tmp_path / "store", "twice", init=LEVELS[1])
    _, progress = ended(recorded.build(), "twice", tmp_path / "store", sink=several_times)
    assert [counted(each).kept for each in progress] == [
        sum(row.kept for row in judged(spark, epoch, LEVELS[1])) for epoch in range(len(LEVELS))
    ]
    spark.conf.set("spark.sql.adaptive.enabled", "true")
    spread = ss.shed(recorded.source.stream().repartition(5), value="delay").repartition(3)
    for number, write in enumerate((several_times, None)):
        writer = spread.writeStream.trigger(availableNow=True)
        writer = writer.option("checkpointLocation", str(tmp_path / str(number)))
        query = (writer.format("noop") if write is None else writer.foreachBatch(write)).start()
        query.awaitTermination()
        assert [counted(each).rows for each in query.recentProgress] == [ROWS] * len(LEVELS)
    spark.conf.unset("spark.sql.adaptive.enabled")


def test_an_epoch_without_rows_counts_none(recorded: Recorded, tmp_path: Path) -> None:
    """As one that only begins because the level was set, and the first after a restart."""
    store = tmp_path / "store"
    running = ss.start(recorded.build(), "live", store)
    running.wait(epoch=2, timeout=300)
    ss.shared(store, "live_shed").set(LEVELS[2])
    running.wait(epoch=3, timeout=300)
    assert running.query is not None
    last = counted(running.query.recentProgress[3])
    running.stop()
    assert (last.rows, last.kept, last.dropped) == (0, 0, {})
    assert running.history.bindings()["version"].tolist() == [0, 0, 0, 1]


def test_two_sources_shed_under_names(spark: SparkSession, recorded: Recorded, tmp_path: Path) -> None:
    """By one level; rows with one id are kept on both sides, so that a join by it keeps the level's share."""

    def side(name: str | None, weight: str) -> DataFrame:
        timed = recorded.source.stream().withColumn("t", F.timestamp_seconds(F.lit(0))).where("event_id IS NOT NULL")
        kept: DataFrame = ss.shed(timed.withWatermark("t", "1 hour").select("event_id", "t"), weight=weight, name=name)
        return kept

    with pytest.raises(AnalysisException, match="The metric name is not unique: streamstate_shed"):
        side(None, "w").join(side(None, "w2"), ["event_id", "t"])
    declare_level(tmp_path / "store", "joined", init=LEVELS[2])
    joined = side(None, "w").join(side("right", "w2"), ["event_id", "t"])
    _, progress = ended(joined, "joined", tmp_path / "store", mode="append")
    first = progress[0]["observedMetrics"]
    assert first["streamstate_shed"]["kept"] == first["streamstate_shed_right"]["kept"]
    assert counted(progress[0]).rows == 2 * first["streamstate_shed"]["rows"]


def test_a_query_that_was_begun_without_can_go_on_as_a_fork(recorded: Recorded, tmp_path: Path) -> None:
    """Its checkpoint is refused, and the way that the message names works."""
    store, source = tmp_path / "store", recorded.source.stream()
    ended(source.groupBy("k").count(), "old", store, tmp_path / "old")
    frame = ss.shed(source).groupBy("k").count()
    with pytest.raises(QueryError, match=r"begun without ss\.shed") as raised:
        ended(frame, "old", store, tmp_path / "old")
    assert "shared=(streamstate.shedding.declare_level(store, new_name),)" in str(raised.value)
    assert not [name for name in ss.open_store(store).queries() if name.startswith("shared.")]
    assert len(CheckpointFiles(tmp_path / "old").committed()) == len(LEVELS)
    level = declare_level(store, "new", init=level_for(None, 0.5))
    fork = ss.Checkpoint(tmp_path / "old").fork(tmp_path / "new", shared=(level,))
    added = added_file(recorded)
    _, progress = ended(frame, "new", store, fork.path)
    assert counted(progress[-1]).dropped["level"] > 0
    added.unlink()


REFUSED: dict[str, tuple[Callable[[DataFrame], object], type[Exception], str]] = {
    "above state": (lambda rows: ss.shed(rows.groupBy("k").count(), id="k"), QueryError, "keeps state"),
    "above a deduplication": (lambda rows: ss.shed(rows.dropDuplicates(["event_id"])), QueryError, "keeps state"),
    "twice": (lambda rows: ss.shed(ss.shed(rows)), QueryError, "sheds already"),
    "a batch": (lambda rows: ss.shed(rows.sparkSession.range(3), id="id"), QueryError, "batch DataFrame"),
    "no frame": (lambda _rows: ss.shed(3), QueryError, "value of type int"),  # type: ignore[arg-type]
    "no such id": (lambda rows: ss.shed(rows, id="event"), UnknownColumnError, "Did you mean 'event_id'"),
    "no such value": (lambda rows: ss.shed(rows, value="dely"), UnknownColumnError, "Did you mean 'delay'"),
    "text as value": (lambda rows: ss.shed(rows, value="event_id"), InvalidArgumentError, "event_id is a string"),
    "text as weight": (lambda rows: ss.shed(rows, weight="event_id"), InvalidArgumentError, "event_id is a string"),
    "no id": (lambda rows: ss.shed(rows, id=[]), InvalidArgumentError, "expected a column"),
    "a map as id": (
        lambda rows: ss.shed(rows.select(F.create_map("k", "k").alias("m")), id="m"),
        InvalidArgumentError,
        "cannot hash",
    ),
    "a name": (lambda rows: ss.shed(rows, name="a b"), InvalidArgumentError, "letters, digits"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_shed_is_refused(recorded: Recorded, case: str) -> None:
    """In words, before the query starts."""
    build, error, message = REFUSED[case]
    with pytest.raises(error, match=message):
        build(recorded.source.stream())


def test_levels_are_no_variables_of_users(recorded: Recorded, tmp_path: Path) -> None:
    """Their names are reserved, another query's cannot be used, and only levels can be set."""
    with pytest.raises(InvalidNameError, match=r"belong to the levels of ss\.shed"):
        ss.shared(tmp_path / "store", "limit_shed", "double")
    with pytest.raises(QueryError, match="level of another query"):
        ss.start(recorded.build(), "p", recorded.store, shared=("q_shed",))
    level = ss.shared(recorded.store, "q_shed")
    version = level.version
    with pytest.raises(InvalidArgumentError, match="Invalid level of shedding"):
        level.set({"bounds": [1.0], "keep": [1], "base": 1})
    with pytest.raises(VariableError, match="set in the driver"):
        level.add(level_for(None, 0.5))
    assert level.version == version


def test_several_ids_and_an_existing_weight(spark: SparkSession, recorded: Recorded, tmp_path: Path) -> None:
    """A row with a null in one id is kept; weights are multiplied."""
    declare_level(tmp_path / "store", "ids", init=LEVELS[2])
    weighted = recorded.source.stream().withColumn("w", F.lit(3))
    kept = ss.shed(weighted, id=["event_id", "k"], weight="w")
    assert kept.columns == ["event_id", "k", "delay", "w"]
    running, progress = ended(kept.groupBy("w").count(), "ids", tmp_path / "store")
    assert counted(progress[0]).kept_null_id == ROWS // 50
    found = {row["w"]: row["count"] for row in running.history.at(0).table().to_arrow().to_pylist()}
    assert found == {3.0: ROWS // 50, 6.0: counted(progress[0]).kept - ROWS // 50}
    assert math.isclose(counted(progress[0]).kept / ROWS, 0.5, abs_tol=0.1)
