"""The dry run of a policy: the loads of a recorded history, once more, with the decisions that follow from them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from streamstate.errors import InvalidArgumentError
from streamstate.operations.policies.closed_loop import ClosedLoop, SimulatedEpoch
from streamstate.operations.policies.cost_model import CostModel
from streamstate.operations.policies.decision import FIRST, Decision, Levers, Observed
from streamstate.operations.policies.figures import seconds_text
from streamstate.operations.policies.flow import Flow, works
from streamstate.operations.policies.terms import PolicyTerms
from streamstate.operations.report_html import report
from streamstate.snapshots.calls.html import Html, paragraphs, table, td
from streamstate.snapshots.store.epoch_load import EpochLoad, SourceLoad
from streamstate.state_inspect.history import History

if TYPE_CHECKING:
    import pandas as pd

_LEAST = 3
_SHOWN = 20


@dataclass(frozen=True, repr=False)
class DryRun:
    """The epochs and decisions that would have followed from a policy.

    Attributes:
        policy: the policy.
        epochs: the simulated epochs. They begin when the one before ends, so they are not the recorded ones.
        recorded_latencies: the latency of each recorded epoch, in seconds.
        model: the costs of an epoch, from the recorded ones.
        error: the model's error: half of the recorded epochs took longer or shorter by at least this share.
    """

    policy: PolicyTerms
    epochs: tuple[SimulatedEpoch, ...]
    recorded_latencies: tuple[float, ...]
    model: CostModel
    error: float

    @property
    def decisions(self) -> list[tuple[int, Decision]]:
        """The decisions, each with the epoch that it follows."""
        return [(epoch.observed.epoch, decision) for epoch in self.epochs for decision in epoch.decisions]

    @property
    def within(self) -> float:
        """The share of epochs within the policy's latency."""
        return float(np.mean([epoch.latency <= self.policy.seconds for epoch in self.epochs]))

    @property
    def dropped(self) -> float:
        """The share of all rows that would have been dropped."""
        return sum(epoch.dropped for epoch in self.epochs) / max(sum(epoch.rows for epoch in self.epochs), 1)

    def to_pandas(self) -> pd.DataFrame:
        """Return a row for each simulated epoch.

        Columns: ``epoch``, ``began`` (seconds from the first), ``rows``, ``dropped``, ``kept`` (the share of
        unprotected rows), ``waiting`` (rows), ``limit`` (rows, None: none), ``seconds``, ``latency``, ``holds``,
        ``decisions``.
        """
        import pandas as pd

        return pd.DataFrame(
            {
                "epoch": epoch.observed.epoch,
                "began": epoch.began,
                "rows": epoch.rows,
                "dropped": epoch.dropped,
                "kept": epoch.observed.kept,
                "waiting": epoch.waiting,
                "limit": epoch.limit,
                "seconds": epoch.observed.load.seconds,
                "latency": epoch.latency,
                "holds": epoch.latency <= self.policy.seconds,
                "decisions": " ".join(decision.reason for decision in epoch.decisions),
            }
            for epoch in self.epochs
        )

    def __repr__(self) -> str:
        return "\n".join([*self._summary(), *(f"  epoch {' '.join(line)}" for line in self._lines())])

    def _repr_html_(self) -> Html:
        rows = [[td(epoch), td(moved), td(why, "words")] for epoch, moved, why in self._lines()]
        return report(paragraphs(self._summary()), table(["epoch", "decision", "reason"], rows) if rows else Html(""))

    def _summary(self) -> Iterator[str]:
        limit = self.policy.seconds
        before = np.mean([latency <= limit for latency in self.recorded_latencies])
        count = len(self.decisions)
        yield (
            f"{seconds_text(limit)} hold for {self.within:.0%} of {len(self.epochs):,} simulated epochs, and held for"
            f" {before:.0%} of {len(self.recorded_latencies):,} recorded ones. {self.dropped:.1%} of the rows are"
            f" dropped, in {count} decision{'s' * (count != 1)}."
        )
        yield (
            f"Latencies are estimates: the cost model misses half of the recorded epochs by {self.error:.0%} or more."
            f" It says {self.model.fixed:.2g} s for an epoch without rows, and"
            f" {1 / self.model.per_kept:,.0f} rows a second beyond."
        )

    def _lines(self) -> Iterator[tuple[str, str, str]]:
        for epoch, decision in self.decisions[:_SHOWN]:
            moved = "" if decision.lever == "none" else f"{decision.lever} {_position(decision.after)}"
            yield str(epoch), moved or ("holds" if decision.holds else "broken"), f"{decision.reason} {decision.needs}"
        if (more := len(self.decisions) - _SHOWN) > 0:
            yield "…", f"{more} more", "to_pandas() has all."


def _position(position: float | None) -> str:
    return "off" if position is None else f"{position:,.4g}"


def dry_run(policy: PolicyTerms, history: History | Sequence[Observed], levers: Levers | None = None) -> DryRun:
    """Say what a policy would have decided over recorded epochs; :meth:`Policy.dry_run` describes it."""
    observed = recorded_epochs(history) if isinstance(history, History) else list(history)
    usable = works(observed)
    model = CostModel.fitted(usable)
    if len(usable) < _LEAST or model is None:
        raise InvalidArgumentError(
            f"{len(usable)} of the epochs have a load, beside the first {FIRST} of each start: a dry run needs"
            f" {_LEAST} or more to know what an epoch costs."
        )
    flow = Flow(observed)
    times = [began - flow.began[0] for began in flow.began]
    loop = ClosedLoop(
        arrived=lambda now: float(np.interp(now, times, flow.arrived)),
        seconds=lambda cost: model.seconds(cost.kept, cost.dropped),
        levers=levers or Levers(can_shed=policy.may_drop > 0, can_limit=True),
        until=times[-1],
        policy=policy,
    )
    ratios = [max(work.seconds, 1e-3) / model.seconds(work.kept, work.dropped) for work in usable]
    latencies = tuple(flow.latency(at) for at in range(1, len(times)))
    return DryRun(policy, tuple(loop.run()), latencies, model, math.expm1(float(np.median(np.abs(np.log(ratios))))))


def recorded_epochs(history: History) -> list[Observed]:
    """Return the captured epochs of a history that have a load.

    Older captures recorded none. Of their epochs, the rows and the times of planning and commit are known.
    """
    found: list[Observed] = []
    run, of_run, warm_from = None, 0, None
    for entry in history.recorded.entries():
        of_run = of_run + 1 if entry.run_id == run else 1
        run = entry.run_id
        if entry.load is not None:
            load = EpochLoad.of(entry.load)
        elif entry.began_at and entry.committed_at and entry.input_rows is not None:
            took = (entry.committed_at - entry.began_at).total_seconds()
            load = EpochLoad(max(took, 0.0), sources=(SourceLoad("all sources", entry.input_rows),))
        else:
            continue
        if entry.began_at is not None:
            shed = load.shed
            kept = shed.kept / shed.rows if shed and shed.rows else 1.0
            seen = Observed(entry.epoch, entry.began_at, load, kept, of_run <= FIRST)
            if warm_from is None or of_run == 1:
                warm_from = seen.warm_from()
            found.append(replace(seen, cold=seen.began < warm_from))
    return found
