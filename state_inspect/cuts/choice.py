"""Chooses the epochs of a cut: by source offsets, by event time or by commit time.

A query's positions in its streams only move forward. So if two sets of epochs each agree, the later epochs of each
query agree too. To find the newest epochs that agree, every epoch whose position in a shared stream no other query has
is removed until nothing changes; the newest remaining epochs are the answer (arc consistency decides such "max-closed"
constraints: Jeavons and Cooper, "Tractable constraints on ordered domains", 1995).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from operator import itemgetter
from typing import Any, Literal

from streamstate.errors import InvalidArgumentError, UnknownCutError, choices
from streamstate.snapshots.store.entries import Entry
from streamstate.state_inspect.cuts.source_positions import MIXED, QueryStreams, connected_groups, streams_of
from streamstate.state_inspect.cuts.why_no_cut import never_same, other_starts
from streamstate.state_inspect.epoch_names import aware
from streamstate.state_inspect.history import History
from streamstate.state_inspect.snapshot import Snapshot

By = Literal["offsets", "event_time", "commit_time"]
_WAYS = ("offsets", "event_time", "commit_time")


@dataclass(frozen=True)
class Choice:
    """The chosen snapshots, and what they have in common."""

    snapshots: dict[str, Snapshot]
    by: By
    exact: bool
    note: str


@dataclass(frozen=True)
class _Position:
    """The requested position of the cut."""

    fixed: dict[str, int]
    """The epochs that the caller named."""
    moment: datetime | None

    def __str__(self) -> str:
        if self.moment is not None:
            return f" at {self.moment.isoformat()}"
        named = ", ".join(f"epoch {epoch} of {query}" for query, epoch in self.fixed.items())
        return f" with {named}" if named else ""


def chosen(histories: Mapping[str, History], at: Any, by: By | None) -> Choice:
    """Return the snapshots of a cut; see :func:`streamstate.cut`."""
    if by is not None and by not in _WAYS:
        raise InvalidArgumentError(f"Invalid by={by!r}: expected one of {choices(_WAYS)}.")
    live = {name: history.live() for name, history in histories.items()}  # raises if no epoch is captured
    position = _position(histories, at)
    entries = {name: history.recorded.entries() for name, history in histories.items()}
    captured = {name: [entry for entry in of if entry.captured] for name, of in entries.items()}
    streams = streams_of(captured)
    if by == "offsets" or (by is None and connected(streams) and not any(query.unknown for query in streams)):
        return _by_offsets(histories, streams, captured, position)
    why = other_starts(streams)
    if by == "event_time" or (by is None and all(snapshot.watermark is not None for snapshot in live.values())):
        return _by_time(histories, {name: event_time(of) for name, of in entries.items()}, "event_time", position, why)
    return _by_time(histories, {name: commit_time(of) for name, of in entries.items()}, "commit_time", position, why)


def _position(histories: Mapping[str, History], at: Any) -> _Position:
    if at is None or at == "live":
        return _Position({}, None)
    if isinstance(at, datetime):
        return _Position({}, aware(at))
    first = next(iter(histories))
    if isinstance(at, str):
        at = histories[first].at(at).epoch
    named = dict(at) if isinstance(at, Mapping) else {first: at}
    for query, epoch in named.items():
        if query not in histories:
            raise InvalidArgumentError(
                f"Invalid at={at!r}: {query!r} is not one of the cut's queries.\nThe queries: {choices(histories)}."
            )
        if isinstance(epoch, bool) or not isinstance(epoch, int):
            raise InvalidArgumentError(
                f"Invalid at={at!r}: expected an epoch of {first}, a dict of queries and epochs, an aware datetime, or"
                " 'live'."
            )
        histories[query].at(epoch)  # raises if it is not captured
    return _Position(named, None)


def _by_offsets(
    histories: Mapping[str, History],
    streams: list[QueryStreams],
    captured: Mapping[str, list[Entry]],
    position: _Position,
) -> Choice:
    if not connected(streams):
        why = other_starts(streams) or f"{choices(histories)} do not all share a source whose offsets can be compared."
        raise UnknownCutError(f"{why}\nUse by='event_time' or by='commit_time', which do not need one.")
    allowed: dict[str, Collection[int]] = {query: {epoch} for query, epoch in position.fixed.items()}
    if position.moment is not None:
        allowed = {query: _committed_by(position.moment, of) for query, of in captured.items()}
    epochs = newest_agreeing(streams, allowed)
    if epochs is None:
        why = never_same(streams, allowed)
        raise _no_cut(histories, position, _nearest_by_offsets(streams, position), why)
    exact = not any(query.unknown for query in streams)
    return _choice(histories, epochs, "offsets", _offsets_note(streams), exact=exact)


def _committed_by(moment: datetime, entries: list[Entry]) -> set[int]:
    return {entry.epoch for entry in entries if entry.committed_at is not None and entry.committed_at <= moment}


def _offsets_note(streams: list[QueryStreams]) -> str:
    common = shared_streams(streams)
    alone = [query.query for query in streams if query.streams - common]
    unknown = [query.query for query in streams if query.unknown]
    note = "All reflect the same prefix of the sources they share."
    if alone and len(streams) > 1:
        note += f" Sources that only one query reads are not considered: {', '.join(alone)} has some."
    if unknown:
        note += f" Unknown for sources whose offsets cannot be compared: {', '.join(unknown)} has some."
    return note


def _nearest_by_offsets(streams: list[QueryStreams], position: _Position) -> list[dict[str, int]]:
    """Return the nearest cuts before and after the requested position."""
    if position.moment is not None:
        oldest = oldest_agreeing(streams, {})
        return [oldest] if oldest is not None else []
    if not position.fixed:
        return []
    query, epoch = next(iter(position.fixed.items()))
    [named] = [streams_of_query for streams_of_query in streams if streams_of_query.query == query]
    reordered = [named, *(streams_of_query for streams_of_query in streams if streams_of_query is not named)]
    before = newest_agreeing(reordered, {query: {number for number in named.positions if number < epoch}})
    after = oldest_agreeing(reordered, {query: {number for number in named.positions if number > epoch}})
    return [{stream.query: found[stream.query] for stream in streams} for found in (before, after) if found is not None]


def _by_time(histories: Mapping[str, History], clocks: Clocks, by: By, position: _Position, why: str = "") -> Choice:
    moment = position.moment or _moment(clocks, by, position)
    epochs = epochs_at(clocks, moment, position.fixed)
    if epochs is None:
        raise _no_cut(histories, position, nearest_in_time(clocks, moment))
    what = "Watermarks up to" if by == "event_time" else "The newest committed at"
    note = f"{what} {moment.isoformat()}; they need not reflect the same input. {why}".rstrip()
    return _choice(histories, epochs, by, note, exact=False)


def _moment(clocks: Clocks, by: By, position: _Position) -> datetime:
    """Return the time of the named epochs, or the newest time that all queries have reached."""
    named = [clocks[query].times[epoch] for query, epoch in position.fixed.items()]
    moment = max((time for time in named if time is not None), default=None) if named else newest_moment(clocks)
    if moment is None or None in named:
        what = "watermark" if by == "event_time" else "known commit time"
        where = str(position) if named else " at any epoch of one of the queries"
        raise UnknownCutError(
            f"There is no {what}{where}.\nUse by='{'commit_time' if by == 'event_time' else 'event_time'}', or another"
            " epoch."
        )
    return moment


def _choice(histories: Mapping[str, History], epochs: Mapping[str, int], by: By, note: str, *, exact: bool) -> Choice:
    return Choice({name: histories[name].at(epochs[name]) for name in histories}, by, exact, note)


def _no_cut(
    histories: Mapping[str, History], position: _Position, nearest: list[dict[str, int]], why: str = ""
) -> UnknownCutError:
    listing = [", ".join(f"{query} {epoch}" for query, epoch in epochs.items()) for epochs in nearest]
    hint = (
        f"The nearest: {'; or '.join(listing)}."
        if listing
        else "There is none at other epochs either. Use by='commit_time', which does not need the same input."
    )
    return UnknownCutError(f"There is no cut of {choices(histories)}{position}. {why}".rstrip() + f"\n{hint}")


def shared_streams(streams: Sequence[QueryStreams]) -> set[Hashable]:
    """Return the streams that more than one query reads."""
    seen: set[Hashable] = set()
    twice: set[Hashable] = set()
    for query in streams:
        twice |= seen & query.streams
        seen |= query.streams
    return twice


def connected(streams: Sequence[QueryStreams]) -> bool:
    """Return whether all queries are linked through streams that they share."""
    alone = [{query.query} for query in streams]
    together = [{query.query for query in streams if stream in query.streams} for stream in shared_streams(streams)]
    return len({*connected_groups([*alone, *together]).values()}) == 1


def newest_agreeing(
    streams: Sequence[QueryStreams], allowed: Mapping[str, Collection[int]] | None = None
) -> dict[str, int] | None:
    """Return the newest allowed epochs at which all queries agree in every shared stream; None if there are none."""
    epochs = _candidates(streams, allowed or {})
    while _prune(streams, epochs):
        found = {query: max(numbers) for query, numbers in epochs.items()}
        if _agree(streams, found):
            return found
        # Only if a query's positions went back, for example because a Kafka topic was recreated.
        epochs[streams[0].query].remove(found[streams[0].query])
    return None


def oldest_agreeing(streams: Sequence[QueryStreams], allowed: Mapping[str, Collection[int]]) -> dict[str, int] | None:
    """As :func:`newest_agreeing`, for the oldest epoch of the first query with which the others can agree."""
    first = streams[0]
    epochs = _candidates(streams, allowed)
    if not _prune(streams, epochs):
        return None
    for epoch in epochs[first.query]:
        found = newest_agreeing(streams, {**allowed, first.query: {epoch}})
        if found is not None:
            return found
    return None


def _candidates(streams: Sequence[QueryStreams], allowed: Mapping[str, Collection[int]]) -> dict[str, list[int]]:
    return {
        query.query: [epoch for epoch in query.positions if query.query not in allowed or epoch in allowed[query.query]]
        for query in streams
    }


def _prune(streams: Sequence[QueryStreams], epochs: dict[str, list[int]]) -> bool:
    """Remove the epochs that no epoch of another query agrees with; False if a query has none left."""
    changed = True
    while changed and all(epochs.values()):
        changed = False
        for stream in shared_streams(streams):
            readers = [query for query in streams if stream in query.streams]
            common = set.intersection(
                *({reader.positions[epoch].get(stream) for epoch in epochs[reader.query]} for reader in readers)
            ) - {None, MIXED}
            for reader in readers:
                kept = [epoch for epoch in epochs[reader.query] if reader.positions[epoch].get(stream) in common]
                changed |= len(kept) < len(epochs[reader.query])
                epochs[reader.query] = kept
    return all(epochs.values())


def _agree(streams: Sequence[QueryStreams], epochs: Mapping[str, int]) -> bool:
    return all(
        len({query.positions[epochs[query.query]].get(stream) for query in streams if stream in query.streams}) == 1
        for stream in shared_streams(streams)
    )


_EVER = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True)
class Clock:
    """A query's captured epochs by time."""

    times: dict[int, datetime | None]
    """Each epoch's time; None if it has none, or if Spark had purged it."""
    known: list[tuple[int, datetime]]
    """The epochs that can be found by time, ascending."""
    unsure: frozenset[int] = frozenset()
    """Epochs after which a missing epoch may have been newer."""

    def at(self, moment: datetime) -> int | None:
        """Return the newest epoch whose time has not passed a moment; None if there is none, or if it is not sure."""
        after = bisect_right(self.known, moment, key=itemgetter(1))
        return None if not after or self.known[after - 1][0] in self.unsure else self.known[after - 1][0]


