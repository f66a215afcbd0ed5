"""The sink that takes a query's results."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import TYPE_CHECKING

from streamstate.errors import InvalidArgumentError, QueryError
from streamstate.operations.supervision.restart_policy import failure_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import DataStreamWriter
    from pyspark.sql.streaming.query import StreamingQuery

_APPEND_ONLY = {"parquet", "json", "csv", "orc", "text"}
_KAFKA = "kafka"
_BROKERS, _TOPIC = "kafka.bootstrap.servers", "topic"
_NEVER_FAIL = ("noop", "memory", "console", "foreachBatch")
_BEGINS_WITHIN = 4.0
"""Seconds in which Spark has usually opened the sink, or has failed to."""
_LOOKS_AGAIN = 0.05


@dataclass(frozen=True)
class Sink:
    """The destination of a query's results. Its state is captured in any case."""

    format: str
    path: str | None = None
    function: Callable[[DataFrame, int], None] | None = None
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Options of Spark's writer, which may be secret."""

    @classmethod
    def parse(cls, given: object, options: Mapping[str, str] | None = None) -> Sink:
        """``noop``, ``memory``, ``console``, ``FORMAT:PATH``, ``kafka:TOPIC``, or a function for ``foreachBatch``.

        With options, a format alone.
        """
        texts = {name: str(value) for name, value in (options or {}).items()}
        if callable(given):
            if texts:
                raise InvalidArgumentError("A function as sink takes no sink_options.")
            return cls("foreachBatch", function=given)
        if isinstance(given, str) and (match := re.fullmatch(r"([A-Za-z][\w.]*):(.+)", given)):
            if match[1] == _KAFKA:
                return cls(_KAFKA, options={_TOPIC: match[2]} | texts)
            return cls(match[1], match[2], options=texts)
        known = given in ("noop", "memory", "console", _KAFKA)
        if isinstance(given, str) and (known or (texts and re.fullmatch(r"[A-Za-z][\w.]*", given))):
            return cls(given, options=texts)
        raise InvalidArgumentError(
            f"Invalid sink {given!r}.\n"
            "Sinks: noop (discard the results), memory (a table named after the query), console (the server's "
            "output), FORMAT:PATH such as parquet:out/delays, or kafka:TOPIC; with sink_options any format of Spark."
        )

    @property
    def at_least_once(self) -> bool:
        """True if the sink may get the rows of an epoch again after a failure, and then has them twice."""
        return self.format == _KAFKA

    @property
    def needs_every_epoch(self) -> bool:
        """True if the sink's own log, which Spark merges every ten epochs, must have an entry of each.

        A rescale adds an epoch that never reaches the sink. Spark then fails with BATCH_METADATA_NOT_FOUND.
        """
        return self.format.lower() in _APPEND_ONLY

    @property
    def text(self) -> str:
        """Its text, such as ``parquet:out``, without its options; ``foreachBatch`` for a function."""
        return self.format if self.path is None else f"{self.format}:{self.path}"

    def attach(self, writer: DataStreamWriter) -> DataStreamWriter:
        """Direct a writer to the sink."""
        if self.function is not None:
            return writer.foreachBatch(self.function)
        return writer.format(self.format).options(**self.options)

    def after(self, check: Callable[[], object]) -> Sink:
        """Return the sink, with a check before each call of its function, if it has one."""
        function = self.function
        if function is None:
            return self

        @wraps(function)
        def checked(rows: DataFrame, epoch: int) -> None:
            check()
            function(rows, epoch)

        return replace(self, function=checked)

    def check(self, mode: str) -> None:
        """Refuse an output mode that the sink does not support, and options that it lacks."""
        if self.format.lower() in _APPEND_ONLY and mode != "append":
            raise QueryError(
                f"A {self.format} sink only supports mode append, not {mode}.\n"
                "Use mode append (aggregations then need a watermark), or another sink such as noop or memory."
            )
        if self.format == _KAFKA and _BROKERS not in {name.lower() for name in self.options}:
            raise InvalidArgumentError(
                f"A kafka sink needs the option {_BROKERS}.\n"
                f'Pass sink_options={{"{_BROKERS}": "host:9092"}}, or --sink-option {_BROKERS}=host:9092.'
            )

    def check_columns(self, frame: DataFrame) -> None:
        """Refuse results that the sink cannot take."""
        if self.format != _KAFKA:
            return
        types = {column.name.lower(): column.dataType.typeName() for column in frame.schema.fields}
        if types.get("value") not in ("string", "binary"):
            raise QueryError(
                f"A kafka sink needs a column value of type string or binary; the query returns {', '.join(types)}.\n"
                'End it with .selectExpr("to_json(struct(*)) AS value"), and a column key where it matters.'
            )
        if _TOPIC not in {name.lower() for name in self.options} and _TOPIC not in types:
            raise QueryError(
                "A kafka sink needs a topic: sink='kafka:TOPIC', the option topic, or a column topic of the results."
            )

    def begun(self, query: StreamingQuery, name: str) -> StreamingQuery:
        """Return a query after its first epoch, in which Spark opens the sink, or after a few seconds.

        Raises:
            QueryError: it failed.
        """
        if self.format in _NEVER_FAIL:
            return query
        until = time.monotonic() + _BEGINS_WITHIN
        try:
            while time.monotonic() < until and query.isActive and _before_first_epoch(query):
                time.sleep(_LOOKS_AGAIN)
        except BaseException:
            query.stop()
            raise
        if not query.isActive and (failure := failure_of(query)):
            raise QueryError(f"Spark did not start {name}: {failure}")
        return query


def _before_first_epoch(query: StreamingQuery) -> bool:
    return query.lastProgress is None and not query.status["message"].startswith("Waiting for")


NOOP = Sink("noop")
