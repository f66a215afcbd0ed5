"""When a query that failed is started again: how long to wait, and when to give up."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from streamstate.snapshots.errors import InvalidArgumentError

__all__ = ["BackOff", "Restarts"]


@dataclass(frozen=True)
class BackOff:
    """How patient a supervision is.

    Waits double from ``first`` to ``longest`` seconds while the query fails without committing an epoch; one that did
    commit begins anew with the first.
    """

    restarts: int = 5
    """How often the query is started again within ``within`` seconds."""
    within: float = 600.0
    """Seconds for which a restart counts."""
    first: float = 1.0
    """Seconds before the first restart."""
    longest: float = 60.0
    """Seconds that no wait is longer than."""
    in_vain: int = 3
    """How many failures in a row, with no epoch committed in between, are too many: it would fail again."""

    def __post_init__(self) -> None:
        """Refuse numbers that cannot be meant."""
        if self.restarts < 1 or self.in_vain < 1 or not 0 <= self.first <= self.longest or self.within <= 0:
            raise InvalidArgumentError(
                f"{self} cannot be meant: restarts and in_vain are at least 1, within is above 0 seconds, and first is"
                " from 0 to longest seconds."
            )


@dataclass
class Restarts:
    """The failures of one query, and what follows from each."""

    back_off: BackOff = field(default_factory=BackOff)
    given_up: str | None = None
    """Why the query is not started again; None while it is."""
    attempt: int = 0
    """Failures in a row without an epoch committed in between."""
    _times: deque[float] = field(default_factory=deque)

    def after_failure(self, *, progressed: bool, now: float) -> float | None:
        """How many seconds to wait before the next start; None: it is given up, and ``given_up`` says why.

        Args:
            progressed: whether an epoch was committed since the last start.
            now: seconds of a clock that does not jump.
        """
        policy = self.back_off
        self.attempt = 1 if progressed else self.attempt + 1
        while self._times and now - self._times[0] >= policy.within:
            self._times.popleft()
        if self.attempt > policy.in_vain:
            self.given_up = f"it failed {self.attempt} times in a row without committing an epoch"
        elif len(self._times) >= policy.restarts:
            often = "once" if len(self._times) == 1 else f"{len(self._times)} times"
            self.given_up = f"it was started again {often} in {policy.within:g} s"
        if self.given_up is not None:
            return None
        wait = min(policy.first * 2.0 ** (self.attempt - 1), policy.longest)
        self._times.append(now + wait)
        return wait
