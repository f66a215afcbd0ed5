"""How far an epoch has read each stream of input, so that epochs of several queries can be compared.

A stream is what can be told apart between queries: a Kafka topic read from a start, a Delta table, the files under a
folder. Two epochs reflect the same prefix of a stream where they have the same position in it.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from streamstate.snapshots.manifest import Entry
from streamstate.snapshots.sources import FILES

Positions: TypeAlias = "dict[Hashable, Hashable]"
"""How far an epoch has read each stream; a stream that two sources of a query read differently far has MIXED."""

MIXED = ("mixed",)
_NOTHING = (0, f"{0:032x}")


@dataclass
class QueryStreams:
    """The streams that a query reads, and how far each of its epochs has read them."""

    query: str
    positions: dict[int, Positions] = field(default_factory=dict)
    """By captured epoch, ascending; a stream of which it is not known is left out."""
    unknown: bool = False
    """Whether, at the newest epoch, it has a source whose offset says nothing to other queries."""

    @property
    def streams(self) -> set[Hashable]:
        """All that any epoch has read."""
        return {stream for positions in self.positions.values() for stream in positions}


def streams_of(entries: Mapping[str, Sequence[Entry]]) -> list[QueryStreams]:
    """The streams that some queries read, the same ones named the same.

    Args:
        entries: each query's captured entries, ascending.
    """
    folders = _Folders()
    read = {query: [_sources(entry) for entry in told] for query, told in entries.items()}
    for query, epochs in read.items():
        for sources in epochs:
            for at, (offset, facts) in enumerate(sources):
                folders.add((query, at), offset, facts)
    found = []
    for query, told in entries.items():
        streams = QueryStreams(query)
        for entry, sources in zip(told, read[query], strict=True):
            parts = [_parts((query, at), *source, folders) for at, source in enumerate(sources)]
            streams.positions[entry.epoch] = _together(parts)
            streams.unknown = None in parts
        found.append(streams)
    return found


def _sources(entry: Entry) -> list[tuple[Any, dict[str, Any] | None]]:
    offsets = json.loads(entry.offsets) if entry.offsets is not None else [None]
    facts = json.loads(entry.sources) if entry.sources is not None else []
    return [(offset, facts[at] if at < len(facts) else None) for at, offset in enumerate(offsets)]


class _Folders:
    """Tells which file sources read the same files: those under one folder, or that once had read the same."""

    def __init__(self) -> None:
        self._names: dict[tuple[str, int], int] = {}
        self._members: dict[Hashable, set[tuple[str, int]]] = {}

    def add(self, source: tuple[str, int], offset: Any, facts: dict[str, Any] | None) -> None:
        """One epoch of a source."""
        if offset is None or facts is None or facts["kind"] != FILES:
            return
        self._members.setdefault(facts["digest"], set()).add(source)
        self._members.setdefault(("under", _without_partitions(facts["under"])), set()).add(source)

    def name(self, source: tuple[str, int]) -> Hashable | None:
        """The name of the stream that a source reads; None where it is no file source."""
        if not self._names:
            self._names = _joined(self._members.values())
        number = self._names.get(source)
        return None if number is None else ("files", number)


def _joined(groups: Any) -> dict[tuple[str, int], int]:
    """Sources that are together in any group, directly or by way of others, by one number."""
    names: dict[tuple[str, int], int] = {}
    for number, group in enumerate(groups):
        before = {names[one] for one in group if one in names}
        names.update(dict.fromkeys(group, number))
        names.update({one: number for one, its in names.items() if its in before})
    return names


def _without_partitions(folder: str) -> str:
    """A folder without Hive's ``day=1`` at its end: which of them a query has read is how far, not what."""
    parts = folder.split("/")
    while parts and "=" in parts[-1].replace("%3D", "="):
        parts.pop()
    return "/".join(parts)


def _parts(source: tuple[str, int], offset: Any, facts: Any, folders: _Folders) -> Positions | None:
    """A source's streams and positions; None where they cannot be compared."""
    folder = folders.name(source)
    return _of_offset(offset, facts) if folder is None else _of_files(folder, offset, facts)


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
    """The streams and positions of an offset that says itself how far it is; None where it says nothing to others."""
    if not isinstance(offset, dict):
        return None
    start = (facts or {}).get("start")
    if "reservoirId" in offset:
        position = (offset.get("reservoirVersion"), offset.get("index"), offset.get("isStartingVersion"))
        return {("delta", offset["reservoirId"]): position}
    if offset.keys() == {"offset", "timestamp"}:
        return {("rate-micro-batch",): (offset["offset"], offset["timestamp"])}
    if offset and all(_is_topic(one) for one in offset.values()):
        begun = start if isinstance(start, dict) else {}
        return {("kafka", topic, _read(begun.get(topic, {}))): _read(its) for topic, its in offset.items()}
    return None


def _is_topic(partitions: Any) -> bool:
    """Whether something is Kafka's offsets by the number of the partition."""
    return (
        isinstance(partitions, dict)
        and bool(partitions)
        and all(name.isdigit() and isinstance(its, int) for name, its in partitions.items())
    )


def _read(partitions: Any) -> Hashable:
    """A topic's partitions of which anything was read; one that was added since and is empty makes no difference."""
    return tuple(sorted((name, its) for name, its in partitions.items() if its > 0))
