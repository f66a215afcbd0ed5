"""Running a query for exactly one micro-batch: where its results go, and what its failures mean for the fork.

The results go nowhere, or to a folder that only the fork writes to; never to the original's sink.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

from streamstate.errors import (
    ForkError,
    InvalidArgumentError,
    NotReplayableError,
    QueryError,
    StreamStateError,
    first_line,
    hidden_cause,
)
from streamstate.replay.stepping.fork_folder import ForkFolder
from streamstate.snapshots.capture.epoch_entries import BatchProgress
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.checkpoint.filesystem import location
from streamstate.snapshots.spark.connect import errors_of_spark
from streamstate.snapshots.spark.epoch_reports import finished
from streamstate.snapshots.spark.failures import worker_was_late
from streamstate.snapshots.spark.interrupted_calls import spare_other_calls
from streamstate.snapshots.spark.own_settings import settings_of, with_settings
from streamstate.snapshots.spark.plan_graph import last_execution
from streamstate.snapshots.spark.worker.forwarding import CLIENT_QUERIES

# How often a batch is started whose Python process comes too late for Spark.
_STARTS = 3
# Waiting returns to Python this often, so that an interrupt is noticed; in seconds.
_POLL = 1
_STARTING = 3.0
"""Seconds in which a query starts whose start was interrupted."""
_SINKS_FILE = "streamstate-sinks.json"
"""A file in the fork with the paths that it has written to. Spark does not read it."""


@dataclass(frozen=True)
class ForkSink:
    """The sink of a fork."""

    format: str = "noop"
    path: str | None = None

    @classmethod
    def parse(cls, text: object) -> ForkSink:
        """Return the sink for ``noop`` or ``FORMAT:PATH``."""
        if text == "noop":
            return cls()
        if isinstance(text, str) and (match := re.fullmatch(r"([A-Za-z][\w.]*):(.+)", text)):
            return cls(match[1], location(match[2]))
        raise InvalidArgumentError(
            f"Invalid sink {text!r}: a fork never writes to the original's sink.\n"
            "Expected 'noop' (results are discarded; the state shows what was computed), or FORMAT:PATH with a new"
            " folder, such as 'parquet:out/what_if'."
        )

    def attach(self, writer: DataStreamWriter) -> DataStreamWriter:
        """Direct a writer to the sink: each epoch overwrites ``PATH/epoch=N``.

        Spark's own file sink cannot start in the middle: its log needs every epoch from the first.
        """
        if self.path is None:
            return writer.format(self.format)
        kind, path = self.format, self.path

        def write(rows: DataFrame, epoch: int) -> None:
            rows.write.format(kind).mode("overwrite").save(f"{path}/epoch={epoch}")

        return writer.foreachBatch(write)

    def claim(self, folder: ForkFolder) -> None:
        """Reserve the sink's path for the fork; raise if it holds files that the fork did not write."""
        if self.path is None:
            return
        claimed: list[str] = json.loads(folder.text(_SINKS_FILE) or "[]")
        if self.path in claimed:
            return
        if folder.files.names(self.path):
            raise ForkError(
                f"{self.path} holds files that {folder.path} did not write: it may be the original's sink.\n"
                "Choose a folder that does not exist yet, or sink='noop'."
            )
        folder.write({_SINKS_FILE: json.dumps([*claimed, self.path])})


def run_batch(
    frame: DataFrame, checkpoint: str, epoch: int, *, mode: str, sink: ForkSink, conf: Mapping[str, str]
) -> tuple[BatchProgress | None, Any]:
    """Run the one epoch that is planned in a checkpoint, and return Spark's report and its own object of it.

    An interrupt stops the query first. The object is for :mod:`streamstate.snapshots.spark.plan_graph`.

    With this trigger a query runs one batch; Spark plans the next one, even one without data, only in its next run.
    """
    starts = 0
    while True:
        starts += 1
        try:
            writer = sink.attach(frame.writeStream).outputMode(mode).option("checkpointLocation", checkpoint)
            writer = writer.trigger(once=True)
            with with_settings(frame.sparkSession, {**settings_of(frame), **conf}):
                query = _started(writer, frame.sparkSession, checkpoint)
            _wait(query)
            return _progress(query, epoch), last_execution(query)
        except errors_of_spark() as error:
            if starts == _STARTS or not worker_was_late(error):
                raise _batch_error(error, checkpoint, epoch) from error


