"""Plans of a capture's passes: their interval, their epochs, and other plans if Spark has purged some of these."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING

from streamstate.errors import InvalidArgumentError
from streamstate.snapshots.calls.checks import duration, positive_duration, whole_number
from streamstate.snapshots.checkpoint.damage.damage import Damage
from streamstate.snapshots.checkpoint.damage.epochs import EpochDamage
from streamstate.snapshots.checkpoint.fork_record import ForkRecord, read_fork
from streamstate.snapshots.store.names import is_number

if TYPE_CHECKING:
    from streamstate.snapshots.spark.state_reader import StateReader
    from streamstate.snapshots.store.manifest import Manifest

Every = int | timedelta | str
"""A number of epochs, or a duration such as ``timedelta(seconds=10)`` or "10s"."""


@dataclass(frozen=True)
class CaptureInterval:
    """The interval at which waiting epochs are captured; each of them becomes a snapshot whatever the interval."""

    epochs: int = 1
    """Capture once this many epochs wait,"""
    seconds: float = 0.0
    """and this many seconds have passed since the last capture began."""

    @classmethod
    def of(cls, every: Every) -> CaptureInterval:
        """Return the interval for an ``every`` argument."""
        if isinstance(every, int) and not isinstance(every, bool):
            return cls(epochs=whole_number(every, "every"))
        span = duration(every) if isinstance(every, str) else every
        if isinstance(span, timedelta):
            return cls(seconds=positive_duration(span, f"every={every!r}").total_seconds())
        raise InvalidArgumentError(
            f"Invalid every={every!r}: expected a number of epochs of at least 1, or a duration such as 10s, 2m or a"
            " timedelta."
        )

    @property
    def waits(self) -> bool:
        """True if committed epochs may wait although the capture keeps up."""
        return self != CaptureInterval()

    def due(self, waiting: int, elapsed: float) -> bool:
        """Return whether a capture is due, if so many epochs wait and the last one began so many seconds ago."""
        return waiting >= self.epochs and elapsed >= self.seconds


@dataclass(frozen=True)
class PassPlan:
    """The epochs of one pass: ``gaps`` are recorded, ``epochs`` are captured."""

    gaps: Sequence[int]
    epochs: Sequence[int]
    restarts: bool
    """The first epoch does not follow a captured one, so every table starts again with a keyframe."""


@dataclass
class PassPlanner:
    """Plans the passes over one query's epochs."""

    manifest: Manifest
    reader: StateReader
    damaged: tuple[int, Damage] | None = None
    """The first epoch that the last :meth:`attempts` found to be damaged, and its damage."""
    committed: int | None = None
    """The newest committed epoch that the last :meth:`behind` found."""

    @cached_property
    def fork(self) -> ForkRecord | None:
        """The checkpoint's origin; None if it is not a fork."""
        return read_fork(self.reader.checkpoint.files, self.reader.checkpoint.path)

    def behind(self) -> list[int]:
        """Return committed epochs that the store lacks."""
        checkpoint = self.reader.checkpoint
        checkpoint.check_same()
        # Up to its promotion, a promoted fork has epochs of its own, not the query's.
        last = max(self._last, -1 if checkpoint.promotion is None else checkpoint.promotion.epoch)
        committed = checkpoint.committed()
        self.committed = max(committed, default=None)
        return [epoch for epoch in committed if epoch > last]

    def attempts(self, upto: int | None, most: int) -> Iterator[PassPlan]:
        """Return plans of at most ``most`` epochs to try one after another until one succeeds; none if no epoch waits.

        The first plan is tried twice, in case the failure was temporary. Then epochs whose files are damaged are left
        out, if there are any. Otherwise the oldest ones are: Spark purges those first, and the commit log may still
        list what is gone. Each plan leaves out about twice as many as the one before, until only the newest is left
        (even if that is after ``upto``), so that fewer readable epochs are lost than unreadable ones.
        """
        self.damaged = None
        plan = self._next(upto, most)
        if not plan.epochs:
            return
        yield plan
        plan = self._next(upto, most)
        if not plan.epochs:
            return
        yield plan
        if (yield from self._around_damage(upto, most)):
            return
        if len(plan.epochs) > 1:
            # If one in the middle is unreadable, those before it are not.
            yield self._single(plan.epochs[0])
        waiting, skipped = self.behind(), 1
        while skipped < len(waiting) - 1:
            yield self._single(waiting[skipped])
            skipped = 2 * skipped + 1
        if waiting:
            yield self._single(waiting[-1])

    def _around_damage(self, upto: int | None, most: int) -> Generator[PassPlan, None, bool]:
        """Return plans of the epochs before the first damaged one, and of the first one after it whose state is whole.

        Returns whether epochs are damaged.
        """
        damage, waiting = EpochDamage(self.reader.checkpoint), self.behind()
        if (first := self._first_damaged(damage, waiting)) is None:
            return False
        epoch, _ = first
        if epoch > waiting[0]:
            self.damaged = first
            yield self._next(epoch - 1 if upto is None else min(upto, epoch - 1), most)
        later = next((number for number in waiting if number >= epoch and damage.of_state(number) is None), None)
        # A running query may purge faster than this looks.
        purged = self._has_moved() if later is None else damage.purged(epoch)
        self.damaged = None if purged else first
        if later is not None:
            yield self._single(later)
        return self.damaged is not None

    def _first_damaged(self, damage: EpochDamage, waiting: Sequence[int]) -> tuple[int, Damage] | None:
        for epoch in waiting:
            whole = epoch == waiting[0] and self._single(epoch).restarts
            if (found := damage.of_state(epoch) if whole else damage.of_changes(epoch)) is not None:
                return epoch, found
        return None

    def _has_moved(self) -> bool:
        """Return whether the query has committed another epoch since the commit log was read."""
        checkpoint = self.reader.checkpoint
        names = checkpoint.files.names(f"{checkpoint.path}/commits")
        return max((int(name) for name in names if is_number(name)), default=-1) > checkpoint.committed()[-1]

    @property
    def _last(self) -> int:
        """The newest epoch in the manifest, captured or not; −1 if it is empty."""
        return self.manifest.entries[-1].epoch if self.manifest.entries else -1

    def _next(self, upto: int | None, most: int) -> PassPlan:
        self.reader.checkpoint.look_ahead(self._last + 1)
        waiting = self.behind()
        if upto is not None:
            within = [epoch for epoch in waiting if epoch <= upto]
            waiting = within or (waiting[:1] if self._last < upto else [])
        self.reader.read_ahead(waiting[:most])
        epochs = self.reader.together(waiting[:most])
        if epochs and self.reader.checkpoint.skipped(epochs[-1]):
            # It has no state and becomes a gap. The repartitioning comes after it, and is read alone.
            epochs = epochs[:-1] or waiting[1:2]
        return replace(self._single(epochs[0]), epochs=epochs) if epochs else PassPlan((), (), restarts=False)

    def _single(self, epoch: int) -> PassPlan:
        """Return the plan that captures one epoch and records everything before it that is missing as gaps."""
        entries = self.manifest.entries
        # A fork shares the epochs before its first one with its parent: they are not gaps.
        first = max(self.fork.epoch, 0) if self.fork else 0
        gaps = range(entries[-1].epoch + 1 if entries else first, epoch)
        from_nothing = self.fork is None or self.fork.epoch < 0
        follows = not gaps and (entries[-1].captured if entries else from_nothing)
        return PassPlan(gaps, [epoch], restarts=not follows)
