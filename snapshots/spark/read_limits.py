"""The read limits of a running query's sources: Spark's own admission control, moved while the query runs.

Spark asks each source for its next offset with a limit, which it looks up for each epoch anew. So a limit that is set
applies from the next planning on; offsets are recorded as ever, and whatever runs an epoch again reads the same rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from streamstate.snapshots.spark.private_classes import private_calls

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

Unit: TypeAlias = Literal["rows", "files"]

_LIMITS = "org.apache.spark.sql.connector.read.streaming.ReadLimit"
_UNITS: dict[str, Unit] = {
    "FileStreamSource": "files",
    "DeltaSource": "files",
    "KafkaMicroBatchStream": "rows",
    "KafkaSource": "rows",
}
"""What the sources that obey a limit count, by their classes. ``rate-micro-batch`` is given one, and ignores it."""
_PYTHON = "PythonMicroBatchStream"


@dataclass(frozen=True)
class LimitedSource:
    """A source of a running query.

    Attributes:
        name: Spark's description.
        unit: what its limit counts; None: it obeys none.
        own: the limit that its options set, in that unit; None: it has none.
    """

    name: str
    unit: Unit | None
    own: int | None


class ReadLimits:
    """The limits of one run of a query; what the sources' options set is never exceeded.

    Args:
        spark: the query's session.
        query: the run.
        binds: whether one of its sources only binds shared variables to epochs.
    """

    def __init__(self, spark: SparkSession, query: StreamingQuery, *, binds: bool = False) -> None:
        self._binds = binds
        self._spark = spark
        self._query = query
        self._own: list[tuple[Any, Any]] = []
        self._sources: list[LimitedSource] = []

    def sources(self) -> list[LimitedSource]:
        """Return the sources in the query's order, without the one that binds shared variables.

        Returns:
            None of them before Spark has planned the query, or if it has no such limits, as in continuous mode.

        Raises:
            SparkVersionError: this Spark keeps the limits elsewhere.
        """
        with private_calls(self._spark):
            if not self._own:
                found = self._execution.uniqueSources().iterator()
                while found.hasNext():
                    pair = found.next()
                    self._own.append((pair.productElement(0), pair.productElement(1)))
                in_python = [pair for pair in self._own if _is_python(pair[0])]
                if (
                    self._binds and len(in_python) == 1
                ):  # of several, none obeys a limit: it does not matter which it is
                    self._own.remove(in_python[0])
                self._sources = [_described(source, limit) for source, limit in self._own]
            return list(self._sources)

    def set(self, limits: Sequence[int | None]) -> bool:
        """Set the limit of each source, in its unit; None: that of its options.

        Returns:
            True if it certainly applies to the next epoch that Spark plans; False if that one is being planned or run.

        Raises:
            SparkVersionError: this Spark keeps the limits elsewhere.
        """
        with private_calls(self._spark):
            changed = self._execution.uniqueSources()
            for (source, own), described, limit in zip(self._own, self._sources, limits, strict=True):
                changed = changed.updated(source, own if limit is None else self._lower(described, own, limit))
            getattr(self._execution, "uniqueSources_$eq")(changed)
        return not self._query.status["isTriggerActive"]

    @property
    def _execution(self) -> Any:
        return self._query._jsq.streamingQuery()

    def _lower(self, source: LimitedSource, own: Any, limit: int) -> Any:
        """Return the lower one of a source's own limit and another."""
        if source.unit is None:
            return own
        limits = getattr(self._spark._jvm, _LIMITS)
        least = max(1, limit if source.own is None else min(source.own, limit))
        made = limits.maxFiles(least) if source.unit == "files" else limits.maxRows(least)
        if own.getClass().getSimpleName() not in ("CompositeReadLimit", "ReadMinRows"):
            return made
        # A minimum of rows stays: an epoch waits for them, or until its time is over.
        kept = [part for part in _parts(own) if part.getClass().getSimpleName() != "ReadMaxRows"]
        gateway: Any = self._spark.sparkContext._gateway  # noqa: SLF001 (py4j's own way to make an array)
        both = gateway.new_array(limits, len(kept) + 1)
        for at, part in enumerate([*kept, made]):
            both[at] = part
        return limits.compositeLimit(both)


def _is_python(source: Any) -> bool:
    return _PYTHON in str(source.getClass().getSimpleName())


def _parts(limit: Any) -> list[Any]:
    return list(limit.getReadLimits()) if limit.getClass().getSimpleName() == "CompositeReadLimit" else [limit]


def _described(source: Any, limit: Any) -> LimitedSource:
    """Return a source whose options set a limit."""
    unit = _UNITS.get(str(source.getClass().getSimpleName()))
    own = None
    for part in _parts(limit):
        kind = str(part.getClass().getSimpleName())
        if kind == "ReadMaxRows" and unit == "rows":
            own = int(part.maxRows())
        elif kind == "ReadMaxFiles" and unit == "files":
            own = int(part.maxFiles())
        elif kind == "ReadMaxBytes":
            unit = None  # files take one limit, and that of the options stays
    return LimitedSource(str(source.toString()), unit, own)
