"""A watermark that is stuck although rows come in, and the sources that have delivered nothing meanwhile."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from streamstate.snapshots.checkpoint.source_offsets import kafka_topics
from streamstate.state_inspect.advice.epoch_progress import EpochProgress

_FEWEST = 5
"""Epochs with input in which the watermark must not have moved."""
_USUAL = 2
"""A stall has to be this many times longer than any before."""


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
        topics = f" ({', '.join(self.topics)})" if self.topics else ""
        since = "yet" if self.since is None else f"since epoch {self.since}"
        return f"source {self.name}{topics} has delivered nothing {since}"


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
    longest, since, length = 0, None, 0
    idle_from: list[int] = []
    for before, epoch in zip([None, *progress], progress, strict=False):
        if epoch.watermark != (None if before is None else before.watermark):
            longest, since, length = max(longest, length), epoch.epoch, 0
        elif epoch.read_more_than(before):
            length += 1
            idle_from.append(epoch.epoch)
    if length < _FEWEST or length <= _USUAL * longest:
        return None
    return Stall(since, length, progress[-1], tuple(_idle(progress, idle_from[-_FEWEST])))


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
    return tuple(kafka_topics(offset) or ())
