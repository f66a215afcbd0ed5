"""Rules for the cause of a change: what each of Spark's stateful operators can do to its state.

A cause is named only if it is the only possible one. The rules follow from how Spark's operators work (a batch first
processes its input, then evicts, and evicts only what the watermark has passed), and were checked against runs of each
operator. If user code runs on input, timers and expiry alike, the cause is known only if all but one can be ruled out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from streamstate.snapshots.store.changelog import Operator

INPUT, WATERMARK, TIMER, TTL, UNKNOWN = "input", "watermark", "timer", "ttl", "unknown"

_NO_TIMEOUT = -1


@dataclass(frozen=True)
class EpochFacts:
    """Facts on the epoch of a change. Times are in milliseconds since 1970."""

    epoch: int
    watermark: int | None
    """The watermark in effect, 0 if there was none; None if it is not known."""
    began: int | None
    """The batch's processing time; None if it is not known."""
    no_input: bool
    """True if the operator is known to have received no rows."""
    single: bool
    """True if the previous epoch is captured too, so that the change happened in this very batch."""
    only_operator: bool
    """True if the query has no other stateful operator, whose watermark would lag behind the query's."""


@dataclass(frozen=True)
class KeyEvent:
    """One change of one key. Optional fields are None if the state has no such column or the column has no value."""

    epoch: int
    removed: bool
    added: bool
    same: bool
    """The values are the same as before."""
    same_but_matched: bool = False
    """The values of a join's row are the same as before, except for whether it has been matched."""
    keyed: bool = True
    """The operator has grouping columns."""
    positional: bool = False
    """The row is an element of a list."""
    ends: int | None = None
    """The end of the row's session before the change, in milliseconds."""
    expired: int | None = None
    """The due time of the row's timer, timeout or time to live before the change."""
    written: EpochFacts | None = None
    """The epoch that wrote the row's previous values."""
    timers: tuple[int, ...] | None = ()
    """The due times of the timers that the key had before this epoch; None if they are not known."""


Rule = Callable[[KeyEvent, EpochFacts], str]


def _by_input_until_evicted(event: KeyEvent, _: EpochFacts) -> str:
    """Aggregation and deduplication: only input writes rows, only the watermark removes them."""
    if event.same and not event.keyed:
        return UNKNOWN  # without grouping columns every batch writes the row, with or without input
    return WATERMARK if event.removed else INPUT


def _by_input(_: KeyEvent, __: EpochFacts) -> str:
    """A limit only counts input rows."""
    return INPUT


def _session(event: KeyEvent, facts: EpochFacts) -> str:
    """Session windows: removed when the watermark passes their end, or when input merges them into an earlier one."""
    if not event.removed:
        return INPUT
    if event.ends is None or facts.watermark is None:
        return UNKNOWN
    if event.ends > facts.watermark:
        return INPUT
    return WATERMARK if facts.only_operator and facts.single else UNKNOWN


def _join(event: KeyEvent, facts: EpochFacts) -> str:
    """Joins: only the watermark removes a side's rows.

    The rows of one key are numbered, and the last row takes the number of an evicted one. So a different row under a
    number means an eviction, while a row that was matched keeps its number and was marked by input.
    """
    if event.removed:
        return WATERMARK
    if event.added:
        return INPUT
    if not facts.single:
        return UNKNOWN
    if event.same_but_matched:
        return INPUT
    return UNKNOWN if event.positional else WATERMARK


def _group_state(event: KeyEvent, facts: EpochFacts) -> str:
    """``applyInPandasWithState``: user code runs on a key's input, or on its timeout."""
    if event.added or event.expired is None or event.expired == _NO_TIMEOUT:
        return INPUT
    if not facts.single or not _may_have_timed_out(event.expired, event.written, facts):
        return INPUT if facts.single else UNKNOWN
    return TIMER if facts.no_input else UNKNOWN


def _may_have_timed_out(timeout: int, written: EpochFacts | None, facts: EpochFacts) -> bool:
    """Return whether a timeout may have been due; the checkpoint does not record the query's kind of time."""
    if facts.watermark is None:
        return True
    by_event_time = timeout <= facts.watermark
    # A processing-time timeout is later than the start of the batch that set it.
    if written is not None and written.single and written.began is not None and timeout < written.began:
        return by_event_time
    return by_event_time or _may_be_due(timeout, facts)


def _may_be_due(time: int, facts: EpochFacts) -> bool:
    return facts.began is None or time <= facts.began


def _is_due(time: int, facts: EpochFacts) -> bool:
    return facts.began is not None and time < facts.began


def _transform(mode: str) -> Rule:
    """``transformWithState``: user code runs on a key's input and on its timers; values may have a time to live."""

    def fired(time: int, facts: EpochFacts) -> bool:
        if mode == "EventTime":
            return facts.watermark is None or time <= facts.watermark
        return _may_be_due(time, facts)

    def rule(event: KeyEvent, facts: EpochFacts) -> str:
        if event.added and facts.epoch == 0:
            return UNKNOWN  # the first batch writes the initial state
        if mode == "NoTime":
            return INPUT
        if not facts.single or event.timers is None:
            return UNKNOWN
        by_timer = any(fired(time, facts) for time in event.timers)
        by_ttl = event.expired is not None and mode == "ProcessingTime" and _may_be_due(event.expired, facts)
        if not by_timer and not by_ttl:
            # An element of a list may have moved up because elements before it expired.
            return UNKNOWN if event.positional and event.expired is not None else INPUT
        return _of_several(event, facts, by_timer=by_timer, by_ttl=by_ttl)

    return rule


def _of_several(event: KeyEvent, facts: EpochFacts, *, by_timer: bool, by_ttl: bool) -> str:
    if event.positional and by_ttl:
        return UNKNOWN
    if event.removed and event.expired is not None and _is_due(event.expired, facts):
        return TTL
    if by_ttl and not event.removed:
        by_ttl = False  # what expires is removed; only user code writes again
        if not by_timer:
            return INPUT
    if not facts.no_input or (by_timer and by_ttl):
        return UNKNOWN
    return TIMER if by_timer else TTL


def _timers(mode: str) -> Rule:
    """Registered timers: removed when they are due, or when user code deletes them."""
    by_user_code = _transform(mode)

    def rule(event: KeyEvent, facts: EpochFacts) -> str:
        if not event.removed:
            return by_user_code(event, facts)
        if not facts.single or event.expired is None:
            return UNKNOWN
        if mode == "EventTime":
            passed = facts.watermark is not None and event.expired < facts.watermark
        else:
            passed = _is_due(event.expired, facts)
        return TIMER if passed else by_user_code(event, facts)

    return rule


def _unknown(_: KeyEvent, __: EpochFacts) -> str:
    return UNKNOWN


_RULES: dict[str, Rule] = {
    "stateStoreSave": _by_input_until_evicted,
    "StatefulStreamlineAggregate": _by_input_until_evicted,
    "sessionWindowStateStoreSaveExec": _session,
    "dedupe": _by_input_until_evicted,
    "dedupeWithinWatermark": _by_input_until_evicted,
    "globalLimit": _by_input,
    "symmetricHashJoin": _join,
    "applyInPandasWithState": _group_state,
}


def rule_of(operator: Operator | None, *, timers: bool = False) -> Rule:
    """Return the rule for an operator's changes, or for its registered timers; an unknown operator's names no cause."""
    if operator is None:
        return _unknown
    if operator.name.startswith("transformWithState"):
        return _timers(operator.time_mode) if timers else _transform(operator.time_mode)
    return _RULES.get(operator.name, _unknown)