Clocks = Mapping[str, Clock]


def event_time(entries: Sequence[Entry]) -> Clock:
    """Return a query's epochs by their watermarks, which only move forward; the first epochs may have none."""
    times = {entry.epoch: entry.watermark for entry in entries if entry.captured}
    return Clock(times, [(epoch, moment or _EVER) for epoch, moment in times.items()])


def commit_time(entries: Sequence[Entry]) -> Clock:
    """Return a query's epochs by their commit times."""
    times = {entry.epoch: entry.committed_at for entry in entries if entry.captured}
    unsure = {entry.epoch for entry, after in pairwise(entries) if not after.captured or after.epoch != entry.epoch + 1}
    return Clock(times, [(epoch, moment) for epoch, moment in times.items() if moment], frozenset(unsure))


def newest_moment(clocks: Clocks) -> datetime | None:
    """Return the newest time that all queries have reached; None if a query has no times."""
    newest = [max(filter(None, clock.times.values()), default=None) for clock in clocks.values()]
    return None if None in newest else min(time for time in newest if time is not None)


def epochs_at(clocks: Clocks, moment: datetime, fixed: Mapping[str, int]) -> dict[str, int] | None:
    """Return each query's epoch at a moment, or its fixed epoch; None if one is not known."""
    found = {name: fixed[name] if name in fixed else clock.at(moment) for name, clock in clocks.items()}
    known = {name: epoch for name, epoch in found.items() if epoch is not None}
    return known if len(known) == len(found) else None


def nearest_in_time(clocks: Clocks, moment: datetime) -> list[dict[str, int]]:
    """Return the epochs at the last time before a moment and at the first time after it at which all are known."""
    times = sorted({time for clock in clocks.values() for time in clock.times.values() if time is not None})
    before = _first(clocks, (time for time in reversed(times) if time < moment))
    after = _first(clocks, (time for time in times if time > moment))
    return [found for found in (before, after) if found is not None]


def _first(clocks: Clocks, moments: Iterable[datetime]) -> dict[str, int] | None:
    return next((found for moment in moments if (found := epochs_at(clocks, moment, {})) is not None), None)
