"""Version 2 of Spark's offset log: sources are identified by name, whatever their order in the query."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Source, run
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import compare
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import streamstate as ss
from streamstate.errors import DamagedCheckpointError, ForkError, InvalidArgumentError
from streamstate.reports import History
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.spark.state_comparison import StateAt, state_differences
from streamstate.snapshots.store.entries import Entry
from streamstate.snapshots.store.layout import CAPTURED
from streamstate.state_inspect.cuts.source_positions import epoch_at_offset

NAMED = "spark.sql.streaming.queryEvolution.enableSourceEvolution"
STARTS = (("beta", "alpha"), ("alpha", "beta"), ("gamma", "alpha", "beta"), ("gamma", "beta"))
READ = ((1, 1, 0), (1, 2, 0), (2, 2, 0), (2, 2, 1), (2, 3, 1))
"""The number of files of alpha, beta and gamma that each epoch has read."""


class Inputs:
    """Three sources, each a folder of the same name."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._sources = {name: Source(spark, folder / name, "k string, v long") for name in ("alpha", "beta", "gamma")}
        self._spark = spark

    def add(self, name: str, value: int) -> None:
        """Add a file to a source."""
        self._sources[name].add({"k": [name, "all"], "v": [value, value]})

    def stream(self, name: str, *, named: bool = True) -> DataFrame:
        """A source as a streaming frame."""
        reader = self._spark.readStream.schema("k string, v long").option("maxFilesPerTrigger", 1)
        return (reader.name(name) if named else reader).parquet(str(self._sources[name].folder))

    def sums(self, *names: str) -> DataFrame:
        """A query over the union of the sources, in this order."""
        union, *others = (self.stream(name) for name in names)
        for frame in others:
            union = union.unionByName(frame)
        return union.groupBy("k").agg(F.sum("v").alias("v"))


@pytest.fixture(scope="module")
def naming(spark: SparkSession) -> Iterator[None]:
    """Turn on Spark's source evolution."""
    spark.conf.set(NAMED, "true")
    yield
    spark.conf.unset(NAMED)


