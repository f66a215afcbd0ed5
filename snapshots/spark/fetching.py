"""A frame's rows as Arrow, without ever waiting for rows that cannot come.

Spark serves a result on a port that it has just opened, to whoever connects first. That can be another program on this
machine: a ZeroMQ client, such as a notebook server's, keeps trying the port of a kernel that has ended. Spark hangs up
on it and closes the port without having run the job, and PySpark 4.3 then waits for the job's end for ever. Unix domain
sockets, which :func:`streamstate.session` chooses, have no such ports.
"""

from __future__ import annotations

import sys
from inspect import signature
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.errors import PySparkRuntimeError

from streamstate.snapshots.spark.connect import errors_of_spark, is_of_connect
from streamstate.snapshots.spark.pyspark_classes import ClassicDataFrame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

_WAIT = "3s"
"""Spark's time to give the cause of a failed transfer. It does so at once, unless another program had connected."""


class NotServedError(PySparkRuntimeError):
    """Spark closed the port of a result before this process received it."""


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the columns of a frame as Arrow has them, with times in UTC."""
    from pyspark.sql.pandas.types import to_arrow_schema

    zone: dict[str, Any] = {}
    if "timezone" in signature(to_arrow_schema).parameters:  # before Spark 4.2, it is UTC anyway
        zone["timezone"] = "UTC"
    return to_arrow_schema(schema, **zone)


def to_arrow(frame: DataFrame) -> pa.Table:
    """Return a frame's rows, as ``frame.toArrow()`` does. If another program came first, Spark serves them again.

    Raises:
        NotServedError: Another program came first both times.
    """
    if is_of_connect(frame):
        return frame.toArrow()  # from the server, by gRPC
    try:
        return _served(frame)
    except NotServedError:
        return _served(frame)


def _served(frame: DataFrame) -> pa.Table:
    java = _JavaFrame(frame._jdf)
    try:
        return _whole(ClassicDataFrame(java, frame.sparkSession))
    except Exception as error:
        if java.answered:
            raise
        message = (
            f"Spark closed the port of a result early: another program may have connected to it first ({error}).\n"
            "Start Spark with spark.python.unix.domain.socket.enabled=true, which needs no ports (Spark 4.1 or later)."
        )
        raise NotServedError(message) from error


def _whole(frame: ClassicDataFrame) -> pa.Table:
    """Return a frame's rows in one table."""
    if hasattr(frame, "toArrow"):
        return frame.toArrow()
    batches = frame._collect_as_arrow()  # noqa: SLF001 (before Spark 4.0, nothing else gives Arrow)
    return pa.Table.from_batches(batches) if batches else arrow_schema(frame.schema).empty_table()


def fetched(frame: DataFrame) -> pa.Table:
    """As :func:`to_arrow`, of columns that may share a name, with times in UTC.

    A type that Arrow does not have, such as a variant, becomes text.
    """
    named = frame.toDF(*(f"c{at}" for at in range(len(frame.columns))))
    for field in named.schema:
        if field.dataType.typeName() == "variant":
            named = named.withColumn(field.name, named[field.name].cast("string"))
    try:
        rows = to_arrow(named)
    except errors_of_spark():
        columns = [named[name] for name in named.columns]
        kept = [_is_fetched(named.select(column).limit(0)) for column in columns]
        if all(kept):
            raise
        as_text = (column.cast("string") for column in columns)
        chosen = [one if is_kept else text for one, text, is_kept in zip(columns, as_text, kept, strict=True)]
        rows = to_arrow(named.select(*chosen))
    rows = rows.rename_columns(list(frame.columns))
    for at, field in enumerate(rows.schema):
        if pa.types.is_timestamp(field.type) and field.type.tz is not None:
            rows = rows.set_column(at, field.name, rows.column(at).cast(pa.timestamp("us", "UTC")))
    return rows


def _is_fetched(frame: DataFrame) -> bool:
    """Return whether Arrow has the types of a frame."""
    try:
        to_arrow(frame)
    except errors_of_spark():
        return False
    return True


class _JavaFrame:
    """Spark's own frame, except that it does not wait for the end of serving that never began."""

    def __init__(self, frame: Any) -> None:
        self._frame = frame
        self._server: Any = None
        self.answered = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._frame, name)

    def collectAsArrowToPython(self) -> tuple[Any, Any, _JavaFrame]:  # noqa: N802 (PySpark calls it by this name)
        address, secret, self._server = self._frame.collectAsArrowToPython()
        return address, secret, self

    def getResult(self) -> None:  # noqa: N802
        """Join the serving thread, and raise what failed in Spark; if the transfer failed, only for a while."""
        if sys.exception() is None:
            self._server.getResult()
            return
        from py4j.protocol import Py4JJavaError
        from pyspark import SparkContext

        jvm: Any = SparkContext._jvm
        try:
            self._server.getResult(jvm.scala.concurrent.duration.Duration.create(_WAIT))
        except Py4JJavaError as error:
            if error.java_exception.getClass().getSimpleName() != "TimeoutException":
                raise
            self.answered = False  # PySpark then raises the transfer's own error
