"""Reasons why queries over the same topics of Kafka have no cut: other starting offsets, or other steps."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

from streamstate.errors import choices
from streamstate.state_inspect.cuts.source_positions import KAFKA, MIXED, QueryStreams


def other_starts(streams: Sequence[QueryStreams]) -> str:
    """Return a sentence on topics that several queries read from different offsets on; empty if there are none."""
    found = [
        f"{one.query} and {other.query} both read {topic}, but began at other offsets: {differ}."
        for one, other in combinations(streams, 2)
        for topic, differ in _differing(_starts(one), _starts(other))
    ]
    return " ".join(found)


def _starts(query: QueryStreams) -> dict[str, dict[str, int]]:
    return {stream[1]: dict(stream[2]) for stream in _of_kafka(query.streams)}


def _differing(one: Mapping[str, dict[str, int]], other: Mapping[str, dict[str, int]]) -> Iterator[tuple[str, str]]:
    for topic in sorted(one.keys() & other.keys()):
        partitions = sorted(one[topic].keys() | other[topic].keys(), key=int)
        starts = [(name, one[topic].get(name, 0), other[topic].get(name, 0)) for name in partitions]
        if differ := [f"partition {name} at {first} and {second}" for name, first, second in starts if first != second]:
            yield topic, ", ".join(differ)


def never_same(streams: Sequence[QueryStreams], allowed: Mapping[str, Collection[int]]) -> str:
    """Return a sentence on a partition of which queries have never read the same; empty if there is none.

    ``allowed`` are the epochs of each query that may be in the cut; by default all of its epochs.
    """
    for stream in sorted(_of_kafka({stream for query in streams for stream in query.streams})):
        readers = [query for query in streams if stream in query.streams]
        read = [_positions(query, stream, allowed.get(query.query, query.positions)) for query in readers]
        for partition in sorted({name for positions in read for at in positions for name in at}, key=int):
            ends = [{at.get(partition, 0) for at in positions} for positions in read]
            if len(readers) > 1 and not set.intersection(*ends):
                names = choices(query.query for query in readers)
                return f"No such epochs of {names} end at the same offset of {stream[1]}, partition {partition}."
    return ""


def _positions(query: QueryStreams, stream: Any, epochs: Collection[int]) -> list[dict[str, int]]:
    known = (query.positions[epoch].get(stream) for epoch in epochs)
    return [dict(position) for position in known if isinstance(position, tuple) and position != MIXED]


def _of_kafka(streams: Collection[Any]) -> list[Any]:
    return [stream for stream in streams if stream[0] == KAFKA]
