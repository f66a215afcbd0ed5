"""``Checkpoint.migrate``: the state of a query becomes that of a changed query."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from operators.processors import TRANSFORM
from operators.queries import JOINS, aggregated, watermarked
from operators.running import FORMAT_1, HDFS, Inputs, Query, Run, rows, with_settings
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from sampling import sampled

import streamstate as ss
from new_checkpoint.restored import check_goes_on, gone_on, stored
from streamstate.errors import (
    CheckpointError,
    InvalidArgumentError,
    InvalidSQLError,
    QueryError,
    StateWriteError,
    StreamStateError,
    UnknownTableError,
)
from streamstate.reports import ProposedMapping, WrittenCheckpoint
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.spark.state_comparison import StateAt, state_differences
from streamstate.snapshots.spark.state_reader import StateReader
from streamstate.snapshots.store.layout import Layout
from streamstate.snapshots.store.query_plans.plan_table import store_plan
from streamstate.snapshots.store.query_plans.spark_plan import plan_of_frame


@dataclass(frozen=True)
class Change:
    """A change of a query, and how its state follows from the state before."""

    before: Query
    after: Query
    mapping: Mapping[str, str] = field(default_factory=dict)
    sql: str | None = None
    """What is proposed; None: it is not obvious."""
    recorded: bool = False
    """Whether a store has the plan of the query before."""
    forgets: bool = False
    """Whether the state before does not have what the changed query needs, so that going on differs."""


def by(*keys: str, **values: str) -> Query:
    """Aggregates by some keys, as SQL expressions."""
    return Query(
        lambda s: (
            s.selectExpr("*", *(key for key in keys if " AS " in key))
            .groupBy(*(key.rpartition(" ")[2] for key in keys))
            .agg(*(F.expr(value).alias(name) for name, value in values.items()))
        ),
        ("op0",),
    )


def by_hours(hours: int) -> Query:
    """The sum in windows of some hours, and the number of rows."""
    return Query(
        lambda s: watermarked(s).groupBy(F.window("t", f"{hours} hours"), "k").agg(F.sum("v"), F.count("*")), ("op0",)
    )


def distinct(*keys: str) -> Query:
    """Deduplication by some keys."""
    return Query(lambda s: s.dropDuplicates([*keys]), ("op0",), "append")


PAIR = ("k", "v % 2 AS odd")
WINDOWS_OF_TWO_HOURS = """
    SELECT window(window.start, '2 hours') AS window, k, sum(sum) AS sum, sum(count) AS count FROM op0 GROUP BY 1, 2"""
CHANGES = {
    "an aggregate dropped": Change(
        by("k", most="max(v)", rows="count(*)"), by("k", rows="count(*)"), sql="SELECT k, count FROM op0"
    ),
    "an aggregate added": Change(
        by("k", rows="count(*)"),
        by("k", rows="count(*)", most="max(v)"),
        sql="SELECT k, count, NULL AS max FROM op0",
        forgets=True,
    ),
    "an aggregate added, from another": Change(
        by("k", total="sum(v)", rows="count(v)"),
        by("k", total="sum(v)", rows="count(v)", mean="avg(v)"),
        {"op0": "SELECT k, sum, count, sum AS sum_2, count AS count_2 FROM op0"},
    ),
    "a key rolled up": Change(
        by(*PAIR, total="sum(v)", rows="count(*)", most="max(v)"),
        by("k", total="sum(v)", rows="count(*)", most="max(v)"),
        sql="SELECT k, sum(sum) AS sum, sum(count) AS count, max(max) AS max FROM op0 GROUP BY k",
    ),
    "all keys rolled up": Change(
        by("k", rows="count(*)"),
        Query(lambda s: s.agg(F.count("*").alias("rows")), ("op0",)),
        sql="SELECT 0 AS _key, sum(count) AS count FROM op0",
    ),
    "a key renamed": Change(
        by("k", rows="count(*)"), by("k AS name", rows="count(*)"), sql="SELECT k AS name, count FROM op0"
    ),
    "a type widened": Change(
        by("k", most="max(cast(v AS int))"), by("k", most="max(v)"), sql="SELECT k, max FROM op0"
    ),
    "rolled up and in another order, with a plan": Change(
        by(*PAIR, rows="count(*)", mean="avg(v)", total="sum(v)"),
        by("k", total="sum(v)", mean="avg(v)", rows="count(*)"),
        sql="SELECT k, sum(sum_2) AS sum, sum(sum) AS sum_2, sum(count_2) AS count, sum(count) AS count_2 FROM op0"
        " GROUP BY k",
        recorded=True,
    ),
    "an average added, with a plan": Change(
        by("k", rows="count(*)"),
        by("k", mean="avg(v)", rows="count(*)"),
        sql="SELECT k, 0 AS sum, 0 AS count, count AS count_2 FROM op0",
        recorded=True,
        forgets=True,
    ),
    "another expression, with a plan": Change(
        by("k", most="max(v)", least="max(v % 3)"),
        by("k", most="max(v)", least="max(v % 2)"),
        sql="SELECT k, max, max_2 FROM op0",
        recorded=True,
        forgets=True,
    ),
    "larger windows": Change(by_hours(1), by_hours(2), {"op0": WINDOWS_OF_TWO_HOURS}),
    "fewer keys to deduplicate by": Change(
        distinct("k", "v"), distinct("k"), {"op0": "SELECT DISTINCT k FROM op0"}
    ),
    "nothing": Change(by("k", rows="count(*)"), by("k", rows="count(*)"), sql="SELECT k, count FROM op0"),
    "nothing, a join": Change(JOINS["left_outer"], JOINS["left_outer"]),
    "nothing, a processor": Change(TRANSFORM["rows, no time"], TRANSFORM["rows, no time"]),
}  # fmt: skip
QUICK = ["a key rolled up"]


@dataclass
class Migrating:
    """A run of the query before the change, over half of the input."""

    run: Run
    change: Change

    def build(self) -> DataFrame:
        """The changed query."""
        session = with_settings(self.run.spark, self.change.after.conf)
        return self.change.after.build(self.run.inputs.stream(session))

    def migrate(self, mapping: object = None) -> WrittenCheckpoint:
        """Migrate it."""
        chosen: Any = self.change.mapping if mapping is None else mapping
        target = self.run.folder / "migrated"
        mode = self.change.after.mode
        return ss.Checkpoint(self.run.checkpoint).migrate(
            self.build, to=target, mapping=chosen, mode=mode, store=self.store
        )

    def propose(self, mapping: object = None, **options: Any) -> ProposedMapping:
        """Say what would be done."""
        chosen: Any = self.change.mapping if mapping is None else mapping
        mode = self.change.after.mode
        return ss.Checkpoint(self.run.checkpoint).propose_mapping(
            self.build, mapping=chosen, mode=mode, store=self.store, **options
        )

    @property
    def store(self) -> Path | None:
        """The store, if it has the plan."""
        return self.run.store if self.change.recorded else None


def migrating(spark: SparkSession, folder: Path, change: Change, *settings: Mapping[str, str]) -> Migrating:
    """Run the query before the change."""
    run = Run(spark, folder)
    run.start(change.before, *settings, epochs=range(2))
    if change.recorded:
        run.capture()
        frame = change.before.build(run.inputs.stream(with_settings(spark)))
        store_plan(Layout.at(run.store), "q", plan_of_frame(frame, change.before.mode).plan, 0)
    return Migrating(run, change)


def check(spark: SparkSession, folder: Path, change: Change) -> None:
    """Going on from the migrated checkpoint equals the changed query over all input."""
    found = migrating(spark, folder / "migrating", change)
    new = found.migrate()
    for epoch in (2, 3):
        found.run.inputs.add(rows(epoch))
    whole = Run(spark, folder / "whole")
    whole.start(change.after, epochs=range(4))
    gone_on(found.run, change.after, new)
    states = (StateAt(path, CheckpointFiles(path).committed()[-1]) for path in (new.path, str(whole.checkpoint)))
    assert not state_differences(spark, *states)


@pytest.mark.parametrize("name", QUICK)
def test_going_on_equals_recomputation(spark: SparkSession, tmp_path: Path, name: str) -> None:
    """After more input, the state is that of the changed query over the whole input."""
    check(spark, tmp_path, CHANGES[name])


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", sampled([name for name in CHANGES if name not in QUICK and not CHANGES[name].forgets][::-1], 1)
)
def test_going_on_equals_recomputation_for_every_change(spark: SparkSession, tmp_path: Path, name: str) -> None:
    """The same for every change whose state before has what the changed query needs."""
    check(spark, tmp_path, CHANGES[name])


@pytest.fixture
def counted(spark: SparkSession, tmp_path: Path) -> Migrating:
    """A query that counts by two keys, to be rolled up."""
    return migrating(spark, tmp_path, CHANGES["a key rolled up"])


def test_an_obvious_mapping_is_proposed(counted: Migrating) -> None:
    """With what it does, in sentences, and new rows beside the old rows they come from; nothing is written."""
    proposed = ss.Checkpoint(counted.run.checkpoint).propose_mapping(counted.build, rows=2)
    (proposal,) = proposed
    assert (proposal.table, proposal.sql) == ("op0", CHANGES["a key rolled up"].sql)
    assert proposal.notes == ("The rows that differ only in odd become one.",)
    preview = proposal.preview
    assert preview is not None
    assert (preview.rows_before, preview.rows_after) == (15, 8)
    assert preview.before["k"].tolist() == ["k0", "k0", "k1", "k1"]
    assert (preview.groups, preview.after["k"].tolist()) == ((2, 2), ["k0", "k1"])
    assert preview.after["sum"].tolist() == preview.before.groupby("k")["sum"].sum().tolist()
    for text in (
        "op0: 15 rows become 8",
        "\u00b1 merged: sum(sum)",
        "odd bigint (key)                    \u2212 dropped",
    ):
        assert text in repr(proposed)
    assert '<td class="right" rowspan="2">k0</td>' in proposed._repr_html_()
    assert not (counted.run.folder / "migrated").exists()


@pytest.mark.slow
def test_what_a_plan_says(spark: SparkSession, tmp_path: Path) -> None:
    """An added average knows the input since, and no more; another expression is told. Without a plan it asks."""
    found = migrating(spark, tmp_path / "added", CHANGES["an average added, with a plan"])
    (guessed,) = ss.Checkpoint(found.run.checkpoint).propose_mapping(found.build)
    assert "there are several columns named count, and without a recorded plan" in (guessed.problem or "")
    new = found.migrate()
    for epoch in (2, 3):
        found.run.inputs.add(rows(epoch))
    gone_on(found.run, found.change.after, new)
    frame = (
        StateReader(spark, CheckpointFiles(new))
        .table(StateReader(spark, CheckpointFiles(new)).sources(3)[0], 3)
        .toPandas()
    )
    since = pa.concat_tables([rows(2), rows(3)]).to_pandas().groupby("k")["v"]
    state = frame[frame["k"].notna() & frame["count"].gt(0)].set_index("k")[["sum", "count"]]
    assert state["count"].sort_index().to_dict() == since.count().loc[lambda one: one > 0].sort_index().to_dict()
    assert state["sum"].sort_index().to_dict() == since.sum().loc[state.index].sort_index().to_dict()
    other = migrating(spark, tmp_path / "other", CHANGES["another expression, with a plan"])
    two = by("k", one="max(v % 5)", other="max(v % 7)")
    (unclear,) = ss.Checkpoint(other.run.checkpoint).propose_mapping(
        lambda: two.build(other.run.inputs.stream(spark)), store=other.store
    )
    assert "nothing says whether max((v % 5L)) was max(v) or max((v % 3L))" in (unclear.problem or "")
    (proposal,) = other.propose(rows=0)
    assert (proposal.sql, proposal.notes) == (
        "SELECT k, max, max_2 FROM op0",
        ("max_2 was max((v % 3L)) and is max((v % 2L)).",),
    )


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", CHANGES)
def test_every_proposal_can_be_looked_at(spark: SparkSession, tmp_path: Path, name: str) -> None:
    """The preview of the whole state has the rows that migrating makes, and finds nothing wrong."""
    found = migrating(spark, tmp_path, CHANGES[name])
    change = CHANGES[name]
    proposed = found.propose(rows=1_000, whole=True)
    assert not proposed.problems
    assert change.sql is None or proposed[0].sql == change.sql
    previews = {proposal.table: proposal.preview for proposal in proposed}
    new = found.migrate()
    assert {table: preview and preview.rows_after for table, preview in previews.items()} == new.rows
    for table, before in new.rows_before.items():
        shown = previews[table]
        assert shown is not None
        assert (shown.rows_before, len(shown.after)) == (before, new.rows[table])
        assert shown.groups is None or sum(shown.groups) == before


BAD: dict[str, tuple[object, type[StreamStateError], str]] = {
    "SQL that is wrong": ({"op0": "SELECT nothing FROM op0"}, InvalidSQLError, r"op0 \(k, odd, sum, count, max\)"),
    "another table": ({"op7": "SELECT 1"}, UnknownTableError, "op0"),
    "a missing column": ({"op0": "SELECT k, sum FROM op0"}, StateWriteError, "has k, sum, count, max"),
    "doubled keys": ({"op0": "SELECT k, sum, count, max FROM op0"}, StateWriteError, "Several rows .* key k ="),
    "a value that does not fit": (
        {"op0": "SELECT k, sum(sum) AS sum, 1.5 AS count, max(max) AS max FROM op0 GROUP BY k"},
        StateWriteError,
        "1.5 does not fit count, which is bigint",
    ),
    "another type": (
        {"op0": "SELECT k, sum(sum) AS sum, array(1) AS count, max(max) AS max FROM op0 GROUP BY k"},
        StreamStateError,
        "count",
    ),
}  # fmt: skip


@pytest.mark.slow
def test_bad_input_writes_nothing(counted: Migrating) -> None:
    """Each error says what would be right; a look beforehand says the same."""
    before = stored(counted.run.spark, counted.run.checkpoint, 1)
    for mapping, error, message in BAD.values():
        with pytest.raises(error, match=message):
            counted.migrate(mapping)
    with pytest.raises(InvalidArgumentError, match="Invalid build_query of type DataFrame: expected a function"):
        ss.Checkpoint(counted.run.checkpoint).migrate(counted.build(), to=counted.run.folder / "migrated")  # type: ignore[arg-type]
    for name in ("a missing column", "doubled keys", "a value that does not fit"):
        mapping, _, message = BAD[name]
        (proposal,) = ss.Checkpoint(counted.run.checkpoint).propose_mapping(counted.build, mapping=mapping)  # type: ignore[arg-type]
        assert re.search(message, proposal.problem or "")
    assert sorted(path.name for path in counted.run.folder.iterdir()) == ["checkpoint", "input"]
    assert stored(counted.run.spark, counted.run.checkpoint, 1) == before


def test_a_query_that_was_interrupted_or_runs(counted: Migrating) -> None:
    """An epoch that was begun may have results in the sink; a running query goes on."""
    committed = counted.run.checkpoint / "commits" / "1"
    committed.rename(counted.run.folder / "1")
    with pytest.raises(CheckpointError, match=r"Epoch 1 .* was begun but not committed"):
        counted.migrate()
    (counted.run.folder / "1").rename(committed)
    running = counted.change.before.build(counted.run.inputs.stream(with_settings(counted.run.spark)))
    writer = running.writeStream.format("noop").outputMode("update")
    query = writer.option("checkpointLocation", str(counted.run.checkpoint)).start()
    try:
        with pytest.raises(QueryError, match="running"):
            counted.migrate()
    finally:
        query.stop()
    assert not (counted.run.folder / "migrated").exists()


@pytest.mark.slow
@pytest.mark.parametrize("name", sampled(["format 1", "HDFS"], 1))
def test_another_store_needs_no_mapping(spark: SparkSession, tmp_path: Path, name: str) -> None:
    """Also with another number of partitions: the new checkpoint has the session's settings."""
    provider = HDFS if name == "HDFS" else FORMAT_1
    change = Change(aggregated("count(v) AS rows"), aggregated("count(v) AS rows"))
    found = migrating(spark, tmp_path, change, provider, {"spark.sql.shuffle.partitions": "5"})
    new = found.migrate()
    assert CheckpointFiles(new).partitions(1) == 2
    assert CheckpointFiles(new).format_version(1) == "2"
    found.run.start(change.before, provider, epochs=range(2, 3))
    check_goes_on(found.run, change.after, new)


