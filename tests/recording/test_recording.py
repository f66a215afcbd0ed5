"""``ss.record``: what a source delivers is recorded once, and read again as it was delivered."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable
from notebook_shell import Shell, bare_shell, shell  # noqa: F401 (fixtures)
from pyspark.sql import functions as F

import streamstate as ss
from recording.line_server import LineServer
from recording.waiting import until
from streamstate.errors import InvalidArgumentError, QueryError
from streamstate.snapshots.capture.recording.recording import Recording
from streamstate.snapshots.store.delta import Place

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture
def server() -> Iterator[LineServer]:
    """A TCP server."""
    server = LineServer()
    yield server
    server.close()


def words(lines: DataFrame) -> DataFrame:
    """Counts by the first letter."""
    return lines.groupBy(F.col("value").substr(1, 1).alias("letter")).agg(F.count("*").alias("n"))


def rows_in(recording: Path) -> list[dict[str, Any]]:
    """The rows of a recording in order, by another reader of Delta."""
    table = DeltaTable(str(recording)).to_pyarrow_table()
    rows: list[dict[str, Any]] = table.sort_by(
        [(name, "ascending") for name in ("_batch", "_partition", "_position")]
    ).to_pylist()
    return rows


def until_there(recording: Path, count: int) -> None:
    """Wait until a recording has so many rows."""
    until(lambda: len(rows_in(recording)) >= count)


def read_of(frame: DataFrame, folder: Path) -> list[Any]:
    """Return the rows that the next run of a query reads of what is there."""
    found: list[Any] = []
    writer = frame.writeStream.foreachBatch(lambda rows, _: found.extend(rows.toPandas().to_dict("records")))
    writer.option("checkpointLocation", str(folder)).trigger(availableNow=True).start().awaitTermination()
    return found


@pytest.mark.exhaustive
def test_the_input_of_a_socket_can_be_read_again(
    shell: Shell, spark: SparkSession, server: LineServer, tmp_path: Path
) -> None:
    """Counts equal Spark's at every epoch, also after a restart; the rows behind a change are those that were sent."""
    shell.names.update(words=words, server=server)
    cell = f"%%stream words --store {tmp_path / 'store'} --trigger 100ms --record-input\nwords(server.stream(spark))"
    store = tmp_path / "store"
    sent = [[f"{'abc'[number % 3]}{run}.{number}" for number in range(30)] for run in (1, 2)]
    said: dict[int, int] = {}
    for run, lines in enumerate(sent, start=1):
        if run == 1:
            running = ss.start(words(server.stream(spark)), "words", store, trigger="100ms", record_input=True)
        else:
            running = shell.run(cell)
        server.send(lines, connections=run)
        until_there(store / "words" / "_inputs" / "0", 30 * run)
        query = running.query
        assert query is not None
        query.processAllAvailable()
        said |= {int(one["batchId"]): int(one["numInputRows"]) for one in query.recentProgress}
        running.stop()
        assert not spark.streams.active
        assert running.status().error is None
    history = ss.open_store(store)["words"]
    result = history.live().result().to_arrow().to_pylist()
    assert {row["letter"]: row["n"] for row in result} == dict.fromkeys("abc", 20)
    read = {epoch: [row.value for row in history.inputs(epoch).collect()] for epoch in history.epochs()["epoch"]}
    assert {epoch: len(rows) for epoch, rows in read.items()} == {epoch: said.get(epoch, 0) for epoch in read}
    assert sorted(itertools.chain(*read.values())) == sorted(itertools.chain(*sent))
    changed = [epoch for epoch, rows in read.items() if rows]
    why = history.why(changed[-1], letter="b")
    assert set(why.rows["value"]) == {value for value in read[changed[-1]] if value.startswith("b")}
    with pytest.raises(QueryError, match="was recorded so far"):
        ss.start(words(server.stream(spark)), "words", store)


def test_a_recorder_that_fails_is_reported(spark: SparkSession, server: LineServer, tmp_path: Path) -> None:
    """Nobody listens: the handle says that the input is not recorded, and stopping works."""
    lines = server.stream(spark)
    server.close()
    running = ss.start(words(lines), "words", tmp_path / "store", record_input=True)
    until(lambda: running.status().error is not None)
    assert "the recorder of" in str(running.status().error)
    with pytest.raises(QueryError, match="gets no more input"):
        running.wait(epoch=99, timeout=300)
    running.stop()
    assert not spark.streams.active


@pytest.mark.slow
def test_each_row_is_recorded_once_across_runs(spark: SparkSession, tmp_path: Path) -> None:
    """Sources that keep their offsets go on where they were; merging files changes nothing for a reader."""
    numbers = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 5).load()
    folder = tmp_path / "numbers"
    read: list[Any] = []
    for _ in range(2):
        frame = ss.record(numbers, folder)
        assert frame.schema == numbers.schema
        until_there(folder, len(read) + 21)
        frame.recorder.stop()
        assert frame.recorder.error is None
        read += read_of(ss.recorded(folder), tmp_path / "checkpoint")
        DeltaTable(str(folder)).optimize.compact()
    assert sorted(row["value"] for row in rows_in(folder)) == list(range(len(rows_in(folder))))
    assert sorted(row["value"] for row in read) == list(range(len(read)))
    assert len(read) == len(rows_in(folder))
    assert len(read_of(ss.recorded(folder), tmp_path / "anew")) == len(read)


