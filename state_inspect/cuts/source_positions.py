"""Positions of epochs in their sources: for travel by source offset, and to compare epochs of several queries.

Offsets have Spark's own form, as in ``snapshot.offsets``: Kafka's ``{"flights": {"0": 812}}``, Delta's with its
``reservoirId``, or a number. For Spark's file source, ``{"files": 100}`` is accepted in addition to its own
``{"logOffset": 9}``, which counts the query's batches; for Delta, ``{"version": 17}`` and
``{"version": 17, "file": 3}``, as offsets are shown in words.

A stream is what several queries may read: a Kafka topic from a start offset, a Delta table, the files under a folder.
Two epochs reflect the same prefix of a stream if they have the same position in it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

from streamstate.errors import InvalidArgumentError, UnknownEpochError, choices
from streamstate.snapshots.checkpoint.delta_offsets import FILE, VERSION, DeltaOffset, is_delta, is_table_version
from streamstate.snapshots.checkpoint.source_offsets import Partitions, first_offset, read_topics
from streamstate.snapshots.checkpoint.source_progress import FILES, recorded_by_source
from streamstate.snapshots.store.entries import Entry

Positions: TypeAlias = "dict[Hashable, Hashable]"
"""An epoch's position in each stream; MIXED if two sources of the query are at different positions."""

_Key: TypeAlias = "tuple[str, str | int]"
"""A query and one of its sources, by name or position."""

K = TypeVar("K")

MIXED = ("mixed",)
KAFKA = "kafka"
"""The kind of a stream that is a topic, named with where the query began."""
_NOTHING = (0, f"{0:032x}")


@dataclass(frozen=True)
class Source:
    """The part of one source that an epoch's state reflects."""

    offset: Any
    """The end offset, parsed; None if nothing has been read from the source."""
    facts: dict[str, Any] | None = None
    """The manifest's further facts on the source."""
    certain: bool = True
    """False if the query may have read more of the source in an epoch that is missing, before it left it out."""


def reflected(entries: Sequence[Entry]) -> list[dict[str | int, Source]]:
    """For each of a query's captured epochs, its sources by name, or by position if they have no names.

    A query with named sources may leave a source out from some epoch on. What it had read stays in its state.
    """
    found: list[dict[str | int, Source]] = []
    last: Entry | None = None
    for entry in entries:
        offsets = recorded_by_source(entry.offsets)
        facts = recorded_by_source(entry.sources)
        sources = {name: Source(offset, facts.get(name)) for name, offset in offsets.items()}
        if found and last is not None:
            follows = entry.epoch == last.epoch + 1
            left_out: dict[str | int, Source] = {
                name: Source(source.offset, source.facts, certain=_certain(name, source, last, follows=follows))
                for name, source in found[-1].items()
                if isinstance(name, str) and name not in sources
            }
            sources = left_out | sources
        found.append(sources)
        last = entry
    return found


def _certain(name: str, source: Source, last: Entry, *, follows: bool) -> bool:
    """Return whether a source that an epoch leaves out is unchanged: left out before, or the epoch follows the last."""
    return source.certain and (follows or name not in json.loads(last.offsets or "{}"))


@dataclass
class QueryStreams:
    """The streams that a query reads, and each epoch's positions in them."""

    query: str
    positions: dict[int, Positions] = field(default_factory=dict)
    """By captured epoch, ascending. Streams with an unknown position are left out."""
    unknown: bool = False
    """True if it has, at the newest epoch, a source whose offset cannot be compared with other queries."""

    @property
    def streams(self) -> set[Hashable]:
        """All streams that any epoch has read."""
        return {stream for positions in self.positions.values() for stream in positions}


def streams_of(entries: Mapping[str, Sequence[Entry]]) -> list[QueryStreams]:
    """Return the streams of some queries, by their captured entries; streams that are the same have the same name."""
    folders = _Folders()
    read = {query: reflected(captured) for query, captured in entries.items()}
    for query, epochs in read.items():
        for sources in epochs:
            for name, source in sources.items():
                folders.add((query, name), source.offset, source.facts)
    found = []
    for query, captured in entries.items():
        streams = QueryStreams(query)
        for entry, sources in zip(captured, read[query], strict=True):
            parts = [_parts((query, name), source, folders) for name, source in sources.items()] or [None]
            streams.positions[entry.epoch] = _together(parts)
            streams.unknown = None in parts
        found.append(streams)
    return found


class _Folders:
    """Finds file sources that read the same files: they share a folder, or had once read the same set of files."""

    def __init__(self) -> None:
        self._names: dict[_Key, int] = {}
        self._members: dict[Hashable, set[_Key]] = {}

    def add(self, source: _Key, offset: Any, facts: dict[str, Any] | None) -> None:
        """Add one epoch of a source."""
        if offset is None or facts is None or facts["kind"] != FILES:
            return
        self._members.setdefault(facts["digest"], set()).add(source)
        self._members.setdefault(("under", _without_partitions(facts["under"])), set()).add(source)

    def name(self, source: _Key) -> Hashable | None:
        """Return the name of the stream that a source reads; None if it is not a file source."""
        if not self._names:
            self._names = connected_groups(self._members.values())
        number = self._names.get(source)
        return None if number is None else ("files", number)


