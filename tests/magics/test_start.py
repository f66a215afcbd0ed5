"""``ss.start``: the function behind ``%%stream``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Source, counts, letters
from notebook_shell import Shell, bare_shell, shell  # noqa: F401 (fixtures)
from oracle import compare
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import StructType

import streamstate as ss
from streamstate.errors import InvalidArgumentError, InvalidNameError, NoStateError, QueryError
from streamstate.launch.starting import STARTED
from streamstate.operations.promotion.switch import Switch
from streamstate.reports import Running
from streamstate.snapshots.checkpoint.fork_record import PromotionRecord
from streamstate.snapshots.spark.python_sources import active_session
from streamstate.snapshots.spark.session import StreamStateWarning


@pytest.fixture
def input_of_two_epochs(source: Source) -> Iterator[Source]:
    """A source with two epochs of input. Started queries are stopped after the test."""
    source.add(letters(0))
    source.add(letters(1))
    yield source
    for running in STARTED.values():
        running.stop()
    STARTED.clear()


def test_every_epoch_is_captured(input_of_two_epochs: Source, spark: SparkSession, tmp_path: Path) -> None:
    """Every state equals Spark's, and the checkpoint is next to the store."""
    running = ss.start(counts(input_of_two_epochs), "counts", tmp_path / "store", trigger="available-now")
    assert isinstance(running, Running)
    assert running.wait(timeout=300) == 1
    assert running.status().state == "finished"
    assert running.checkpoint.path == str(tmp_path / "checkpoints" / "counts")
    assert compare(spark, running.checkpoint.path, ss.open_store(tmp_path / "store")["counts"]) == 2


def test_an_interrupted_promotion_is_reported(shell: Shell, input_of_two_epochs: Source, tmp_path: Path) -> None:
    """A process was killed while it promoted. ``ss.start`` warns of what it did about that, ``%%stream`` prints it."""
    checkpoint, frame = tmp_path / "checkpoints" / "counts", counts(input_of_two_epochs)
    record = PromotionRecord("1", "fork", "2", 1, "2026-01-01T00:00:00+00:00", {})
    reversed_ = "An interrupted promotion of counts was reversed."
    Switch(str(checkpoint), "promote", record, None).begin()
    with pytest.warns(StreamStateWarning, match=reversed_):
        ss.start(frame, "counts", tmp_path / "store").stop()
    Switch(str(checkpoint), "promote", record, None).begin()
    shell.names["counted"] = frame
    shell.run(f"%%stream counts --store {tmp_path / 'store'}\ncounted").stop()
    assert reversed_ in shell.printed


@pytest.mark.exhaustive
def test_the_same_name_resumes(shell: Shell, input_of_two_epochs: Source, tmp_path: Path) -> None:
    """The first query is stopped, and the second continues from its checkpoint. ``%stream list`` shows the query."""
    frame = counts(input_of_two_epochs)
    first = ss.start(frame, "counts", tmp_path / "store")
    first.wait(epoch=1, timeout=300)
    assert shell.run("%stream list").to_pandas()[["name", "state"]].values.tolist() == [["counts", "running"]]
    input_of_two_epochs.add(letters(2))
    second = ss.start(frame, "counts", tmp_path / "store", trigger="available-now")
    assert first.query is not None
    assert not first.query.isActive
    assert second.wait(timeout=300) == 2


@pytest.mark.exhaustive
@pytest.mark.slow
def test_a_python_sink_of_another_session(spark: SparkSession, tmp_path: Path) -> None:
    """Spark looks for the sink in the active session; a query is started in its own."""
    session = spark.newSession()
    source = Source(session, tmp_path / "input", "k string, v long")
    source.add(letters(0))

    class Writer(DataSourceStreamWriter):
        def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
            assert [*iterator]
            return WriterCommitMessage()

    class Nowhere(DataSource):
        @classmethod
        def name(cls) -> str:
            return "nowhere"

        def streamWriter(self, schema: StructType, overwrite: bool) -> Writer:  # noqa: N802 (Spark's)
            return Writer()

    with active_session(session):
        session.dataSource.register(Nowhere)
    with active_session(spark):
        distinct = source.stream().dropDuplicates(["k"])
        running = ss.start(
            distinct, "keys", tmp_path / "store", mode="append", sink="nowhere:here", trigger="available-now"
        )
        assert running.wait(timeout=300) == 0


@pytest.mark.parametrize(
    ("options", "error", "expected"),
    [
        ({"name": "../counts"}, InvalidNameError, "letters"),
        ({"mode": "upsert"}, InvalidArgumentError, "update, append or complete"),
        ({"mode": "append"}, QueryError, "Use mode update"),
        ({"trigger": "soon"}, InvalidArgumentError, "available-now"),
        ({"sink": "nowhere"}, InvalidArgumentError, "noop"),
        ({"sink": "no where", "sink_options": {"a": "b"}}, InvalidArgumentError, "any format of Spark"),
        ({"sink": print, "sink_options": {"a": "b"}}, InvalidArgumentError, "takes no sink_options"),
        ({"every": 0}, InvalidArgumentError, "every=0"),
        ({"partitions": 0}, InvalidArgumentError, "partitions=0"),
        ({"frame": 42}, QueryError, "frame is not a streaming DataFrame"),
    ],
)
def test_an_invalid_option_starts_nothing(
    input_of_two_epochs: Source,
    spark: SparkSession,
    tmp_path: Path,
    options: dict[str, Any],
    error: type[Exception],
    expected: str,
) -> None:
    """The error says what is expected, and nothing is written."""
    arguments: dict[str, Any] = {"frame": counts(input_of_two_epochs), "name": "counts", "store": tmp_path / "s"}
    with pytest.raises(error, match=expected):
        ss.start(**(arguments | options))
    assert not spark.streams.active
    assert not (tmp_path / "s").exists()


def test_a_stateless_query_is_refused(input_of_two_epochs: Source, tmp_path: Path) -> None:
    """It has no state to capture."""
    with pytest.raises(NoStateError, match="keeps no state"):
        ss.start(input_of_two_epochs.stream(), "letters", tmp_path / "s")
