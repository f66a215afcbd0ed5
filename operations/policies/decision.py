"""What a controller knows when it decides, and what it decides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal, TypeAlias

from streamstate.snapshots.store.epoch_load import EpochLoad

Lever: TypeAlias = Literal["none", "admission", "shedding", "rescale"]
"""The levers in the order of their cost; ``none``: a fact is recorded, such as that the policy does not hold."""
FIRST = 2
"""The epochs of a start that say nothing of later ones."""
WARM_UP = 15.0
"""Seconds after the first epoch of a start in which Java still compiles what it runs."""


@dataclass(frozen=True)
class Observed:
    """A committed epoch, as a controller sees it.

    Attributes:
        epoch: its number.
        began: when Spark planned it.
        load: its load.
        kept: the share of the unprotected rows that the level in force kept, from 0 to 1.
        first: whether it is among the first two epochs of a start, which are slow for other reasons.
        full: whether it read as much as a limit allowed, from a source that does not tell its backlog: more may wait.
        cold: whether it began within 15 s of the end of a start's first epoch: Java still compiles what it runs.
    """

    epoch: int
    began: datetime
    load: EpochLoad
    kept: float = 1.0
    first: bool = False
    full: bool = False
    cold: bool = False

    def warm_from(self) -> datetime:
        """Return from when on epochs are not cold, given the first epoch of a start."""
        return self.began + timedelta(seconds=self.load.seconds + WARM_UP)


@dataclass(frozen=True)
class Levers:
    """The levers of a query: what is in force, and what can be moved.

    Attributes:
        kept: the share of unprotected rows that is kept, from 0 to 1.
        rows: the most rows that an epoch reads; None: no limit.
        partitions: the partitions of its state.
        cores: the tasks that run at once.
        can_shed: whether the query has an :func:`streamstate.shed` that is bound to a level.
        can_limit: whether all of its sources obey a limit.
        can_rescale: whether its state can be repartitioned.
        trigger: seconds between two triggers; 0: as data arrives.
    """

    kept: float = 1.0
    rows: int | None = None
    partitions: int = 1
    cores: int = 1
    can_shed: bool = False
    can_limit: bool = False
    can_rescale: bool = False
    trigger: float = 0.0


@dataclass(frozen=True)
class Decision:
    """One decision of a controller, which acts from the next epoch on.

    Attributes:
        lever: the lever that is moved.
        before, after: the lever's positions: the kept share, the limit in rows (None: no limit), or the partitions.
        holds: whether the policy held in the last epoch, and will by the estimate.
        reason: in a sentence or two, for people.
        needs: what would make the policy hold, in words; empty if it holds.
        inputs: the numbers that it follows from, by name.
    """

    lever: Lever
    before: float | None
    after: float | None
    holds: bool
    reason: str
    needs: str = ""
    inputs: Mapping[str, float | str | None] = field(default_factory=dict)
