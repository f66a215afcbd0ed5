"""The logs of a new checkpoint: offsets, commits, and the files that were read."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from streamstate.errors import InvalidArgumentError, first_line
from streamstate.snapshots.checkpoint.copying import as_json

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from streamstate.replay.stepping.query_sources import QuerySource

_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
Offset = str | Mapping[str, Any] | Sequence[str] | int | None
"""The end of a source's history: for files, the paths or patterns of those that were read; otherwise Spark's JSON of
the offset, as text or parsed; None: the beginning."""

LoggedFile = dict[str, Any]
"""A line of a file source's log: ``path``, ``timestamp`` (in milliseconds since 1970) and ``batchId``."""

READ = '{"logOffset":0}'
"""The offset of a file source that has read its first batch."""


@dataclass(frozen=True)
class EpochLog:
    """The log entries of an epoch.

    Args:
        epoch: its number.
        offsets: the end offset of each source: by name, or in the query's order.
        watermark: the watermark in force during it, in milliseconds since 1970; 0 without one.
        next_watermark: the watermark that the next epoch begins with.
        began_at: its processing time, in milliseconds since 1970.
        conf: the settings that the query is pinned to.
        version: the version of the offset log, ``v1`` or ``v2``.
        format_version: the checkpoint format of the state stores, ``1`` or ``2``.
    """

    epoch: int
    offsets: Mapping[str, str | None] | list[str | None]
    watermark: int = 0
    next_watermark: int = 0
    began_at: int = 0
    conf: Mapping[str, str] = field(default_factory=dict)
    version: str = "v1"
    format_version: str = "2"

    def texts(self) -> dict[str, str]:
        """Return the files by path. The state is in RocksDB, whatever store the query had: Spark can write no other."""
        head = {
            "batchWatermarkMs": self.watermark,
            "batchTimestampMs": self.began_at,
            "conf": {**self.conf, _PROVIDER: _ROCKSDB},
        }
        planned = "\n".join([self.version, as_json(head), *self._lines()])
        # Spark also asks for the offsets of the epoch before, which must not look committed.
        offsets = {f"offsets/{epoch}": planned for epoch in (self.epoch - 1, self.epoch) if epoch >= 0}
        commit = {"nextBatchWatermarkMs": self.next_watermark}
        return {
            "metadata": json.dumps({"id": str(uuid.uuid4())}),
            **offsets,
            f"commits/{self.epoch}": f"v{self.format_version}\n{as_json(commit)}",
        }

    def _lines(self) -> list[str]:
        named = self.offsets if isinstance(self.offsets, Mapping) else dict(enumerate(self.offsets))
        texts = {source: "-" if offset is None else offset for source, offset in named.items()}
        if self.version == "v1":
            return [*texts.values()]
        return [f"{source}:{offset}" for source, offset in texts.items() if offset != "-"]


def offset_text(offset: Any) -> str | None:
    """Return a source's offset as text: parsed JSON is written again, text is returned unchanged."""
    return offset if offset is None or isinstance(offset, str) else as_json(offset)


def milliseconds(moment: datetime | None) -> int:
    """Return a moment in milliseconds since 1970; 0 for None, as Spark writes it."""
    return 0 if moment is None else round(moment.timestamp() * 1000)


def source_logs(
    spark: SparkSession, sources: Sequence[QuerySource], offsets: Sequence[Offset] | None
) -> tuple[list[str | None], dict[str, str]]:
    """Return the text of each source's offset, and the files of the logs of file sources.

    Args:
        spark: lists files.
        sources: the query's sources.
        offsets: one for each source, in the query's order; None: all begin at the beginning.

    Raises:
        InvalidArgumentError: there are not as many offsets as sources, or one does not fit its source.
    """
    given = [None] * len(sources) if offsets is None else [*offsets]
    if isinstance(offsets, str) or len(given) != len(sources):
        names = ", ".join(source.name for source in sources)
        raise InvalidArgumentError(
            f"Invalid offsets: expected a list with one for each source of the query ({names}).\n"
            "For files, a list of paths or patterns; for others, the JSON of the source's offset; None: its beginning."
        )
    if any(source.given_name for source in sources):
        raise InvalidArgumentError("Offsets of sources with names (readStream.name) are not supported.")
    texts: list[str | None] = []
    logs: dict[str, str] = {}
    for number, (source, offset) in enumerate(zip(sources, given, strict=True)):
        if source.reads_files and offset is not None:
            logs[f"sources/{number}/0"] = file_log(given_files(spark, source, offset))
            texts.append(READ)
        else:
            texts.append(offset_of(source, offset))
    return texts, logs


def offset_of(source: QuerySource, offset: Offset) -> str | None:
    """Return a given offset of a source that does not read files, as text."""
    text = offset if offset is None or isinstance(offset, str) else as_json(offset)
    try:
        json.loads(text or "null")
    except ValueError:
        raise InvalidArgumentError(
            f"Invalid offset {offset!r} of {source.name}: expected JSON, as offsets/N of a checkpoint has it."
        ) from None
    return text


def file_log(entries: Sequence[LoggedFile]) -> str:
    """Return the log of a file source that has read some files in one batch; its offset is then ``READ``."""
    ordered = sorted(entries, key=lambda file: (file["timestamp"], file["path"]))
    return "\n".join(["v1", *map(as_json, ordered)])


def given_files(spark: SparkSession, source: QuerySource, paths: Offset) -> list[LoggedFile]:
    """Return the files that a user says were read.

    Raises:
        InvalidArgumentError: these are no paths or patterns, or no file matches.
    """
    if not isinstance(paths, Sequence) or isinstance(paths, str) or not all(isinstance(path, str) for path in paths):
        raise InvalidArgumentError(
            f"Invalid offset {paths!r} of {source.name}: expected a list of paths or patterns of the files that were"
            " read, such as ['flights/2026-01-*.parquet']."
        )
    return listed_files(spark, paths)


def listed_files(spark: SparkSession, paths: Sequence[str], pattern: str | None = None) -> list[LoggedFile]:
    """Return the files at some paths whose names match a pattern, as Spark's file source lists them.

    Raises:
        InvalidArgumentError: there are none.
    """
    from pyspark.errors import AnalysisException

    reader = spark.read.format("binaryFile")
    try:
        listed = (reader if pattern is None else reader.option("pathGlobFilter", pattern)).load([*paths])
    except AnalysisException as error:
        raise InvalidArgumentError(
            f"No file matches {', '.join(paths)}: {first_line(error)}\nGive paths or patterns of files that were read."
        ) from error
    timestamp = "unix_millis(_metadata.file_modification_time)"
    files = listed.selectExpr("_metadata.file_path AS path", f"{timestamp} AS timestamp").distinct().collect()
    return [{"path": _as_logged(file.path), "timestamp": file.timestamp, "batchId": 0} for file in files]


def _as_logged(path: str) -> str:
    """Return a file's path as the log of a file source has it: with three slashes on the local disk."""
    return re.sub(r"^file:/(?!/)", "file:///", path)
