"""The report of a planned handover of a query to another process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from streamstate.operations.availability.standby import Standby
from streamstate.operations.code_check.report import CheckReport
from streamstate.snapshots.calls.html import listed


@dataclass(frozen=True)
class HandoverReport:
    """The result of :meth:`streamstate.Running.hand_over`.

    Example:
        >>> running.hand_over(build_query).owner.status().state  # starts a process  # doctest: +SKIP
        'owner'
    """

    owner: Standby
    """The process that owns the query now. ``owner.stop()`` stops the query, ``owner.standby()`` starts a standby."""
    check: CheckReport
    """The comparison of the new code with the checkpoint."""
    epoch: int
    """The last epoch that the old code committed."""
    seconds: float | None
    """Seconds from that commit to the first one of the new owner; None if no input waited."""
    usual: float | None
    """Seconds between two commits before: the median of the last ten; None if there were fewer than two."""
    phases: Mapping[str, float] = field(default_factory=dict)
    """The seconds of each step in order; the query ran until ``stopping``."""

    @property
    def epochs_late(self) -> float | None:
        """The delay of the new owner's first epoch, in usual times between two commits; None if it is not known."""
        if self.seconds is None or not self.usual:
            return None
        return max(self.seconds / self.usual - 1, 0.0)

    def __repr__(self) -> str:
        return "\n".join([f"HandoverReport: {self._headline}", *(f"  {line}" for line in self._lines)])

    def _repr_html_(self) -> str:
        return listed(self._headline, self._lines)

    @property
    def _headline(self) -> str:
        return f"{self.owner.name} goes on after epoch {self.epoch} in process {self.owner.process.pid}"

    @property
    def _lines(self) -> list[str]:
        if self.seconds is None:
            gap = "no input waited, so no epoch was late"
        else:
            gap = f"{self.seconds:.2f} s from its last commit here to the first one there"
            if (late := self.epochs_late) is not None:
                gap += f"; usually {self.usual:.2f} s, so it was {late:.1f} epochs late"
        phases = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in self.phases.items())
        kinds = sorted({finding.kind for finding in self.check.findings if finding.level == "changed"})
        return [gap, phases, f"the code changes: {', '.join(kinds)}" if kinds else "the code means the same"]