def _started(writer: DataStreamWriter, spark: SparkSession, checkpoint: str) -> StreamingQuery:
    """Start the query. If that is interrupted, Java may start it all the same: it is waited for, and stopped."""
    try:
        return writer.start()
    except KeyboardInterrupt:
        query_id = CheckpointFiles(checkpoint, spark).query_id
        deadline = time.monotonic() + _STARTING
        while time.monotonic() < deadline:
            if found := [query for query in spark.streams.active if query.id == query_id]:
                found[0].stop()
                break
            time.sleep(_STARTING / 20)
        raise


def _wait(query: StreamingQuery) -> None:
    spare_other_calls()
    try:
        while not query.awaitTermination(_POLL):
            pass
    except BaseException:
        query.stop()
        raise


def _progress(query: StreamingQuery, epoch: int) -> BatchProgress | None:
    event: Any = query._jsq.lastProgress()
    report = None if event is None or int(event.batchId()) != epoch else finished(event)
    return None if report is None else BatchProgress.of(report)


def active_queries(spark: SparkSession) -> set[str]:
    """Return the ids of the queries that run in this Spark application, in any session, or in a worker's client."""
    session: Any = spark._jsparkSession
    ids = session.sharedState().activeStreamingQueries().keySet().toArray()
    return CLIENT_QUERIES | {str(query_id) for query_id in ids}


_STATE_SCHEMA = re.compile(
    r"STATE_STORE_\w*SCHEMA\w*|STATE_STORE_VARIABLE_SIZE\w*|STATEFUL_PROCESSOR_\w+|STATE_STORE_INVALID_\w+"
    r"|(?i:schema (?:don't|does not|do not) match|SCHEMA_NOT_COMPATIBLE|StateSchemaNotCompatible)"
)
_INPUT_GONE = re.compile(
    r"KAFKA_DATA_LOSS|data loss|may have been lost|OffsetOutOfRange"
    r"|FAILED_READ_FILE\.FILE_NOT_EXIST|FileNotFoundException",
    re.IGNORECASE,
)
_OTHER_SOURCES = re.compile(r"number of sources|There are \[\d+\] sources", re.IGNORECASE)
_OTHER_FOLDER = re.compile(r"Wrong basePath|CONFLICTING_DIRECTORY_STRUCTURES", re.IGNORECASE)
_OTHER_OPERATORS = re.compile(r"STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA")
_STREAM_FAILED = re.compile(r"^\[STREAM_FAILED\] Query \[[^\]]*\] terminated with exception: ")


def _batch_error(error: BaseException, checkpoint: str, epoch: int) -> StreamStateError:
    """Return the error for an epoch of a fork that Spark could not run."""
    text = str(error)
    reason = hidden_cause(error) or _reason(text)
    unchanged = f"The fork is unchanged, at epoch {epoch - 1}."
    if _OTHER_OPERATORS.search(text):
        return QueryError(
            f"The query's stateful operators are not the ones whose state {checkpoint} holds: {reason}\n"
            f"{unchanged} Keep the operators in build_query, and change only what they compute."
        )
    if _STATE_SCHEMA.search(text):
        return QueryError(
            f"The state of the changed query does not fit the state that {checkpoint} holds: {reason}\n"
            f"{unchanged} Keep the types of keys and state in build_query, or replay from epoch 0, where there is no"
            " state yet."
        )
    if _INPUT_GONE.search(text):
        return NotReplayableError(
            f"Input that epoch {epoch} read is gone: {reason}\n{unchanged} Restore the input, or fork at a later epoch."
        )
    if _OTHER_SOURCES.search(text):
        return QueryError(
            f"The query's sources are not those of the original: {reason}\n{unchanged} Keep the sources in build_query,"
            " in the same order."
        )
    if _OTHER_FOLDER.search(text):
        return QueryError(
            f"The query reads files from another folder than the original did: {reason}\n{unchanged} Keep the folder in"
            " build_query: the files of an epoch are read where the original read them."
        )
    return QueryError(f"Epoch {epoch} failed: {reason}\n{unchanged} The full error is this error's cause.")


def _reason(text: str) -> str:
    """Return the line of an error that says what went wrong: for Python code, the last line of its traceback."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        return "Spark gave no reason."
    python = [line for line in lines if re.match(r"[\w.]*(?:Error|Exception|Interrupt)\b", line)]
    inner = [line for line in python if not line.startswith(("org.", "java.", "py4j."))]
    if "Traceback (most recent call last)" in text and inner:
        return inner[-1]
    caused = re.search(r"Caused by: ([^\n]+)", text)
    return _STREAM_FAILED.sub("", caused[1] if caused else first_line(text)).strip()
