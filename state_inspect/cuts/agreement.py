"""Epochs of several queries that reflect the same prefix of the streams they share.

A query's epochs read its streams further and further. So of two sets of epochs that agree, the later epoch of each
query agree too: the newest epochs that agree are found by leaving out, until nothing changes, every epoch whose
position in a shared stream no epoch of another query has, and taking the newest that remains of each (arc consistency
decides such "max-closed" constraints: Jeavons and Cooper, "Tractable constraints on ordered domains", 1995).
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence

from streamstate.state_inspect.cuts.source_positions import MIXED, QueryStreams


def shared(streams: Sequence[QueryStreams]) -> set[Hashable]:
    """The streams that more than one query reads."""
    seen: set[Hashable] = set()
    twice: set[Hashable] = set()
    for one in streams:
        twice |= seen & one.streams
        seen |= one.streams
    return twice


def connected(streams: Sequence[QueryStreams]) -> bool:
    """Whether each query shares streams with another, such that they hang together."""
    groups: list[tuple[set[str], set[Hashable]]] = []
    for one in streams:
        queries, read = {one.query}, set(one.streams)
        apart = []
        for names, their in groups:
            if their & read:
                queries, read = queries | names, read | their
            else:
                apart.append((names, their))
        groups = [*apart, (queries, read)]
    return len(groups) == 1


def newest_agreeing(
    streams: Sequence[QueryStreams], allowed: Mapping[str, Collection[int]] | None = None
) -> dict[str, int] | None:
    """The newest epoch of each query such that all agree in each stream that they share; None where there is none.

    Args:
        streams: the queries.
        allowed: the epochs of a query that may be taken, where not all may.
    """
    allowed = allowed or {}
    epochs = {
        one.query: [epoch for epoch in one.positions if one.query not in allowed or epoch in allowed[one.query]]
        for one in streams
    }
    while _leave_out(streams, epochs):
        found = {query: max(these) for query, these in epochs.items()}
        if _agree(streams, found):
            return found
        # Only where a query's positions went back, as when a Kafka topic was made anew.
        epochs[streams[0].query].remove(found[streams[0].query])
    return None


def oldest_agreeing(streams: Sequence[QueryStreams], allowed: Mapping[str, Collection[int]]) -> dict[str, int] | None:
    """The same with the oldest epoch of the first query for which there are others that agree."""
    first = streams[0]
    epochs = {
        one.query: [epoch for epoch in one.positions if one.query not in allowed or epoch in allowed[one.query]]
        for one in streams
    }
    if not _leave_out(streams, epochs):
        return None
    for epoch in epochs[first.query]:
        found = newest_agreeing(streams, {**allowed, first.query: {epoch}})
        if found is not None:
            return found
    return None


def _leave_out(streams: Sequence[QueryStreams], epochs: dict[str, list[int]]) -> bool:
    """Leave out the epochs that no epoch of another query agrees with; False where one has none left."""
    changed = True
    while changed and all(epochs.values()):
        changed = False
        for stream in shared(streams):
            readers = [one for one in streams if stream in one.streams]
            common = set.intersection(
                *({one.positions[epoch].get(stream) for epoch in epochs[one.query]} for one in readers)
            ) - {None, MIXED}
            for one in readers:
                kept = [epoch for epoch in epochs[one.query] if one.positions[epoch].get(stream) in common]
                changed |= len(kept) < len(epochs[one.query])
                epochs[one.query] = kept
    return all(epochs.values())


def _agree(streams: Sequence[QueryStreams], epochs: Mapping[str, int]) -> bool:
    return all(
        len({one.positions[epochs[one.query]].get(stream) for one in streams if stream in one.streams}) == 1
        for stream in shared(streams)
    )
