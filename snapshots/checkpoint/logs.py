"""The files of Spark's offset log and commit log.

``offsets/N`` holds what epoch N reads (one line per source), the watermark in force and the settings that the query is
pinned to, ``commits/N`` the watermark after it and, in checkpoint format 2, the unique ids of its state files. Their
first line is the version of the log, the second a JSON object.

Version 1 of the offset log identifies a source by its place in the query, version 2 by an id: the name that the query
gives it (``readStream.name("flights")``, with Spark's source evolution), or else its place. Spark writes the lines of
version 2 in no particular order.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from streamstate.errors import DamagedCheckpointError, NewerCheckpointError
from streamstate.snapshots.checkpoint.bindings import is_binding
from streamstate.snapshots.store.names import is_number

SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"
"""The setting for the number of state partitions; a query is pinned to its first value."""
_MOST_PARTITIONS = 200_000
_OFFSET_LOGS, _COMMIT_LOGS = ("v1", "v2"), ("v1", "v2", "v3")
"""The versions that Spark 4.3 writes."""
_VERSION = re.compile(r"v\d+", re.ASCII)
_NAMED = "spark.sql.streaming.queryEvolution.enableSourceEvolution"
_NAME = re.compile(r"\w+", re.ASCII)
"""The names of sources that Spark accepts; each names a folder in the checkpoint."""
_MOST_SOURCES = 1000
_LAST = 253_402_300_799_999
"""The last millisecond of the year 9999, the last year that a time can have here."""


@dataclass(frozen=True)
class PlannedEpoch:
    """The plan of epoch N, from ``offsets/N``."""

    offsets: tuple[str | None, ...]
    """The end offset of each source, as the source's own JSON, in the order of the query or of ``names``."""
    watermark: datetime | None
    """The watermark in force during the epoch; None if there was none."""
    conf: dict[str, str] = field(default_factory=dict)
    """The Spark settings that the query is pinned to."""
    began_at: datetime | None = None
    """The epoch's processing time: when Spark planned its batch."""
    names: tuple[str, ...] = ()
    """The sources' names, sorted; empty if the query does not name them."""
    version: str = "v1"
    """The version of the offset log."""

    @property
    def partitions(self) -> int | None:
        """The number of state partitions that the query is pinned to; None if the plan does not have it."""
        count = self.conf.get(SHUFFLE_PARTITIONS)
        return None if count is None else int(count)

    @property
    def logs(self) -> tuple[str, ...]:
        """Each source's own folder in the checkpoint."""
        return tuple(f"sources/{source}" for source in self.names or range(len(self.offsets)))

    @property
    def sources(self) -> dict[str, str | None] | list[str | None]:
        """The offsets by name, or in the query's order if the sources have no names."""
        return dict(zip(self.names, self.offsets, strict=True)) if self.names else [*self.offsets]

    @property
    def input(self) -> dict[str, str | None] | list[str | None]:
        """As ``sources``, but without what only binds shared variables, which a fork may bind otherwise."""
        sources = self.sources
        if isinstance(sources, dict):
            return {name: offset for name, offset in sources.items() if not is_binding(offset)}
        return [offset for offset in sources if not is_binding(offset)]


def parse_plan(text: str, path: str) -> PlannedEpoch:
    """Parse a file of the offset log.

    Args:
        text: The file's text.
        path: Its name, for errors.

    Raises:
        DamagedCheckpointError: It is not a file of the log, or ends too early.
        NewerCheckpointError: It has an unknown version.
    """
    version, head, lines = _parts(text, path, _OFFSET_LOGS)
    if head is None:
        raise DamagedCheckpointError.file(path, "ends after its first line")
    conf = head.get("conf", {})
    if not isinstance(conf, dict) or not all(isinstance(value, str) for value in conf.values()):
        raise DamagedCheckpointError.file(path, "has settings that are no texts")
    partitions = conf.get(SHUFFLE_PARTITIONS, "1")
    if not is_number(partitions) or not 0 < int(partitions) <= _MOST_PARTITIONS:
        raise DamagedCheckpointError.file(
            path, f"has {partitions!r:.40} partitions; at most {_MOST_PARTITIONS:,} are read"
        )
    names, offsets = _by_id(lines, path, named=conf.get(_NAMED) == "true") if version == "v2" else ((), lines)
    for offset in offsets:
        _check_offset(offset, path)
    return PlannedEpoch(
        offsets=tuple(None if offset == "-" else offset for offset in offsets),
        watermark=_moment(head.get("batchWatermarkMs", 0), path),
        conf=conf,
        began_at=_moment(head.get("batchTimestampMs", 0), path),
        names=names,
        version=version,
    )