@pytest.mark.slow
def test_an_epoch_that_runs_twice_is_recorded_once(spark: SparkSession, tmp_path: Path) -> None:
    """The recorder's query and epoch identify a batch; of two recorders the older one gives up."""
    frame = ss.record(spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 5).load(), tmp_path / "r")
    until(lambda: rows_in(tmp_path / "r"))
    frame.recorder.stop()
    rows, before = (
        spark.range(3).selectExpr("current_timestamp() AS timestamp", "id AS value"),
        len(rows_in(tmp_path / "r")),
    )
    recording = Recording(Place(str(tmp_path / "r")))
    recording.claim()
    for epoch, after in ((0, 3), (0, 3), (1, 6), (0, 6)):
        recording.append("another", epoch, rows)
        assert len(rows_in(tmp_path / "r")) == before + after
    Recording(Place(str(tmp_path / "r"))).claim()
    with pytest.raises(ss.StreamStateError, match="Another recorder has taken over"):
        recording.append("another", 2, rows)
    assert len(rows_in(tmp_path / "r")) == before + 6


def test_what_cannot_be_recorded_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """The message says what would be right, and nothing is left behind."""
    rate = spark.readStream.format("rate").load()
    refused: list[tuple[Any, str, type[Exception]]] = [
        (spark.range(3), "not a batch DataFrame", QueryError),
        ("flights", "not a value of type str", QueryError),
        (rate.groupBy("value").count(), "with state cannot be recorded", QueryError),
        (rate.dropDuplicates(["value"]), "with state cannot be recorded", QueryError),
        (rate.withWatermark("timestamp", "1 second"), "with a watermark cannot be recorded", QueryError),
        (rate.selectExpr("value AS _batch"), "'_batch' cannot be recorded", InvalidArgumentError),
        (rate.selectExpr("value", "value AS Value"), "its name is taken", InvalidArgumentError),
        (rate.selectExpr("interval 3 days AS pause"), "of type interval day cannot be", InvalidArgumentError),
    ]
    for frame, message, kind in refused:
        with pytest.raises(kind, match=message):
            ss.record(frame, tmp_path / "recording")
    assert not (tmp_path / "recording").exists()
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "todo.txt").write_text("nothing")
    with pytest.raises(QueryError, match="is not a recording"):
        ss.record(rate, tmp_path / "notes")
    assert [path.name for path in (tmp_path / "notes").iterdir()] == ["todo.txt"]
    ss.record(rate, tmp_path / "recording").recorder.stop()
    for other, message in ((rate.select("value"), "other columns"), (rate.where("value > 3"), "another frame")):
        with pytest.raises(QueryError, match=message):
            ss.record(other, tmp_path / "recording")
    with pytest.raises(QueryError, match="is not a recording"):
        ss.recorded(tmp_path / "nowhere")


@pytest.mark.exhaustive
@pytest.mark.slow
def test_retention_keeps_what_epochs_and_forks_need(spark: SparkSession, server: LineServer, tmp_path: Path) -> None:
    """Input of kept epochs reads as before; a fork pins what it would read; the rest is dropped."""
    store = tmp_path / "store"
    running = ss.start(words(server.stream(spark)), "words", store, trigger="100ms", record_input=True)
    assert running.query is not None
    for number in range(5):
        server.send([f"a{number}"] * (number + 1))
        until_there(store / "words" / "_inputs" / "0", sum(range(number + 2)))
        running.query.processAllAvailable()
    running.stop()
    history = ss.open_store(store)["words"]
    epochs = history.epochs()
    counts = {int(epoch): history.inputs(int(epoch)).count() for epoch in epochs["epoch"]}
    newest = max(counts)
    fork = ss.Checkpoint(running.checkpoint).fork(tmp_path / "fork", at=newest - 2)
    ss.open_store(store)["words"].retain(last=2)
    recording = store / "words" / "_inputs" / "0"
    assert len(rows_in(recording)) == sum(counts[epoch] for epoch in (newest - 1, newest))
    assert {epoch: history.inputs(epoch).count() for epoch in (newest - 1, newest)} == {
        epoch: counts[epoch] for epoch in (newest - 1, newest)
    }
    ss.open_store(store)["words"].retain(last=1)  # the fork still needs both
    assert len(rows_in(recording)) == counts[newest - 1] + counts[newest]

    def build() -> DataFrame:
        return words(ss.recorded(recording))

    assert ss.Checkpoint(fork.path).step(build, original=running.checkpoint).epochs[0].input_rows == counts[newest - 1]
