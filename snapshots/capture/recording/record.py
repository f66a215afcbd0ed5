"""Recording what a source delivers, and reading a recording: :func:`streamstate.record` and :func:`recorded`."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from streamstate.errors import InvalidArgumentError, QueryError
from streamstate.snapshots.capture.recording.batches import MARKS
from streamstate.snapshots.capture.recording.recorder import Recorder
from streamstate.snapshots.capture.recording.recording import Recording, required_recording
from streamstate.snapshots.capture.recording.source import FED, FORMAT, OPTIONS, PATH, TASKS, RecordedInput
from streamstate.snapshots.capture.recording.sources import description, distinct_sources, recordings_of
from streamstate.snapshots.checkpoint.filesystem import location
from streamstate.snapshots.spark.catalyst import kind_of, walk
from streamstate.snapshots.spark.connect import require_classic
from streamstate.snapshots.spark.epoch_planning import incremental
from streamstate.snapshots.spark.fetching import arrow_schema
from streamstate.snapshots.spark.kafka_broker import check_answers
from streamstate.snapshots.spark.pyspark_classes import ClassicDataFrame
from streamstate.snapshots.spark.python_sources import register_source
from streamstate.snapshots.spark.session import session_in_use
from streamstate.snapshots.store.delta import Place
from streamstate.snapshots.store.native_types import is_kept
from streamstate.snapshots.store.query_plans.operator_plans import STATEFUL
from streamstate.snapshots.store.query_plans.spark_plan import fingerprint

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_recorders: dict[str, Recorder] = {}


class RecordedFrame(ClassicDataFrame):
    """A streaming DataFrame that reads a recording, and the recorder that feeds it as ``recorder``."""

    recorder: Recorder


def record(
    frame: DataFrame,
    path: str | os.PathLike[str],
    *,
    checkpoint: str | os.PathLike[str] | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> RecordedFrame:
    """Record what a streaming DataFrame delivers, and return a streaming DataFrame that reads the recording.

    A source such as a socket forgets its input once it was read. A recorder, a query of its own, writes its rows to
    a Delta table, each exactly once. A query over the returned frame reads that table, so what each of its epochs read
    can be read again: by :meth:`streamstate.History.inputs`, ``why`` and ``late``, by forks and in replays.

    The recorder starts now, or continues from where it was stopped. :func:`streamstate.start` and ``%%stream`` start it
    with the query and stop it with the query; otherwise ``.recorder.stop()`` of the returned frame stops it. What a
    socket delivers while nobody records is lost, and so is what it has delivered but is not yet in a batch when the
    process is killed.

    Args:
        frame: a streaming DataFrame without state and watermark, such as ``spark.readStream…load()``. Define the
            watermark on the returned frame.
        path: the folder, or object-store URI, of the recording: a new one, or one of the same frame.
        checkpoint: the recorder's checkpoint; by default in the folder ``_recorder`` of the recording.
        storage_options: deltalake's options for a recording in an object store.

    Returns:
        A streaming DataFrame with the columns of ``frame``, and the recorder as its ``.recorder``.

    Raises:
        QueryError: ``frame`` is no streaming DataFrame, or has state or a watermark, or Spark refuses it; or ``path``
            holds something else.
        InvalidArgumentError: a column has a name or type that cannot be recorded.
        StoreError: the recording cannot be written.

    Example:
        >>> lines = ss.record(socket, "recordings/lines")
        >>> words = ss.start(lines.groupBy("value").count(), "words", "store")
        >>> words.stop()
        >>> lines.recorder.stop()
    """
    recorder, rows = prepared(frame, path, checkpoint=checkpoint, storage_options=storage_options)
    if not recorder.active:
        check_answers(frame)
    recorder.start()
    made = RecordedFrame(rows._jdf, rows.sparkSession)
    made.recorder = recorder
    return made


def recorded(
    path: str | os.PathLike[str],
    *,
    spark: SparkSession | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> DataFrame:
    """Return a streaming DataFrame that reads a recording, without recording anything.

    For a query's code where its source is gone: to describe, fork or replay it.

    Args:
        path: the recording.
        spark: the session; by default the running one.
        storage_options: deltalake's options for a recording in an object store.

    Returns:
        A streaming DataFrame with the recorded columns.

    Raises:
        QueryError: the path holds no recording.
        StoreError: it cannot be read.

    Example:
        >>> lines = ss.record(socket, "recordings/lines")
        >>> ss.recorded("recordings/lines").groupBy("value").count()
        DataFrame[value: string, count: bigint]
        >>> lines.recorder.stop()
    """
    from pyspark.sql.pandas.types import from_arrow_schema

    spark = session_in_use(spark)
    place = Place(location(path), storage_options)
    found = pa.schema(required_recording(place).schema().to_arrow())
    columns = [field for field in found if field.name not in MARKS.names]
    return _reading(spark, place, from_arrow_schema(pa.schema(columns)))


def prepared(
    frame: DataFrame,
    path: str | os.PathLike[str],
    *,
    checkpoint: str | os.PathLike[str] | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> tuple[Recorder, DataFrame]:
    """Return a recorder that is not started yet, and the frame that reads its recording; create it if need be."""
    place = Place(location(path), storage_options)
    columns, of = check_recordable(frame, place)
    recording = Recording(place)
    known = _recorders.get(place.uri)
    if known is None or not known.active:
        recording.create(columns, of)
    own = location(checkpoint or f"{place.uri}/_recorder")
    if known is None:
        known = _recorders[place.uri] = Recorder(frame, recording, own)
    known.renew(frame, recording, own)
    return known, _reading(frame.sparkSession, place, frame.schema, {FED: "true"})


def check_recordable(frame: DataFrame, place: Place) -> tuple[pa.Schema, str]:
    """Return the recorded columns of a frame, and what tells it from others. Writes nothing.

    Raises:
        QueryError, InvalidArgumentError, StoreError: as :func:`streamstate.record`.
    """
    of = _checked(frame)
    columns = arrow_columns(frame.schema)
    Recording(place).check(columns, of)
    return columns, of


def recorders_of(frame: DataFrame) -> list[Recorder]:
    """Return the recorders of this process whose recordings a frame reads."""
    paths = recordings_of(frame._jdf.queryExecution().analyzed(), fed=True)
    return [_recorders[path] for path in paths if path in _recorders]


def recorder_queries() -> set[str]:
    """Return the ids of the queries that record in this process."""
    return {str(recorder.query.id) for recorder in _recorders.values() if recorder.query is not None}


def arrow_columns(schema: StructType) -> pa.Schema:
    """Return the columns of a frame as they are recorded.

    Raises:
        InvalidArgumentError: one has a name or type that cannot be recorded.
    """
    names = [field.name for field in schema.fields]
    for field in schema.fields:
        if field.name.casefold() in MARKS.names or sum(name.casefold() == field.name.casefold() for name in names) > 1:
            raise InvalidArgumentError(
                f"The column {field.name!r} cannot be recorded: its name is taken.\nRename it first; a recording adds"
                f" the columns {', '.join(MARKS.names)}."
            )
        if not is_kept(field.dataType):
            raise InvalidArgumentError(
                f"The column {field.name!r} of type {field.dataType.simpleString()} cannot be recorded.\n"
                "Cast it to a string, a number, a binary or a struct of these first."
            )
    return arrow_schema(schema)


def _checked(frame: Any) -> str:
    """Check that a frame can be recorded, and return its fingerprint."""
    from pyspark.errors import AnalysisException

    require_classic(frame)
    if not isinstance(frame, ClassicDataFrame) or not frame.isStreaming:
        what = "a batch DataFrame" if isinstance(frame, ClassicDataFrame) else f"a value of type {type(frame).__name__}"
        raise QueryError(f"Only a streaming DataFrame can be recorded, not {what}.\nStart from spark.readStream.")
    analyzed: Any = frame._jdf.queryExecution().analyzed()
    if any(kind_of(node) == "EventTimeWatermark" for node in walk(analyzed)):
        raise QueryError(
            "A frame with a watermark cannot be recorded: the recording would not have it.\n"
            "Record the frame without it, and use withWatermark on what streamstate.record returns."
        )
    spark = frame.sparkSession
    try:
        planned = list(walk(incremental(spark, analyzed, "append").sparkPlan()))
    except AnalysisException as error:
        raise QueryError(f"Spark cannot run this as a streaming query: {str(error).splitlines()[0]}") from error
    if any(kind_of(node) in STATEFUL for node in planned):
        raise QueryError(
            "A frame with state cannot be recorded: only what comes from a source can.\n"
            "Record the source's own frame, and aggregate, join or deduplicate what streamstate.record returns."
        )
    names = [description(leaf).partition("[")[0] for leaf in distinct_sources(analyzed)]
    return hashlib.sha256(json.dumps([fingerprint(analyzed), names]).encode()).hexdigest()[:16]


def _reading(
    spark: SparkSession, place: Place, schema: StructType, options: Mapping[str, str] | None = None
) -> DataFrame:
    register_source(spark, RecordedInput)
    reader = spark.readStream.format(FORMAT).schema(schema).options(**(options or {})).option(PATH, place.uri)
    if place.options:
        reader = reader.option(OPTIONS, json.dumps(dict(place.options)))
    return reader.option(TASKS, str(spark.sparkContext.defaultParallelism)).load()
