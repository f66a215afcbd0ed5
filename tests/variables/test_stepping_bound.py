"""Forks, steps, replays and audits see the versions that the original's epochs saw, and keep their own apart."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from conftest import Source
from oracle import spark_rows
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import streamstate as ss
from streamstate.errors import InvalidArgumentError
from streamstate.reports import History, SharedVariable
from streamstate.snapshots.checkpoint.bindings import binding_in
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles

pytestmark = pytest.mark.slow

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]

ROWS = 6
EPOCHS = 4
SEEN = "struct<total: long, limit: double>"


@dataclass
class Recorded:
    """A query of four epochs that saw ``total`` grow and, from epoch 2 on, another ``limit``."""

    source: Source
    folder: Path
    total: SharedVariable
    limit: SharedVariable

    @property
    def checkpoint(self) -> Path:
        """The query's checkpoint."""
        return self.folder / "checkpoint"

    @property
    def history(self) -> History:
        """The captured query."""
        return ss.open_store(self.folder / "store")["q"]

    def build(self) -> DataFrame:
        """The query's code."""
        total, limit = self.total, self.limit

        def seen(_v: int) -> tuple[int, float]:
            total.add(1)
            return total.get(), limit.get()

        rows = self.source.stream().withColumn("s", F.udf(seen, SEEN)("v"))
        sums = [F.count("*").alias("n")]
        for name in ("total", "limit"):
            sums += [F.min(f"s.{name}").alias(f"least_{name}"), F.max(f"s.{name}").alias(f"most_{name}")]
        return rows.groupBy("e").agg(*sums)

    def start(
        self, name: str = "q", checkpoint: str | None = None, build: Callable[[], DataFrame] | None = None
    ) -> None:
        """Run the query over all available input."""
        shared = (self.total, self.limit)
        frame = (build or self.build)()
        running = ss.start(
            frame,
            name,
            self.folder / "store",
            checkpoint=checkpoint or self.checkpoint,
            trigger="available-now",
            shared=shared,
        )
        running.wait(timeout=300)
        running.stop()


