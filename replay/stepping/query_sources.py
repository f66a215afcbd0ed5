"""The sources and watermarks of a streaming DataFrame that has not been started."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame

from streamstate.errors import InvalidArgumentError, NotReplayableError
from streamstate.snapshots.calls.checks import BuildQuery, check_function
from streamstate.snapshots.spark.catalyst import each, kind_of, source_name
from streamstate.snapshots.spark.connect import require_classic
from streamstate.snapshots.spark.kafka_broker import reads_kafka

_NOT_KEPT = {"socket": "a socket", "memory": "memory", "memorystream": "memory"}
_WATERMARK = re.compile(r"^[^A-Za-z]*EventTimeWatermark\b", re.MULTILINE)
_CLEANS_UP = re.compile(r"cleansource -> (?!off\b)\w+", re.IGNORECASE)


@dataclass(frozen=True)
class QuerySource:
    """One source of a streaming DataFrame."""

    name: str
    """Spark's name of it, such as ``kafka`` or ``FileSource[/data]``."""
    options: str
    """Its options as text."""
    given_name: str | None = None
    """Its name from ``readStream.name(…)``."""
    kafka: Any = field(default=None, compare=False, repr=False)
    """For Kafka's source, the leaf of the plan."""

    @property
    def reads_files(self) -> bool:
        """True for Spark's file source."""
        return self.name.startswith("FileSource")

    @property
    def path(self) -> str:
        """The folder or pattern that a file source reads."""
        return self.name.partition("[")[2].removesuffix("]")

    def option(self, name: str) -> str | None:
        """One of its options; None if it is not set."""
        found = re.search(rf"\b{re.escape(name)} -> (.*?)(?:, \w+ -> |\)$)", self.options, re.IGNORECASE)
        return found[1] if found else None

    @property
    def format(self) -> str:
        """Its format, in lower case."""
        return re.split(r"\W", self.name, maxsplit=1)[0].lower()


def check_streaming(frame: object) -> DataFrame:
    """Return the frame, if it is a streaming DataFrame."""
    require_classic(frame)
    if getattr(frame, "isStreaming", False) is True and hasattr(frame, "writeStream"):
        return frame  # type: ignore[return-value]
    what = "a DataFrame that is not streaming" if hasattr(frame, "isStreaming") else repr(frame)
    raise InvalidArgumentError(
        f"build_query() returned {what}.\n"
        "It must return the query's streaming DataFrame, made from spark.readStream and not started."
    )


def built(build_query: BuildQuery) -> DataFrame:
    """Call the function, and return its streaming DataFrame.

    Raises:
        InvalidArgumentError: it is no function, or returns something else.
    """
    check_function(build_query, "lambda: frame")
    return check_streaming(build_query())


def sources_of(frame: DataFrame) -> list[QuerySource] | None:
    """Return the sources in the order in which Spark numbers them; None if the plan does not show it."""
    plan: Any = frame._jdf.queryExecution().analyzed()
    found = []
    for leaf in each(plan.collectLeaves()):
        kind = kind_of(leaf)
        if kind == "CTERelationRef":
            return None
        if not leaf.isStreaming():
            continue
        if kind == "StreamingRelation":
            found.append(QuerySource(str(leaf.sourceName()), str(leaf.dataSource().options()), source_name(leaf)))
        elif kind == "StreamingRelationV2":
            options = str(leaf.extraOptions().asCaseSensitiveMap())
            kafka = leaf if reads_kafka(leaf) else None
            found.append(QuerySource(str(leaf.sourceName()), options, source_name(leaf), kafka))
        else:
            found.append(QuerySource(str(leaf.simpleString(1)), ""))
    return found


def watermark_count(frame: DataFrame) -> int:
    """Count the operators of a frame that define a watermark."""
    plan: Any = frame._jdf.queryExecution().analyzed()
    return len(_WATERMARK.findall(str(plan.toString())))


def check_replayable(sources: Sequence[QuerySource]) -> None:
    """Raise if a source keeps nothing to read again, or would delete or move the original's input."""
    for at, source in enumerate(sources):
        if source.format in _NOT_KEPT:
            raise NotReplayableError(
                f"Source {at} of the query reads from {_NOT_KEPT[source.format]}, which does not keep its input: what"
                " an epoch read is gone.\nUse a source that keeps its input, such as files, Kafka, Delta or rate."
            )
        if _CLEANS_UP.search(source.options):
            raise NotReplayableError(
                f"Source {at} of the query deletes or moves the files that it has read (option cleanSource), and the"
                " original reads the same files.\nRemove the option in build_query."
            )
