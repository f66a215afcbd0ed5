"""What each of Spark's stateful operators can do to a row of its state, and so what must have caused a change.

A cause is only named where the operator leaves no other: the rules follow from what Spark's operators do to their state
(a batch first takes its input in, then evicts, and evicts only what the watermark has passed), and were checked against
runs of each. Where user code runs on input, on timers and on expiry alike, the cause is known only where all but one of
these can be ruled out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from streamstate.snapshots.change_log import Operator

INPUT, WATERMARK, TIMER, TTL, UNKNOWN = "input", "watermark", "timer", "ttl", "unknown"

_NO_TIMEOUT = -1


@dataclass(frozen=True)
class Moment:
    """What is known of the epoch at which something changed; times in milliseconds since 1970."""

    epoch: int
    watermark: int | None
    """The watermark in force, 0 where there was none; None: not known."""
    began: int | None
    """The processing time in it; None: not known."""
    no_input: bool
    """Whether it is known that no row came to the operator in it."""
    single: bool
    """Whether the epoch before it is there too, so that what changed did so in this one batch."""
    only_operator: bool
    """Whether the query has no other stateful operator, whose own watermark would lag behind the query's."""


@dataclass(frozen=True)
class Event:
    """One change of one key; ``None`` where a column that says more is not there, or does not say."""

    epoch: int
    removed: bool
    added: bool
    same: bool
    """The values are those that it had."""
    same_but_matched: bool = False
    """The values of a join's row are those that it had, except for whether it has met a partner."""
    keyed: bool = True
    """The operator groups by something."""
    positional: bool = False
    """The row is an element of a list."""
    ends: int | None = None
    """When the session ended that the row had, in milliseconds."""
    expired: int | None = None
    """When the row's timer, timeout or time to live was to come, before the change."""
    written: Moment | None = None
    """The epoch that wrote what the row had."""
    timers: tuple[int, ...] | None = ()
    """When the timers of the same key were to come that stood before this epoch; None: not known."""


Rule = Callable[[Event, Moment], str]


def _by_input_until_evicted(event: Event, _: Moment) -> str:
    """Aggregations and deduplication: rows are written by input alone, and removed by the watermark alone."""
    if event.same and not event.keyed:
        return UNKNOWN  # without a key the row is written by every batch, input or not
    return WATERMARK if event.removed else INPUT


def _by_input(_: Event, __: Moment) -> str:
    """A limit counts rows."""
    return INPUT


def _session(event: Event, moment: Moment) -> str:
    """Sessions go where the watermark has passed their end, or where input merged them into an earlier one."""
    if not event.removed:
        return INPUT
    if event.ends is None or moment.watermark is None:
        return UNKNOWN
    if event.ends > moment.watermark:
        return INPUT
    return WATERMARK if moment.only_operator and moment.single else UNKNOWN


def _join(event: Event, moment: Moment) -> str:
    """A side's rows are removed by the watermark alone.

    Under one key they are numbered; where one is evicted the last takes its number. So another row under a number
    means that one was evicted, while a row that has met a partner stays where it is and was marked by input.
    """
    if event.removed:
        return WATERMARK
    if event.added:
        return INPUT
    if not moment.single:
        return UNKNOWN
    if event.same_but_matched:
        return INPUT
    return UNKNOWN if event.positional else WATERMARK


def _group_state(event: Event, moment: Moment) -> str:
    """``applyInPandasWithState``: user code runs on a key's input, or on its timeout."""
    if event.added or event.expired is None or event.expired == _NO_TIMEOUT:
        return INPUT
    if not moment.single or not _may_have_timed_out(event.expired, event.written, moment):
        return INPUT if moment.single else UNKNOWN
    return TIMER if moment.no_input else UNKNOWN


def _may_have_timed_out(timeout: int, written: Moment | None, moment: Moment) -> bool:
    """Whether a timeout may have come, where the query's kind of time is not written down."""
    if moment.watermark is None:
        return True
    by_event_time = timeout <= moment.watermark
    # A timeout in processing time is set to a moment after the batch began that set it.
    if written is not None and written.single and written.began is not None and timeout < written.began:
        return by_event_time
    return by_event_time or _may_have_come(timeout, moment)


def _may_have_come(time: int, moment: Moment) -> bool:
    return moment.began is None or time <= moment.began


def _has_come(time: int, moment: Moment) -> bool:
    return moment.began is not None and time < moment.began


def _transform(mode: str) -> Rule:
    """``transformWithState``: user code runs on a key's input and on its timers; values may have a time to live."""

    def fired(time: int, moment: Moment) -> bool:
        if mode == "EventTime":
            return moment.watermark is None or time <= moment.watermark
        return _may_have_come(time, moment)

    def rule(event: Event, moment: Moment) -> str:
        if event.added and moment.epoch == 0:
            return UNKNOWN  # the initial state is written by the first batch
        if mode == "NoTime":
            return INPUT
        if not moment.single or event.timers is None:
            return UNKNOWN
        by_timer = any(fired(time, moment) for time in event.timers)
        by_ttl = event.expired is not None and mode == "ProcessingTime" and _may_have_come(event.expired, moment)
        if not by_timer and not by_ttl:
            # An element of a list may have moved up because others before it have expired.
            return UNKNOWN if event.positional and event.expired is not None else INPUT
        return _of_several(event, moment, by_timer=by_timer, by_ttl=by_ttl)

    return rule


def _of_several(event: Event, moment: Moment, *, by_timer: bool, by_ttl: bool) -> str:
    if event.positional and by_ttl:
        return UNKNOWN
    if event.removed and event.expired is not None and _has_come(event.expired, moment):
        return TTL
    if by_ttl and not event.removed:
        by_ttl = False  # what has expired is removed; who wrote anew was user code
        if not by_timer:
            return INPUT
    if not moment.no_input or (by_timer and by_ttl):
        return UNKNOWN
    return TIMER if by_timer else TTL


def _timers(mode: str) -> Rule:
    """Registered timers go when their time comes, or when user code deletes them."""
    others = _transform(mode)

    def rule(event: Event, moment: Moment) -> str:
        if not event.removed:
            return others(event, moment)
        if not moment.single or event.expired is None:
            return UNKNOWN
        if mode == "EventTime":
            passed = moment.watermark is not None and event.expired < moment.watermark
        else:
            passed = _has_come(event.expired, moment)
        return TIMER if passed else others(event, moment)

    return rule


def _unknown(_: Event, __: Moment) -> str:
    return UNKNOWN


_RULES: dict[str, Rule] = {
    "stateStoreSave": _by_input_until_evicted,
    "sessionWindowStateStoreSaveExec": _session,
    "dedupe": _by_input_until_evicted,
    "dedupeWithinWatermark": _by_input_until_evicted,
    "globalLimit": _by_input,
    "symmetricHashJoin": _join,
    "applyInPandasWithState": _group_state,
}


def rule_of(operator: Operator | None, *, timers: bool = False) -> Rule:
    """What can be said of an operator's changes; for one that is not known, nothing.

    Args:
        operator: who writes the state table; None: not written down.
        timers: whether the table holds registered timers.
    """
    if operator is None:
        return _unknown
    if operator.name.startswith("transformWithState"):
        return _timers(operator.time_mode) if timers else _transform(operator.time_mode)
    return _RULES.get(operator.name, _unknown)
