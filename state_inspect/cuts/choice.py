"""Chooses the epochs of a cut: by what the queries have in common, at the place that was asked for."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from streamstate.snapshots.errors import InvalidArgumentError, UnknownCutError, choices
from streamstate.state_inspect.cuts.agreement import connected, newest_agreeing, oldest_agreeing, shared
from streamstate.state_inspect.cuts.same_time import (
    Clocks,
    CommitTime,
    EventTime,
    epochs_at,
    nearest_in_time,
    newest_moment,
)
from streamstate.state_inspect.cuts.source_positions import QueryStreams, streams_of
from streamstate.state_inspect.timestamps import aware

if TYPE_CHECKING:
    from streamstate.snapshots.manifest import Entry
    from streamstate.state_inspect.history import History
    from streamstate.state_inspect.snapshot import Snapshot

By = Literal["offsets", "event_time", "commit_time"]
_WAYS = ("offsets", "event_time", "commit_time")


@dataclass(frozen=True)
class Choice:
    """The snapshots that were chosen, and what they have in common."""

    snapshots: dict[str, Snapshot]
    by: By
    exact: bool
    note: str


@dataclass(frozen=True)
class _Place:
    """Where the cut is to be."""

    fixed: dict[str, int]
    """The epochs that were named."""
    moment: datetime | None

    def __str__(self) -> str:
        if self.moment is not None:
            return f" at {self.moment.isoformat()}"
        named = ", ".join(f"epoch {epoch} of {query}" for query, epoch in self.fixed.items())
        return f" with {named}" if named else ""


def chosen(histories: Mapping[str, History], at: Any, by: By | None) -> Choice:
    """The snapshots of a cut; see :func:`streamstate.cut`."""
    if by is not None and by not in _WAYS:
        raise InvalidArgumentError(f"by={by!r} cannot be meant. One of: {choices(_WAYS)}.")
    live = {name: history.live() for name, history in histories.items()}  # raises where there is no epoch
    place = _place(histories, at)
    entries = {name: history.entries() for name, history in histories.items()}
    captured = {name: [entry for entry in told if entry.captured] for name, told in entries.items()}
    streams = streams_of(captured)
    if by == "offsets" or (by is None and connected(streams) and not any(one.unknown for one in streams)):
        return _by_offsets(histories, streams, captured, place)
    if by == "event_time" or (by is None and all(one.watermark is not None for one in live.values())):
        event = {name: EventTime(told) for name, told in entries.items()}
        return _by_time(histories, event, "event_time", place)
    commit = {name: CommitTime(told) for name, told in entries.items()}
    return _by_time(histories, commit, "commit_time", place)


def _place(histories: Mapping[str, History], at: Any) -> _Place:
    if at is None or at == "live":
        return _Place({}, None)
    if isinstance(at, datetime):
        return _Place({}, aware(at))
    first = next(iter(histories))
    if isinstance(at, str):
        at = histories[first].at(at).epoch
    named = dict(at) if isinstance(at, Mapping) else {first: at}
    for query, epoch in named.items():
        if query not in histories:
            raise InvalidArgumentError(
                f"at names {query!r}, which is none of the cut's queries.\nThey are: {choices(histories)}."
            )
        if isinstance(epoch, bool) or not isinstance(epoch, int):
            raise InvalidArgumentError(
                f"at={at!r} cannot be meant.\nGive an epoch of {first}, a dict of a query and its epoch, an aware"
                " datetime, or 'live'."
            )
        histories[query].at(epoch)  # raises where it is not captured
    return _Place(named, None)


def _by_offsets(
    histories: Mapping[str, History],
    streams: list[QueryStreams],
    captured: Mapping[str, list[Entry]],
    place: _Place,
) -> Choice:
    if not connected(streams):
        raise UnknownCutError(
            f"{choices(histories)} do not all share a source whose offsets can be compared.\n"
            "Ask for by='event_time' or by='commit_time', which need none."
        )
    allowed: dict[str, Collection[int]] = {query: {epoch} for query, epoch in place.fixed.items()}
    if place.moment is not None:
        allowed = {query: _committed_by(place.moment, told) for query, told in captured.items()}
    epochs = newest_agreeing(streams, allowed)
    if epochs is None:
        raise _no_cut(histories, place, _nearest_by_offsets(streams, place))
    exact = not any(one.unknown for one in streams)
    return _choice(histories, epochs, "offsets", _said(streams), exact=exact)


def _committed_by(moment: datetime, entries: list[Entry]) -> set[int]:
    return {entry.epoch for entry in entries if entry.committed_at is not None and entry.committed_at <= moment}


def _said(streams: list[QueryStreams]) -> str:
    both = shared(streams)
    alone = [one.query for one in streams if one.streams - both]
    unknown = [one.query for one in streams if one.unknown]
    said = "All reflect the same prefix of the sources they share."
    if alone and len(streams) > 1:
        said += f" Sources that the others do not read are left aside: {', '.join(alone)} has some."
    if unknown:
        said += f" Not known of a source, whose offsets cannot be compared: of {', '.join(unknown)}."
    return said


def _nearest_by_offsets(streams: list[QueryStreams], place: _Place) -> list[dict[str, int]]:
    """The nearest cuts before and after what was asked for."""
    if place.moment is not None:
        oldest = oldest_agreeing(streams, {})
        return [oldest] if oldest is not None else []
    if not place.fixed:
        return []
    query, epoch = next(iter(place.fixed.items()))
    [named] = [one for one in streams if one.query == query]
    turned = [named, *(one for one in streams if one is not named)]
    before = newest_agreeing(turned, {query: {one for one in named.positions if one < epoch}})
    after = oldest_agreeing(turned, {query: {one for one in named.positions if one > epoch}})
    return [{one.query: found[one.query] for one in streams} for found in (before, after) if found is not None]


def _by_time(histories: Mapping[str, History], clocks: Clocks, by: By, place: _Place) -> Choice:
    moment = place.moment or _moment(clocks, by, place)
    epochs = epochs_at(clocks, moment, place.fixed)
    if epochs is None:
        raise _no_cut(histories, place, nearest_in_time(clocks, moment))
    what = "Watermarks up to" if by == "event_time" else "The newest committed at"
    note = f"{what} {moment.isoformat()}; they need not reflect the same input."
    return _choice(histories, epochs, by, note, exact=False)


def _moment(clocks: Clocks, by: By, place: _Place) -> datetime:
    """The moment of the epochs that were named, or the newest that all queries have come to."""
    named = [clocks[query].times[epoch] for query, epoch in place.fixed.items()]
    moment = max((one for one in named if one is not None), default=None) if named else newest_moment(clocks)
    if moment is None or None in named:
        what = "watermark" if by == "event_time" else "commit time that is known"
        where = str(place) if named else " at any epoch of one of the queries"
        raise UnknownCutError(
            f"There is no {what}{where}.\nAsk for by='{'commit_time' if by == 'event_time' else 'event_time'}', or for"
            " another epoch."
        )
    return moment


def _choice(histories: Mapping[str, History], epochs: Mapping[str, int], by: By, note: str, *, exact: bool) -> Choice:
    return Choice({name: histories[name].at(epochs[name]) for name in histories}, by, exact, note)


def _no_cut(histories: Mapping[str, History], place: _Place, nearest: list[dict[str, int]]) -> UnknownCutError:
    told = [", ".join(f"{query} {epoch}" for query, epoch in epochs.items()) for epochs in nearest]
    hint = (
        f"The nearest: {'; or '.join(told)}."
        if told
        else "There is none at other epochs either. Ask for by='commit_time', which does not need the same input."
    )
    return UnknownCutError(f"There is no cut of {choices(histories)}{place}.\n{hint}")