@pytest.fixture(scope="module")
def recorded(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """The query has ended; both variables were set again since."""
    folder = tmp_path_factory.mktemp("bound")
    store = folder / "store"
    made = Recorded(
        Source(spark, folder / "input", "e long, v long"),
        folder,
        ss.shared(store, "total", "counter"),
        ss.shared(store, "limit", "double", init=60.0),
    )
    for epochs in (range(2), range(2, EPOCHS)):
        for epoch in epochs:
            made.source.add({"e": [epoch] * ROWS, "v": [*range(ROWS)]})
        made.start()
        made.limit.set(45)
    made.limit.set(99)
    made.total.set(5000)
    return made


def seen(spark: SparkSession, checkpoint: Path | str, epoch: int) -> dict[int, list[Any]]:
    """Return what the rows of each input file saw, according to the state at an epoch."""
    reader = spark.read.format("statestore").option("batchId", epoch).load(str(checkpoint))
    return {row.key[0]: [*row.value] for row in reader.select("key", "value").collect()}


def inputs_of(history: History) -> list[int]:
    """The epochs that read input."""
    manifest = history.epochs()
    return manifest["epoch"][manifest["input_rows"] > 0].tolist()


def test_the_original_saw_each_version_in_its_epoch(spark: SparkSession, recorded: Recorded) -> None:
    """Contributions are seen from the next epoch on, and a value that was set from the next that begins."""
    last = recorded.history.captured()[-1]
    assert seen(spark, recorded.checkpoint, last) == {
        e: [ROWS, e * ROWS, e * ROWS, limit, limit] for e, limit in enumerate((60.0, 60.0, 45.0, 45.0))
    }


def test_a_step_sees_what_the_original_saw(spark: SparkSession, recorded: Recorded, tmp_path: Path) -> None:
    """The states are equal, epoch by epoch, though both variables have changed since."""
    first, *_, last = inputs_of(recorded.history)
    fork = ss.Checkpoint(recorded.checkpoint).fork(tmp_path / "fork", at=first)
    report = fork.step(recorded.build, epochs=last - first)
    assert report.epoch == last
    for epoch in range(first, last + 1):
        assert spark_rows(spark, fork.path, "op0", epoch) == spark_rows(spark, recorded.checkpoint, "op0", epoch)


@pytest.mark.exhaustive
def test_a_fork_contributes_to_its_own_branch(spark: SparkSession, recorded: Recorded, tmp_path: Path) -> None:
    """The variable has no version of it. When the fork goes on with new input, it sees its own."""
    before = recorded.total.history()
    fork = ss.Checkpoint(recorded.checkpoint).fork(tmp_path / "fork", at=0)
    assert fork.step(recorded.build, epochs=50).stopped == "end"
    pd.testing.assert_frame_equal(recorded.total.history(), before)
    more = Source(spark, tmp_path / "more", "e long, v long")
    more.add({"e": [9] * ROWS, "v": [*range(ROWS)]})
    (recorded.source.folder / "99999.parquet").write_bytes((more.folder / "00000.parquet").read_bytes())
    try:
        report = fork.step(recorded.build, new_input=True, epochs=2)
    finally:
        (recorded.source.folder / "99999.parquet").unlink()
    found = seen(spark, fork.path, report.epoch)
    assert found[9][:3] == [ROWS, EPOCHS * ROWS, EPOCHS * ROWS]
    planned = CheckpointFiles(fork.path).planned(report.epoch)
    assert planned is not None
    binding = binding_in(planned.offsets)
    assert binding is not None
    version = binding.versions["total"]
    assert version is not None
    assert version.branch == CheckpointFiles(fork.path).query_id
    pd.testing.assert_frame_equal(recorded.total.history(), before)


def test_a_step_can_see_another_value(spark: SparkSession, recorded: Recorded, tmp_path: Path) -> None:
    """Only that variable is another, only in these epochs, and the variable itself is not changed."""
    before = recorded.limit.history()
    first, second, third, *_ = inputs_of(recorded.history)
    fork = ss.Checkpoint(recorded.checkpoint).fork(tmp_path / "fork", at=first)
    fork.step(recorded.build, epochs=second - first, shared={"limit": 10}, store=tmp_path / "store", name="what_if")
    fork.step(recorded.build, epochs=third - second, store=tmp_path / "store", name="what_if")
    found = seen(spark, fork.path, third)
    assert [found[e][1:] for e in (1, 2)] == [[ROWS, ROWS, 10.0, 10.0], [2 * ROWS, 2 * ROWS, 45.0, 45.0]]
    bindings = ss.open_store(tmp_path / "store")["what_if"].bindings()
    branches = bindings[bindings["variable"] == "limit"].set_index("epoch")["branch"]
    assert branches[second] == CheckpointFiles(fork.path).query_id
    assert branches[third] == ""
    pd.testing.assert_frame_equal(recorded.limit.history(), before)


@pytest.mark.parametrize(
    ("shared", "match"),
    [
        ({"limt": 45}, r"not bound to 'limt', so it cannot be given a value.\nThey are bound to: limit, total"),
        ({"limit": "low"}, "Invalid value 'low' of type str: limit is a double"),
    ],
)
def test_a_value_that_cannot_be_is_refused(recorded: Recorded, tmp_path: Path, shared: Any, match: str) -> None:
    """No epoch runs."""
    fork = ss.Checkpoint(recorded.checkpoint).fork(tmp_path / "fork", at=0)
    with pytest.raises(InvalidArgumentError, match=match):
        fork.step(recorded.build, shared=shared)
    assert CheckpointFiles(fork.path).committed() == [0]


def test_a_query_without_variables_takes_no_values(
    spark: SparkSession, counted: tuple[Path, Path], tmp_path: Path
) -> None:
    """The message says that it is bound to none."""
    from stepping import counting

    fork = ss.Checkpoint(counted[0]).fork(tmp_path / "fork", at=2)
    with pytest.raises(InvalidArgumentError, match="They are bound to: no shared variables"):
        fork.step(counting(spark, counted[0].parent), shared={"limit": 45})


@pytest.mark.exhaustive
def test_a_replay_is_the_same(recorded: Recorded, tmp_path: Path) -> None:
    """With the values of then, no key differs; with another value, the first difference is where it was used."""
    first, second, *_, last = inputs_of(recorded.history)
    same = ss.Checkpoint(recorded.checkpoint).replay(recorded.build, to=tmp_path / "same", epochs=(first + 1, last))
    assert same.same
    other = ss.Checkpoint(recorded.checkpoint).replay(
        recorded.build, to=tmp_path / "other", epochs=(first + 1, last), shared={"limit": 10}
    )
    assert other.comparison.first is not None
    assert (other.comparison.first.epoch, other.comparison.first.key) == (second, {"e": 1})


@pytest.mark.exhaustive
def test_an_audit_is_clean(recorded: Recorded) -> None:
    """Reading a version that is bound is no suspect."""
    first, second, *_ = inputs_of(recorded.history)
    audit = ss.Checkpoint(recorded.checkpoint).audit(recorded.build, epochs=(first + 1, second), replays=1)
    assert audit.clean, audit
    assert [suspect.what for suspect in audit.suspects if "shared" in suspect.what] == []


@pytest.mark.exhaustive
def test_an_audit_names_what_is_not_bound(spark: SparkSession, tmp_path: Path) -> None:
    """Reads of the newest value differ in a replay, and the audit says whose they are."""
    fresh = ss.shared(tmp_path / "store", "fresh", "double", init=1.0, consistency="latest")
    source = Source(spark, tmp_path / "input", "e long, v long")

    def build() -> DataFrame:
        read = F.udf(lambda _: fresh.get(), "double")
        return source.stream().groupBy("e").agg(F.max(read("v")).alias("most"))

    for epoch in range(2):
        source.add({"e": [epoch], "v": [1]})
    running = ss.start(build(), "q", tmp_path / "store", trigger="available-now", shared=(fresh,))
    running.wait(timeout=300)
    running.stop()
    fresh.set(2.0)
    audit = ss.Checkpoint(running.checkpoint).audit(build, epochs=(1, 1), replays=1)
    assert audit.first is not None
    assert (audit.first.recorded, audit.first.replayed) == (1.0, 2.0)
    [suspect] = [suspect for suspect in audit.suspects if suspect.what == "shared variable fresh"]
    assert "its consistency is latest" in suspect.why
    assert "consistency='epoch'" in suspect.instead


@pytest.mark.exhaustive
def test_purged_offsets_and_dropped_versions_change_nothing(
    spark: SparkSession, recorded: Recorded, tmp_path: Path
) -> None:
    """The store keeps each epoch's binding and each version, whatever Spark and the transport have forgotten."""
    first, *_, last = inputs_of(recorded.history)
    bindings = recorded.history.bindings()
    fork = ss.Checkpoint(recorded.checkpoint).fork(tmp_path / "fork", at=first)
    for variable in (recorded.total, recorded.limit):
        variable.record()
        variable.log.drop(variable.log.head())
        assert variable.log.numbers() == [variable.log.head()]
    hidden = tmp_path / "offsets"
    hidden.mkdir()
    purged = [recorded.checkpoint / "offsets" / str(epoch) for epoch in range(first + 1)]
    for file in purged:
        file.rename(hidden / file.name)
    try:
        pd.testing.assert_frame_equal(ss.open_store(recorded.folder / "store")["q"].bindings(), bindings)
        fork.step(recorded.build, epochs=last - first)
    finally:
        for file in purged:
            (hidden / file.name).rename(file)
    assert spark_rows(spark, fork.path, "op0", last) == spark_rows(spark, recorded.checkpoint, "op0", last)


def test_a_query_goes_on_as_a_fork(recorded: Recorded, tmp_path: Path) -> None:
    """A fork that is started adds to its own branch; the original's variables stay."""
    before = recorded.total.history()
    fork = ss.Checkpoint(recorded.checkpoint).fork(tmp_path / "fork", at=inputs_of(recorded.history)[1])
    recorded.start("forked", fork.path)
    pd.testing.assert_frame_equal(recorded.total.history(), before)
    history = ss.open_store(recorded.folder / "store")["forked"]
    found = history.live().table().to_pandas().set_index("e").sort_index()
    assert found.iloc[:, 1].tolist() == [e * ROWS for e in range(EPOCHS)]