def connected_groups(groups: Iterable[Collection[K]]) -> dict[K, int]:
    """Return a number for each set of members that are connected through groups."""
    names: dict[K, int] = {}
    for number, group in enumerate(groups):
        before = {names[member] for member in group if member in names}
        names.update(dict.fromkeys(group, number))
        names.update({member: number for member, known in names.items() if known in before})
    return names


def _without_partitions(folder: str) -> str:
    """Return a folder without trailing Hive partitions such as ``day=1``, which belong to the position."""
    parts = folder.split("/")
    while parts and "=" in parts[-1].replace("%3D", "="):
        parts.pop()
    return "/".join(parts)


def _parts(key: _Key, source: Source, folders: _Folders) -> Positions | None:
    """Return a source's streams and positions; None if they cannot be compared."""
    if not source.certain:
        return None
    folder = folders.name(key)
    if folder is None:
        return _of_offset(source.offset, source.facts)
    return _of_files(folder, source.offset, source.facts)


def _together(parts: Sequence[Positions | None]) -> Positions:
    found: Positions = {}
    for positions in parts:
        for stream, position in (positions or {}).items():
            found[stream] = position if found.get(stream, position) == position else MIXED
    return found


def _of_files(folder: Hashable, offset: Any, facts: dict[str, Any] | None) -> Positions | None:
    if offset is None:
        return {folder: _NOTHING}
    return None if facts is None or facts["kind"] != FILES else {folder: (facts["files"], facts["digest"])}


def _of_offset(offset: Any, facts: dict[str, Any] | None) -> Positions | None:
    """Return the streams and positions of an offset; None if it cannot be compared with those of other queries."""
    if not isinstance(offset, dict):
        return None
    start = first_offset(offset, facts)
    if is_delta(offset):
        reached = DeltaOffset.of(offset)
        return {("delta", reached.table): (reached.position, reached.in_snapshot)}
    if offset.keys() == {"offset", "timestamp"}:
        return {("rate-micro-batch",): (offset["offset"], offset["timestamp"])}
    if topics := read_topics(offset):
        starts = start if isinstance(start, dict) else {}
        return {(KAFKA, topic, _read(starts.get(topic, {}))): _read(ends) for topic, ends in topics.items()}
    return None


def _read(partitions: Any) -> Hashable:
    """Return the offsets of a topic's partitions that were read; empty partitions make no difference."""
    return tuple(sorted((name, offset) for name, offset in partitions.items() if offset > 0))


class _IncomparableError(Exception):
    """The offsets do not count the same thing."""


def epoch_at_offset(entries: Sequence[Entry], query: str, offset: Any) -> Entry:
    """Return the newest captured epoch that reflects no more than a source offset.

    The offset is that of the query's only source; or a list with an offset for each source in the query's order, None
    for a source that does not matter; or, if the sources have names, a dict by name that may leave sources out. JSON
    text is accepted too. Parts of an offset that it does not name, such as some of Kafka's partitions, do not matter.
    An epoch before a partition or topic was there has read nothing of it.
    """
    known = [entry for entry in entries if entry.captured and entry.offsets is not None]
    if not known:
        raise UnknownEpochError(f"No captured epoch of {query} has source offsets to compare with.")
    sources = reflected(known)
    limits = _per_source(offset, sources[-1])
    try:
        for name, limit in limits.items():
            _check_named(limit, [reached[name].offset for reached in sources if name in reached])
        pairs = zip(reversed(known), reversed(sources), strict=True)
        found = next((entry for entry, reached in pairs if _reflects_no_more(reached, limits)), None)
    except _IncomparableError as error:
        raise InvalidArgumentError(
            f"The offset {json.dumps(offset, default=str)} cannot be compared with those of {query}: {error}.\n"
            f"Epoch {known[-1].epoch} has {_shown(known[-1])}."
        ) from error
    if found is None:
        raise UnknownEpochError(
            f"Every captured epoch of {query} reflects more than {json.dumps(offset)}.\n"
            f"Its first captured epoch, {known[0].epoch}, has {_shown(known[0])}."
        )
    return found


def _per_source(offset: Any, sources: Mapping[str | int, Source]) -> dict[str | int, Any]:
    """Return the limit of each source that has a limit."""
    if isinstance(offset, str):
        try:
            offset = json.loads(offset)
        except ValueError as error:
            raise InvalidArgumentError(
                f"Invalid offset {offset!r}: not JSON ({error}).\nWrite it as in snapshot.offsets."
            ) from error
    offset = _with_text_keys(offset)
    if any(isinstance(name, str) for name in sources):
        return _per_name(offset, sources)
    listed = list(offset) if isinstance(offset, (list, tuple)) else [offset]
    if len(listed) != len(sources) or all(limit is None for limit in listed):
        raise InvalidArgumentError(
            f"Invalid offset {json.dumps(offset, default=str)}: the query has {len(sources)}"
            f" source{'s' * (len(sources) != 1)}.\nPass a list with an offset for each source, None for a source that"
            " does not matter."
        )
    return {position: limit for position, limit in enumerate(listed) if limit is not None}


