"""Shared variables for a query that has run without them: in place if its sources have names, else in a fork."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Source
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import streamstate as ss
from streamstate.errors import ForkError, QueryError
from streamstate.reports import History, SharedVariable
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles

ROWS = 4


def below(stream: DataFrame, limit: SharedVariable | None) -> DataFrame:
    """A count of the rows of each epoch, of those below a limit if there is one."""
    kept = stream if limit is None else stream.where(F.col("v") < ss.shared_column(limit))
    return kept.groupBy("e").agg(F.count("*").alias("n"))


def ended(
    frame: DataFrame, folder: Path, name: str, *, checkpoint: Path | str, shared: tuple[str, ...] = ()
) -> History:
    """Run a query over all available input."""
    running = ss.start(frame, name, folder / "store", checkpoint=checkpoint, trigger="available-now", shared=shared)
    running.wait(timeout=300)
    running.stop()
    return ss.open_store(folder / "store")[name]


def counts(history: History) -> dict[int, int]:
    """The state of :func:`below`."""
    return {row["e"]: row["count"] for row in history.live().table().to_arrow().to_pylist()}


@pytest.fixture
def add(spark: SparkSession, tmp_path: Path) -> Callable[[int], Source]:
    """Adds the input of an epoch."""
    source = Source(spark, tmp_path / "input", "e long, v long")

    def added(epoch: int) -> Source:
        source.add({"e": [epoch] * ROWS, "v": [*range(ROWS)]})
        return source

    return added


@pytest.mark.slow
def test_a_fork_begins_with_variables(tmp_path: Path, add: Callable[[int], Source]) -> None:
    """A query without named sources is refused, and the way that the message names works: its state goes on."""
    checkpoint = tmp_path / "checkpoint"
    source = add(0)
    ended(below(source.stream(), None), tmp_path, "q", checkpoint=checkpoint)
    limit = ss.shared(tmp_path / "store", "limit", "double", init=3.0)
    add(1)
    frame = below(source.stream(), limit)
    with pytest.raises(QueryError, match="begun without shared variables") as raised:
        ended(frame, tmp_path, "q", checkpoint=checkpoint, shared=("limit",))
    assert "ss.Checkpoint(checkpoint).fork(new_checkpoint, shared=(variable,)), then ss.start(" in str(raised.value)
    assert CheckpointFiles(checkpoint).committed() == [0]
    fork = ss.Checkpoint(checkpoint).fork(tmp_path / "fork", shared=(limit,))
    history = ended(frame, tmp_path, "limited", checkpoint=fork.path, shared=("limit",))
    assert counts(history) == {0: ROWS, 1: 3}
    limit.set(2)
    add(2)
    history = ended(frame, tmp_path, "limited", checkpoint=fork.path, shared=("limit",))
    assert counts(history) == {0: ROWS, 1: 3, 2: 2}
    assert history.bindings()["variable"].unique().tolist() == ["limit"]
    with pytest.raises(ForkError, match=r"can go on with shared variables as it is: its epochs are bound already"):
        ss.Checkpoint(fork.path).fork(tmp_path / "again", shared=(limit,))


@pytest.mark.slow
def test_a_query_with_variables_is_not_run_without(tmp_path: Path, add: Callable[[int], Source]) -> None:
    """Spark cannot take the source away; the message says how to go on. Other variables can be added and left out."""
    source = add(0)
    limit = ss.shared(tmp_path / "store", "limit", "double", init=3.0)
    ss.shared(tmp_path / "store", "more", "double", init=1.0)
    checkpoint = tmp_path / "checkpoint"
    ended(below(source.stream(), limit), tmp_path, "q", checkpoint=checkpoint, shared=("limit",))
    with pytest.raises(
        QueryError, match=r"are bound to shared variables: limit.\nGo on with them \(shared=…, --shared\)"
    ):
        ended(below(source.stream(), None), tmp_path, "q", checkpoint=checkpoint)
    add(1)
    history = ended(below(source.stream(), limit), tmp_path, "q", checkpoint=checkpoint, shared=("limit", "more"))
    assert counts(history) == {0: 3, 1: 3}
    newest = history.bindings().groupby("epoch")["variable"].agg(list).iloc[-1]
    assert newest == ["limit", "more"]


@pytest.mark.slow
def test_a_query_with_named_sources_goes_on_in_place(spark: SparkSession, tmp_path: Path) -> None:
    """The source that binds its epochs is one more, with a name of its own."""
    session = spark.newSession()
    session.conf.set("spark.sql.streaming.queryEvolution.enableSourceEvolution", "true")
    session.conf.set("spark.sql.streaming.offsetLog.formatVersion", "2")
    source = Source(session, tmp_path / "input", "e long, v long")

    def named() -> DataFrame:
        reader = session.readStream.name("files").schema("e long, v long").option("maxFilesPerTrigger", 1)
        return reader.parquet(str(source.folder))

    checkpoint = tmp_path / "checkpoint"
    source.add({"e": [0] * ROWS, "v": [*range(ROWS)]})
    ended(below(named(), None), tmp_path, "q", checkpoint=checkpoint)
    limit = ss.shared(tmp_path / "store", "limit", "double", init=3.0)
    source.add({"e": [1] * ROWS, "v": [*range(ROWS)]})
    history = ended(below(named(), limit), tmp_path, "q", checkpoint=checkpoint, shared=("limit",))
    assert counts(history) == {0: ROWS, 1: 3}
    assert set(history.bindings()["epoch"]) == set(history.captured()[1:])
    with pytest.raises(ForkError, match="its sources have names"):
        ss.Checkpoint(checkpoint).fork(tmp_path / "fork", at=0, shared=(limit,))
