"""Random queries, changes and inputs: going on from a new checkpoint equals the changed query as a batch."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from input_files import in_turn
from operators.running import with_settings
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import streamstate as ss
from new_checkpoint.test_restore import QUICK
from streamstate.operations.drill.scratch import scratch
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.spark.state_reader import StateReader

INPUTS = 20
"""Independent inputs of one query: each row says which it belongs to, and every query groups by that."""
KEYS = ("a", "b", "c")
BUFFERS = {"sum": "sum(v)", "count": "count(v)", "min": "min(v)", "max": "max(w)"}
"""By the name of its buffer, an aggregate whose buffer is its result."""
SCHEMA = "case long, a string, b long, c boolean, v long, w double"


@dataclass(frozen=True)
class Grouped:
    """A query: what it groups by beside the case, and its aggregates."""

    keys: tuple[str, ...]
    buffers: tuple[str, ...]

    def build(self, rows: DataFrame) -> DataFrame:
        """The query over a frame; its columns have the names of the state's."""
        aggregates = (F.expr(BUFFERS[name]).alias(name) for name in self.buffers)
        return rows.groupBy("case", *self.keys).agg(*aggregates)


@dataclass(frozen=True)
class Case:
    """A query and its change, and how the new checkpoint is made after some of the epochs."""

    before: Grouped
    after: Grouped
    way: str
    epochs: int
    cut: int
    seed: int


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Any of them."""
    keys, buffers = (draw(st.lists(st.sampled_from(names), unique=True)) for names in (KEYS, tuple(BUFFERS)))
    before = Grouped(tuple(keys), tuple(buffers) or ("count",))
    way, epochs = draw(st.sampled_from(["migrate", "bootstrap", "restore", "restore by code"])), draw(st.integers(2, 4))
    after = before
    if not way.startswith("restore"):
        kept = draw(st.lists(st.sampled_from(before.buffers), unique=True, min_size=1))
        left = draw(st.lists(st.sampled_from(before.keys), unique=True)) if before.keys else []
        after = Grouped(tuple(left), tuple(kept))
    return Case(before, after, way, epochs, draw(st.integers(1, epochs - 1)), draw(st.integers(0, 2**32 - 1)))


def input_rows(random: np.random.Generator) -> pa.Table:
    """One epoch of all inputs, with nulls in keys and values; some inputs have no row."""
    count = int(random.integers(1, 12 * INPUTS))

    def some(values: Sequence[object]) -> list[object]:
        return [None if random.random() < 0.15 else values[int(random.integers(len(values)))] for _ in range(count)]

    columns = [some(["x", "y", ""]), some([-1, 0, 2**40]), some([True, False])]
    numbers, fractions = some([*range(-5, 9)]), some([0.0, 1.5, -2.25, float("inf")])
    names = [name.split()[0] for name in SCHEMA.split(", ")]
    kinds = [pa.int64(), pa.string(), pa.int64(), pa.bool_(), pa.int64(), pa.float64()]
    every = [random.integers(0, INPUTS, count).tolist(), *columns, numbers, fractions]
    return pa.table([pa.array(values, kind) for values, kind in zip(every, kinds, strict=True)], names)


@dataclass
class Files:
    """The input of one example."""

    spark: SparkSession
    folder: Path

    def add(self, number: int, table: pa.Table) -> None:
        """Add an epoch's file."""
        (self.folder / "input").mkdir(parents=True, exist_ok=True)
        pq.write_table(table, self.folder / "input" / f"{number}.parquet")
        in_turn(self.folder / "input" / f"{number}.parquet", number)

    def stream(self) -> DataFrame:
        """The files as a stream, one an epoch."""
        reader = with_settings(self.spark, {}).readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
        return reader.parquet(str(self.folder / "input"))

    def batch(self) -> DataFrame:
        """The files that are there, as a batch."""
        return self.spark.read.schema(SCHEMA).parquet(str(self.folder / "input"))

    def run(self, query: Grouped, checkpoint: Path) -> None:
        """Run the query over what is there."""
        writer = query.build(self.stream()).writeStream.format("noop").outputMode("update")
        writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start().awaitTermination()


def made(files: Files, case: Case) -> Path:
    """Run the query before the change over what is there, and make the new checkpoint."""
    old, new = files.folder / "old", files.folder / "new"
    if case.way == "bootstrap":
        state = case.after.build(files.batch())
        read = [[str(files.folder / "input" / "*.parquet")]]
        ss.bootstrap(lambda: case.after.build(files.stream()), to=new, state=state, offsets=read)
        return new
    files.run(case.before, old)
    if case.way == "migrate":
        ss.Checkpoint(old).migrate(lambda: case.after.build(files.stream()), to=new)
    else:
        ss.Checkpoint(old).capture(files.folder / "store", "q", spark=files.spark)
        code = (lambda: case.after.build(files.stream())) if case.way == "restore by code" else None
        ss.open_store(files.folder / "store")["q"].live().restore(to=new, build_query=code, spark=files.spark)
    return new


def check(spark: SparkSession, folder: Path, case: Case) -> None:
    """Compare every row of the state after all epochs."""
    random, files = np.random.default_rng(case.seed), Files(spark, folder)
    for epoch in range(case.cut):
        files.add(epoch, input_rows(random))
    new = made(files, case)
    for epoch in range(case.cut, case.epochs):
        files.add(epoch, input_rows(random))
    files.run(case.after, new)
    reader, newest = StateReader(spark, CheckpointFiles(new)), CheckpointFiles(new).committed()[-1]
    (source,) = reader.sources(newest)
    meant = case.after.build(files.batch())
    found = reader.table(source, newest).select(meant.columns)
    assert sorted(map(repr, found.collect())) == sorted(map(repr, meant.collect()))


@pytest.mark.exhaustive
@pytest.mark.timeout(3600)
def test_going_on_equals_the_batch(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> None:
    """For a thousand inputs: keys and aggregates dropped, rows given, epochs restored."""

    @settings(
        max_examples=50,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        derandomize=True,
        phases=[Phase.generate],  # an example takes seconds: too long for shrinking it
    )
    @given(cases())
    def each(case: Case) -> None:
        check(spark, tmp_path_factory.mktemp("changes"), case)

    each()


def why(log: str) -> str:
    """Return the error that ended a process, from its log; Spark keeps writing to it while it shuts down."""
    return "".join(log.partition("Traceback")[1:])[:3000]


@pytest.mark.exhaustive
@pytest.mark.timeout(3600)
def test_on_a_cluster(tmp_path: Path) -> None:
    """The same with two executors in processes of their own, in every way to make a checkpoint; and more operators."""
    with scratch(tmp_path, keep=False) as place:
        command = [sys.executable, "-m", "new_checkpoint.cluster_process", str(tmp_path / "made"), str(place.temporary)]
        environment = place.environment() | {"PYSPARK_PYTHON": sys.executable}
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.stdout.splitlines() == ["migrate", "bootstrap", "restore", "restore by code", *QUICK], why(done.stderr)