def _per_name(offset: Any, sources: Mapping[str | int, Source]) -> dict[str | int, Any]:
    if isinstance(offset, dict) and offset.keys() <= sources.keys():
        limits = {name: limit for name, limit in offset.items() if limit is not None}
    else:
        limits = {} if len(sources) > 1 or isinstance(offset, (list, tuple)) else {next(iter(sources)): offset}
    if not limits:
        raise InvalidArgumentError(
            f"Invalid offset {json.dumps(offset, default=str)}: the query's sources have names.\nPass a dict with the"
            f" offset of each source that matters. Sources: {choices(map(str, sources))}."
        )
    return limits


def _with_text_keys(offset: Any) -> Any:
    """Return an offset with its keys as text, as JSON has them: Kafka's partitions may be given as integers."""
    if isinstance(offset, dict):
        return {str(name): _with_text_keys(part) for name, part in offset.items()}
    return [*map(_with_text_keys, offset)] if isinstance(offset, list | tuple) else offset


def _check_named(limit: Any, offsets: Iterable[Any]) -> None:
    """Raise if an offset of Kafka names no topic and partition that any epoch has read."""
    topics = read_topics(limit)
    if topics is None:
        return
    known = [found for offset in offsets if (found := read_topics(offset)) is not None]
    shared = (topics[topic].keys() & found[topic].keys() for found in known for topic in topics.keys() & found.keys())
    if known and not any(shared):
        raise _IncomparableError("they have no partition in common")


def _reflects_no_more(sources: Mapping[str | int, Source], limits: Mapping[str | int, Any]) -> bool:
    return all(_within(sources[name], limit) for name, limit in limits.items() if name in sources)


def _within(source: Source, limit: Any) -> bool:
    if not source.certain:
        return False
    if isinstance(limit, dict) and [*limit] == ["files"]:
        return _files_within(source.offset, source.facts, limit["files"])
    if is_table_version(limit):
        return _version_within(source.offset, limit)
    return source.offset is None or within(source.offset, limit)


def _files_within(offset: Any, facts: dict[str, Any] | None, limit: Any) -> bool:
    if offset is None:
        return True
    if facts is None or facts["kind"] != FILES:
        raise _IncomparableError("the number of files that an epoch reflects is not known")
    return bool(facts["files"] <= _number(limit))


def _version_within(offset: Any, limit: dict[str, Any]) -> bool:
    last = (_number(limit[VERSION]), _number(limit.get(FILE, math.inf)))
    if offset is None:
        return True
    if not is_delta(offset):
        raise _IncomparableError("only sources that read Delta tables have table versions")
    return DeltaOffset.of(offset).position <= last


def within(offset: Any, limit: Any) -> bool:
    """Return whether a parsed offset is at or before another of the same source, part by part."""
    if isinstance(offset, dict) and isinstance(limit, dict):
        if is_delta(offset) or is_delta(limit):
            return _delta(offset, limit)
        read, topics = read_topics(offset), read_topics(limit)
        if read is not None and topics is not None:
            return _kafka(read, topics)
        both = offset.keys() & limit.keys()
        if not both:
            raise _IncomparableError("they have no parts in common")
        verdicts = [within(offset[name], limit[name]) for name in sorted(both)]
        return all(verdicts)
    return _number(offset) <= _number(limit)


def _kafka(read: Mapping[str, Partitions], limits: Mapping[str, Partitions]) -> bool:
    return all(
        offset <= limits[topic][partition]
        for topic in read.keys() & limits.keys()
        for partition, offset in read[topic].items()
        if partition in limits[topic]
    )


def _delta(offset: dict[str, Any], limit: dict[str, Any]) -> bool:
    if not is_delta(offset) or not is_delta(limit):
        raise _IncomparableError('a table version is written {"version": 17} or {"version": 17, "file": 3}')
    if offset["reservoirId"] != limit["reservoirId"]:
        raise _IncomparableError("they are offsets of different Delta tables")
    return DeltaOffset.of(offset).position <= DeltaOffset.of(limit).position


def _number(part: Any) -> int | float:
    if isinstance(part, bool) or not isinstance(part, (int, float)):
        raise _IncomparableError(f"{json.dumps(part, default=str)} is not a number")
    return part


def _shown(entry: Entry) -> str:
    """Return an entry's offsets as the caller would write them."""
    offsets = json.loads(entry.offsets or "[]", object_hook=_delta_limit)
    shown = json.dumps(offsets[0] if isinstance(offsets, list) and len(offsets) == 1 else offsets)
    files = [facts["files"] for facts in recorded_by_source(entry.sources).values() if _has_files(facts)]
    return shown + (f" ({', '.join(map(str, files))} files)" if files else "")


def _delta_limit(part: dict[str, Any]) -> dict[str, Any]:
    return DeltaOffset.of(part).limit if is_delta(part) else part


def _has_files(facts: dict[str, Any] | None) -> bool:
    return facts is not None and facts["kind"] == FILES
