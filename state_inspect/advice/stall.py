"""A watermark that is stuck although rows come in: sources that hold it, or rows without newer event times."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.checkpoint.source_offsets import read_topics
from streamstate.snapshots.store.epoch_progress import EpochProgress, Standstill
from streamstate.snapshots.store.query_plans.query_plan import EventTime
from streamstate.state_inspect.advice.advice import Advice
from streamstate.state_inspect.cell_text import timestamp

MIN = "min"
POLICY = "spark.sql.streaming.multipleWatermarkPolicy"
"""The setting that chooses among several watermarks, ``min`` or ``max``; a query is pinned to its first value."""
_WITHOUT_HOLDER = 10
"""Epochs with input in which a watermark has to be stuck if no source holds it."""


@dataclass(frozen=True)
class IdleSource:
    """A source that has delivered nothing for some time."""

    name: str
    """Its name or, if it has none, its place in the query from 0."""
    topics: tuple[str, ...]
    """Its topics, if its offsets have them."""
    since: int | None
    """The last epoch in which it delivered rows; None if there is none."""

    def __str__(self) -> str:
        since = "yet" if self.since is None else f"since epoch {self.since}"
        return f"{self._called()} has delivered nothing {since}"

    def _called(self) -> str:
        if not self.topics:
            return f"source {self.name}"
        topics = f"topic{'s' * (len(self.topics) > 1)} {', '.join(self.topics)}"
        return topics if self.name.isdecimal() else f"source {self.name} ({topics})"


@dataclass(frozen=True)
class Stall:
    """A watermark that is stuck although rows come in."""

    since: int | None
    """The epoch that moved it last; None if there is no watermark yet."""
    epochs: int
    """The number of epochs that have read rows since."""
    newest: EpochProgress
    idle: tuple[IdleSource, ...]
    """The sources that have delivered nothing in the last of these epochs."""


def stall_of(progress: Sequence[EpochProgress]) -> Stall | None:
    """Return the stall of the watermark; None if it moves, or has not moved for no longer than it usually does."""
    found = Standstill.of(progress)
    if not found.is_unusual:
        return None
    return Stall(found.since, len(found.read), progress[-1], tuple(_idle(progress, found.input_since)))


def _idle(progress: Sequence[EpochProgress], first: int) -> Iterator[IdleSource]:
    """Yield the sources that have delivered nothing from an epoch on."""
    for source, offset in progress[-1].sources.items():
        last = _last_delivery(progress, source)
        if last is None or last < first:
            yield IdleSource(source, _topics(offset), last)


def _last_delivery(progress: Sequence[EpochProgress], source: str) -> int | None:
    """Return the last epoch in which a source delivered rows; None if there is none."""
    for before, epoch in zip([*reversed(progress[:-1]), None], reversed(progress), strict=True):
        offset = epoch.sources.get(source)
        if offset is not None and (before is None or offset != before.sources.get(source)):
            return epoch.epoch
    return None


def _topics(offset: Any) -> tuple[str, ...]:
    return tuple(read_topics(offset) or ())


@dataclass(frozen=True)
class Watermarks:
    """The watermarks of a query."""

    declared: tuple[EventTime, ...] | None
    """None if the query's plan is not known."""
    policy: str = MIN


def pinned_policy(checkpoint: CheckpointFiles | None) -> str | None:
    """Return the policy that a query is pinned to; None if its checkpoint does not say."""
    planned = None if checkpoint is None else checkpoint.newest_plan()
    return None if planned is None else planned.conf.get(POLICY)


def holders(found: Stall, watermarks: Watermarks, *, ahead: bool | None) -> tuple[IdleSource, ...]:
    """Return the idle sources that hold a stuck watermark.

    ``ahead`` says whether the state has events of other sources that would have moved it; None if that is not known.
    """
    declared = watermarks.declared or ()
    idle = {source.name: source for source in found.idle}
    held = [watermark for watermark in declared if watermark.sources and {*watermark.sources} <= {*idle}]
    if len(held) < len(declared) and watermarks.policy != MIN:
        return ()
    sources = tuple(idle[name] for name in dict.fromkeys(name for watermark in held for name in watermark.sources))
    certain = len(held) == len(declared) or any(source.since is None for source in sources) or ahead is not False
    return sources if certain else ()


def deserves_advice(found: Stall, watermarks: Watermarks, held_by: Sequence[IdleSource]) -> bool:
    """Return whether to report a stall: without an idle source, event times may just have a low resolution."""
    suspected = held_by or (found.idle if watermarks.declared is None else ())
    return bool(suspected) or found.epochs >= _WITHOUT_HOLDER


def stall_advice(found: Stall, watermarks: Watermarks, held_by: Sequence[IdleSource]) -> Advice:
    """Advise on a stuck watermark, by the sources that hold it, if any do."""
    if found.since is None:
        text = f"There is no watermark yet, although {found.epochs:,} epochs have read rows"
    else:
        text = f"The watermark has not moved since epoch {found.since}, although {found.epochs:,} epochs have read rows"
    evidence = "" if found.newest.watermark is None else f"The watermark is {timestamp(found.newest.watermark)}."
    if held_by:
        text += f", because {_named(held_by)}"
        if len(watermarks.declared or ()) > 1 and watermarks.policy == MIN:
            text += ": of several watermarks Spark takes the smallest"
            evidence += f" {POLICY} is {watermarks.policy}."
    else:
        text += _without_holder(found, watermarks)
    return Advice("watermark_stuck", f"{text}.", evidence.strip() or _input(found), found.newest.epoch)


def _input(found: Stall) -> str:
    return f"Epoch {found.newest.epoch} is the last of them."


def _without_holder(found: Stall, watermarks: Watermarks) -> str:
    declared = watermarks.declared
    if declared is None:
        possible = found.idle if watermarks.policy == MIN else ()
        return f"; {_named(possible)}, which holds the watermark if it has one of its own" if possible else ""
    columns = " and ".join(dict.fromkeys(watermark.column for watermark in declared))
    if len(declared) > 1:
        return f": one of its watermarks, on {columns}, has had no newer event"
    if found.newest.watermark is None:
        return f": {columns} is null in all of them, or lies before 1970"
    newest = found.newest.watermark + timedelta(milliseconds=declared[0].delay)
    return f": none of them is later than {timestamp(newest)} by {columns}"


def _named(sources: Sequence[IdleSource]) -> str:
    return " and ".join(map(str, sources))