@pytest.fixture(scope="module")
def inputs(naming: None, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Inputs:
    """The sources of the query."""
    return Inputs(spark, tmp_path_factory.mktemp("inputs"))


@pytest.fixture(scope="module")
def checkpoint(inputs: Inputs, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A query that is restarted with its sources in another order, with an added source, and with a removed one."""
    path = tmp_path_factory.mktemp("named") / "checkpoint"
    for start, (names, added) in enumerate(zip(STARTS, ("alpha beta beta", "alpha", "gamma", "beta"), strict=True)):
        for name in added.split():
            inputs.add(name, start + 1)
        run(inputs.sums(*names), path)
    return path


@pytest.fixture(scope="module")
def history(spark: SparkSession, checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> History:
    """The captured query."""
    store = tmp_path_factory.mktemp("store")
    ss.Checkpoint(checkpoint).capture(store, "named", spark=spark)
    return ss.open_store(store)["named"]


@pytest.mark.slow
def test_sources_are_identified_by_name(spark: SparkSession, checkpoint: Path, history: History) -> None:
    """Offsets and files are those of the named source, whatever the order of the sources in the query."""
    epochs = history.captured()
    assert compare(spark, checkpoint, history) == len(epochs)
    for epoch in epochs:
        snapshot = history.at(epoch)
        files = {name: facts["files"] for name, facts in json.loads(history.epochs()["sources"][epoch]).items()}
        assert {name: offset["logOffset"] + 1 for name, offset in snapshot.offsets.items()} == files
        expected = dict(zip(("alpha", "beta", "gamma"), READ[epoch], strict=True))
        assert files == {name: expected[name] for name in files}
        assert {*snapshot.table().to_pandas()["k"]} == {"all", *(name for name, number in expected.items() if number)}


@pytest.mark.slow
def test_time_travel_by_named_offsets(history: History) -> None:
    """Sources without a given offset are ignored. Sources that the query no longer reads are still found."""
    live = history.live().epoch
    assert history.at(offset=history.at(1).offsets).epoch == 1
    assert history.at(offset={"beta": {"files": 1}}).epoch == 0
    assert history.at(offset={"alpha": {"files": 1}}).epoch == 1
    assert history.at(offset={"alpha": {"files": 2}}).epoch == live
    assert history.at(offset={"gamma": None, "beta": {"logOffset": 1}}).epoch == live - 1
    for offset in ([{"files": 1}] * 3, {"delta": {"files": 1}}, {"files": 1}, {}):
        with pytest.raises(InvalidArgumentError, match="Sources: alpha, beta, gamma"):
            history.at(offset=offset)


@pytest.mark.slow
def test_a_cut_of_queries_with_and_without_named_sources(
    spark: SparkSession, inputs: Inputs, checkpoint: Path, history: History, tmp_path: Path
) -> None:
    """The common source is identified by its files, not by its name or position."""
    spark.conf.set(NAMED, "false")
    try:
        run(inputs.stream("alpha", named=False).groupBy("k").count(), tmp_path / "plain")
    finally:
        spark.conf.set(NAMED, "true")
    ss.Checkpoint(checkpoint).capture(tmp_path / "s", "named", spark=spark)
    ss.Checkpoint(tmp_path / "plain").capture(tmp_path / "s", "plain", spark=spark)
    cut = ss.cut(tmp_path / "s", ["named", "plain"], at={"plain": 0}, by="offsets")
    assert (cut.exact, cut.epochs) == (True, {"named": 1, "plain": 0})
    newest = ss.cut(tmp_path / "s", ["named", "plain"], by="offsets").epochs
    assert newest == {"named": history.live().epoch, "plain": 1}


@pytest.mark.slow
def test_steps_of_a_fork_with_reordered_sources(
    spark: SparkSession, inputs: Inputs, checkpoint: Path, tmp_path: Path
) -> None:
    """A step reads the original's input by source name. Missing and unknown sources raise an error."""
    ss.Checkpoint(checkpoint).fork(tmp_path / "fork", at=0, spark=spark)
    report = ss.Checkpoint(tmp_path / "fork").step(lambda: inputs.sums("alpha", "beta"), spark=spark, epochs=2)
    assert report.epoch == 2
    assert state_differences(spark, StateAt(str(checkpoint), 2), StateAt(str(tmp_path / "fork"), 2), exact=True) == []
    with pytest.raises(ForkError, match=r"read alpha, beta, gamma, but the fork has read alpha, beta"):
        ss.Checkpoint(tmp_path / "fork").step(lambda: inputs.sums("alpha", "beta"), spark=spark)
    with pytest.raises(ForkError, match=r"named alpha, beta; those of the query: beta, gamma"):
        ss.Checkpoint(tmp_path / "fork").step(lambda: inputs.sums("gamma", "beta"), spark=spark)


@pytest.mark.slow
def test_a_replay_with_reordered_sources(spark: SparkSession, inputs: Inputs, checkpoint: Path, tmp_path: Path) -> None:
    """A replay from the first epoch gives the states of the original."""
    replay = ss.Checkpoint(checkpoint).replay(
        lambda: inputs.sums("alpha", "beta"), to=tmp_path / "r", epochs=(0, 1), spark=spark
    )
    assert replay.comparison.same


NAMES = st.lists(st.from_regex(r"[A-Za-z0-9_]{1,8}", fullmatch=True), min_size=1, max_size=6, unique=True)
OFFSETS = st.one_of(st.none(), st.integers(0, 9).map(lambda number: f'{{"a:b":{number}}}'))


def log(names: list[str], offsets: list[str | None], *, named: bool) -> str:
    """The text of an offset log file of version 2."""
    head = json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": 1, "conf": {NAMED: str(named).lower()}})
    return "\n".join(["v2", head, *(f"{name}:{offset or '-'}" for name, offset in zip(names, offsets, strict=True))])


@settings(max_examples=100, deadline=None)
@given(NAMES, st.data())
def test_the_order_of_lines_does_not_matter(names: list[str], data: st.DataObject) -> None:
    """Sources are identified by name, or by position if the query does not name them."""
    offsets = {name: data.draw(OFFSETS) for name in names}
    shuffled = data.draw(st.permutations(names))
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "offsets").mkdir()
        file = Path(folder) / "offsets" / "3"
        file.write_text(log(shuffled, [offsets[name] for name in shuffled], named=True))
        by_name = CheckpointFiles(folder).planned(3)
        assert by_name is not None
        assert by_name.sources == offsets
        assert by_name.logs == tuple(f"sources/{name}" for name in sorted(names))
        positions = data.draw(st.permutations([str(position) for position in range(len(names))]))
        file.write_text(log(positions, [offsets[names[int(position)]] for position in positions], named=False))
        by_position = CheckpointFiles(folder).planned(3)
        assert by_position is not None
        assert by_position.sources == [offsets[name] for name in names]
        assert by_position.logs == tuple(f"sources/{position}" for position in range(len(names)))


@pytest.mark.parametrize("line", ["../../x:5", "no colon", ":5", "a:5\na:6"])
def test_an_invalid_source_name_is_rejected(tmp_path: Path, line: str) -> None:
    """Source names are folders in the checkpoint; they must be unique and cannot lead out of it."""
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "0").write_text(f"v2\n{{}}\n{line}")
    (tmp_path / "commits").mkdir()
    (tmp_path / "commits" / "0").write_text("v1\n{}")
    with pytest.raises(DamagedCheckpointError, match="invalid source"):
        CheckpointFiles(tmp_path).planned(0)


def entries(*offsets: Any) -> list[Entry]:
    """Captured epochs with the given offsets; None is a gap."""
    return [
        Entry(epoch, CAPTURED, offsets=json.dumps(offset)) for epoch, offset in enumerate(offsets) if offset is not None
    ]


def test_a_source_that_is_missing_after_a_gap_may_have_read_more() -> None:
    """The lookup by its offset finds the last epoch before the gap, as later offsets are unknown."""
    before, after = {"a": 1, "b": 1}, {"b": 2}
    assert epoch_at_offset(entries(before, after), "q", {"a": 1}).epoch == 1
    assert epoch_at_offset(entries(before, None, after), "q", {"a": 1}).epoch == 0
    assert epoch_at_offset(entries(before, None, after), "q", {"b": 2}).epoch == 2
