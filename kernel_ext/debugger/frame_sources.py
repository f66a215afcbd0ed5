"""The sources of a streaming DataFrame that is not started, and how far its watermark is its own."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from streamstate.snapshots.errors import InvalidArgumentError, NotReplayableError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["FrameSource", "check_replayable", "check_streaming", "sources_of", "watermarks_of"]

_FORGETS = {"socket": "a socket", "memory": "memory", "memorystream": "memory"}
_WATERMARK = re.compile(r"^[^A-Za-z]*EventTimeWatermark\b", re.MULTILINE)
_TAKES_AWAY = re.compile(r"cleansource -> (?!off\b)\w+", re.IGNORECASE)


@dataclass(frozen=True)
class FrameSource:
    """One source of a streaming DataFrame."""

    name: str
    """As Spark calls it, such as ``kafka`` or ``FileSource[/data]``."""
    options: str
    """Its options as text."""

    @property
    def reads_files(self) -> bool:
        """Whether it is Spark's file source."""
        return self.name.startswith("FileSource")

    @property
    def format(self) -> str:
        """Its kind, in lower case."""
        return re.split(r"\W", self.name, maxsplit=1)[0].lower()


def check_streaming(frame: object) -> DataFrame:
    """The frame, where it is one that can be started.

    Raises:
        InvalidArgumentError: where it is something else.
    """
    if getattr(frame, "isStreaming", False) is True and hasattr(frame, "writeStream"):
        return frame  # type: ignore[return-value]
    what = "a DataFrame that does not stream" if hasattr(frame, "isStreaming") else repr(frame)
    raise InvalidArgumentError(
        f"build_query() returned {what}.\n"
        "It has to return the query's streaming DataFrame, made from spark.readStream and not started."
    )


def sources_of(frame: DataFrame) -> list[FrameSource] | None:
    """The sources in the order in which Spark numbers them; None where they cannot be told from the plan."""
    plan: Any = frame._jdf.queryExecution().analyzed()
    leaves = plan.collectLeaves()
    found = []
    for at in range(leaves.size()):
        leaf = leaves.apply(at)
        kind = str(leaf.getClass().getSimpleName())
        if kind == "CTERelationRef":
            return None
        if not leaf.isStreaming():
            continue
        if kind == "StreamingRelation":
            found.append(FrameSource(str(leaf.sourceName()), str(leaf.dataSource().options())))
        elif kind == "StreamingRelationV2":
            found.append(FrameSource(str(leaf.sourceName()), str(leaf.extraOptions().asCaseSensitiveMap())))
        else:
            found.append(FrameSource(str(leaf.simpleString(1)), ""))
    return found


def watermarks_of(frame: DataFrame) -> int:
    """How many operators of a frame define a watermark."""
    plan: Any = frame._jdf.queryExecution().analyzed()
    return len(_WATERMARK.findall(str(plan.toString())))


def check_replayable(sources: Sequence[FrameSource]) -> None:
    """Raise where a source cannot give again what it gave.

    Raises:
        NotReplayableError: where one cannot, or would take its input away from the original.
    """
    for at, source in enumerate(sources):
        if source.format in _FORGETS:
            raise NotReplayableError(
                f"Source {at} of the query reads from {_FORGETS[source.format]}, which keeps nothing: what an epoch"
                " read is gone.\nForks can be stepped where the sources keep their input: files, Kafka, Delta, rate."
            )
        if _TAKES_AWAY.search(source.options):
            raise NotReplayableError(
                f"Source {at} of the query is to delete or move the files that it has read (option cleanSource), and"
                " they are the original's too.\nLeave the option out in build_query."
            )
