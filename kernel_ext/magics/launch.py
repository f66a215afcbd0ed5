"""Starting a query as ``%%stream`` was told to; what can be wrong is found before anything starts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from streamstate.magics.plan import first_line
from streamstate.snapshots.errors import InvalidArgumentError, QueryError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from streamstate.recovery.back_off import BackOff

__all__ = ["Launch", "Sink", "trigger_options"]

_UNITS = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "min": "minutes", "h": "hours"}
_INTERVAL = re.compile(r"(\d+)\s*(ms|s|min|m|h)")
_PARTITIONS = "spark.sql.shuffle.partitions"
_APPEND_ONLY = {"parquet", "json", "csv", "orc", "text"}


@dataclass(frozen=True)
class Sink:
    """Where the query's results go; its state is captured either way."""

    format: str
    path: str | None = None

    @classmethod
    def parse(cls, text: str) -> Sink:
        """``noop``, ``memory``, ``console`` or ``FORMAT:PATH``.

        Raises:
            InvalidArgumentError: where it is none of them.
        """
        if text in ("noop", "memory", "console"):
            return cls(text)
        if match := re.fullmatch(r"([A-Za-z][\w.]*):(.+)", text):
            return cls(match[1], match[2])
        raise InvalidArgumentError(
            f"There is no sink {text!r}.\n"
            "Sinks: noop (results go nowhere), memory (a table called as the query), console (the output of the "
            "server), or FORMAT:PATH such as parquet:out/delays."
        )

    def check(self, mode: str) -> None:
        """Raise where the sink cannot take results of an output mode."""
        if self.format.lower() in _APPEND_ONLY and mode != "append":
            raise QueryError(
                f"A {self.format} sink only appends, and the mode is {mode}.\n"
                "Use --mode append (an aggregation then needs a watermark), or another sink such as noop or memory."
            )


def trigger_options(text: str | None) -> dict[str, Any]:
    """Arguments of ``writeStream.trigger``; none: process what there is, whenever there is something.

    Raises:
        InvalidArgumentError: where it is no trigger.
    """
    if text is None:
        return {}
    if text in ("once", "available-now"):
        return {"once": True} if text == "once" else {"availableNow": True}
    if match := _INTERVAL.fullmatch(text.strip()):
        return {"processingTime": f"{match[1]} {_UNITS[match[2]]}"}
    raise InvalidArgumentError(
        f"There is no trigger {text!r}.\n"
        "Triggers: an interval such as 500ms, 1s, 5m or 1h; available-now (all there is, then end); once (one epoch)."
    )


@dataclass(frozen=True)
class Launch:
    """A query to start, and to start again."""

    name: str
    frame: DataFrame
    checkpoint: str
    mode: str = "update"
    sink: Sink = Sink("noop")
    trigger: str | None = None
    partitions: int | None = None
    restart: BackOff | None = None
    """How to start the query again when it fails; None: not."""

    @property
    def ends(self) -> bool:
        """Whether the query ends by itself once it has processed what there is."""
        return self.trigger in ("once", "available-now")

    def check_resumes(self, committed: Sequence[int]) -> None:
        """Raise where Spark would refuse to go on from the checkpoint.

        Args:
            committed: the epochs that the checkpoint holds.

        Raises:
            QueryError: a table in memory holds only what was added since, unless it is written whole each time.
        """
        if committed and self.sink.format == "memory" and self.mode != "complete":
            raise QueryError(
                f"{self.name} has a checkpoint with epochs, and a memory sink resumes in --mode complete only.\n"
                "Use --sink noop to go on (%state shows the results), or another name to start over."
            )

    def start(self) -> StreamingQuery:
        """Start the query from its checkpoint.

        Raises:
            QueryError: where Spark refuses it.
        """
        from pyspark.errors import PySparkException

        writer = self.frame.writeStream.queryName(self.name).format(self.sink.format).outputMode(self.mode)
        writer = writer.option("checkpointLocation", self.checkpoint)
        if self.trigger is not None:
            writer = writer.trigger(**trigger_options(self.trigger))
        try:
            with _partitions(self.frame.sparkSession, self.partitions):
                return writer.start(self.sink.path)
        except PySparkException as error:
            raise QueryError(f"Spark did not start {self.name}: {first_line(error)}") from error


@contextmanager
def _partitions(spark: SparkSession, count: int | None) -> Iterator[None]:
    """The setting that a query takes over when it starts, as it was again afterwards."""
    before = spark.conf.get(_PARTITIONS)
    if count is not None:
        spark.conf.set(_PARTITIONS, str(count))
    try:
        yield
    finally:
        if count is not None and before is not None:
            spark.conf.set(_PARTITIONS, before)