def parse_commit(text: str, path: str) -> dict[str, Any]:
    """Parse a file of the commit log; as in Spark, one without a second line is empty.

    Raises:
        DamagedCheckpointError: It is not a file of the log, or ends too early.
        NewerCheckpointError: It has an unknown version.
    """
    _, head, _ = _parts(text, path, _COMMIT_LOGS)
    commit = head or {}
    _moment(commit.get("nextBatchWatermarkMs", 0), path)
    if (ids := commit.get("stateUniqueIds")) is not None:
        _check_ids(ids, path)
    return commit


def _parts(text: str, path: str, versions: Sequence[str]) -> tuple[str, dict[str, Any] | None, list[str]]:
    """Return a file's version, the object in its second line (None if there is none), and the other lines."""
    first, *lines = text.splitlines() or [""]
    version = first.strip()
    if _VERSION.fullmatch(version) and version not in versions:
        raise NewerCheckpointError.file(path, version, versions)
    if version not in versions:
        raise DamagedCheckpointError.file(path, f"begins with {version[:20]!r} instead of v1" if text else "is empty")
    if not lines:
        return version, None, []
    try:
        head = json.loads(lines[0]) if lines[0].strip() else {}
    except (ValueError, RecursionError) as error:
        raise DamagedCheckpointError.file(path, "ends within its second line, or is no JSON there") from error
    if not isinstance(head, dict):
        raise DamagedCheckpointError.file(path, "has no JSON object in its second line")
    return version, head, [line for line in lines[1:] if line]


def is_source_name(name: object) -> bool:
    """Return whether Spark accepts a source's name, which is that of a folder in the checkpoint."""
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def _by_id(lines: Sequence[str], path: str, *, named: bool) -> tuple[tuple[str, ...], list[str]]:
    """Return names and offsets of sources in version 2 of the offset log; without names, in the query's order."""
    found = {name: offset for name, colon, offset in (line.partition(":") for line in lines) if colon}
    if len(found) < len(lines) or not all(map(is_source_name, found)):
        raise DamagedCheckpointError.file(
            path,
            "has an invalid source: expected lines such as flights:{…}, with unique names of ASCII letters, digits and"
            " underscores",
        )
    if named or not all(is_number(name) and int(name) < _MOST_SOURCES for name in found):
        names = tuple(sorted(found))
        return names, [found[name] for name in names]
    # A stream that the query reads twice is listed once, at its last place.
    twice = next(iter(found.values())) if len(found) == 1 else "-"
    return (), [found.get(str(place), twice) for place in range(max(map(int, found), default=-1) + 1)]


def _check_offset(offset: str, path: str) -> None:
    """Raise if an offset is JSON that ends too early; a source's offset need not be JSON at all."""
    if offset[:1] not in {"{", "["}:
        return
    try:
        json.loads(offset)
    except (ValueError, RecursionError) as error:
        raise DamagedCheckpointError.file(path, f"has the offset {offset[:60]}, which is no JSON") from error


def _moment(milliseconds: object, path: str) -> datetime | None:
    """Return a time that a log has, in milliseconds since 1970; 0: there is none."""
    if not isinstance(milliseconds, int) or not -_LAST <= milliseconds <= _LAST:
        raise DamagedCheckpointError.file(path, f"has the time {milliseconds!r:.40}, which is none")
    return datetime.fromtimestamp(milliseconds / 1000, tz=UTC) if milliseconds > 0 else None


def _check_ids(ids: object, path: str) -> None:
    """Raise unless unique ids of state files are by operator, and then lists by partition and store."""
    stores = [store for operator in (ids.values() if isinstance(ids, dict) else [ids]) for store in _listed(operator)]
    if not all(isinstance(name, str) for store in stores for name in _listed(store)):
        raise DamagedCheckpointError.file(path, "has ids of state files in an unknown form")


def _listed(value: object) -> list[Any]:
    return value if isinstance(value, list) else [None]