@pytest.mark.exhaustive
def test_sources_that_come_and_go(spark: SparkSession, tmp_path: Path) -> None:
    """A source that is added is read from its beginning; one that was there goes on, wherever it now stands."""
    run, other, session = Run(spark, tmp_path), Inputs(tmp_path / "other"), with_settings(spark)
    query, checkpoint = by("k", rows="count(*)"), tmp_path / "one"
    run.start(query, epochs=range(2))
    other.add(rows(7))

    def both() -> DataFrame:
        return query.build(other.stream(session).union(run.inputs.stream(session)))

    def counted(checkpoint: Path) -> dict[str | None, int]:
        newest = CheckpointFiles(checkpoint).committed()[-1]
        reader = StateReader(spark, CheckpointFiles(checkpoint))
        return {row.k: row["count"] for row in reader.table(reader.sources(newest)[0], newest).collect()}

    def go_on(frame: DataFrame, checkpoint: Path) -> None:
        writer = frame.writeStream.format("noop").outputMode("update").option("checkpointLocation", str(checkpoint))
        writer.trigger(availableNow=True).start().awaitTermination()

    def batch(*numbers: int) -> dict[str | None, int]:
        read = pa.concat_tables([rows(number) for number in numbers]).to_pandas()
        return dict(read.groupby("k", dropna=False).size().rename(lambda key: key if isinstance(key, str) else None))

    with pytest.raises(StateWriteError, match=r"has 2 sources .* the checkpoint 1.\n.*sources=\[0, None\]"):
        ss.Checkpoint(run.checkpoint).migrate(both, to=checkpoint)
    for wrong in ([0], [0, 0], [1, None]):
        with pytest.raises(InvalidArgumentError, match="the number of another old source"):
            ss.Checkpoint(run.checkpoint).migrate(both, to=checkpoint, sources=wrong)
    ss.Checkpoint(run.checkpoint).migrate(both, to=checkpoint, sources=[None, 0])
    run.inputs.add(rows(2))
    go_on(both(), checkpoint)
    assert counted(checkpoint) == batch(0, 1, 2, 7)
    ss.Checkpoint(checkpoint).migrate(
        lambda: query.build(run.inputs.stream(session)), to=tmp_path / "again", sources=[1]
    )
    run.inputs.add(rows(3))
    go_on(query.build(run.inputs.stream(session)), tmp_path / "again")
    assert counted(tmp_path / "again") == batch(0, 1, 2, 3, 7)
