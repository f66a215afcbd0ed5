"""The rules of the controller: what follows from the last epochs, for a policy and the levers of a query.

:func:`decide` is a pure function: it reads no clock, does no IO, and remembers nothing. What it must know of the past
is in the decisions that it took, so that a controller which was killed goes on as if it had not been.

A controller of Aurora drops rows until the load fits (Tatbul et al., "Load Shedding in a Data Stream Manager", VLDB
2003); Spark's own ``PIDRateEstimator`` corrects the rate by the error of the last batch. Here a cost model names the
lever's position at once, and hysteresis keeps it there: less is dropped only once less arrives.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import numpy as np

from streamstate.operations.policies.cost_model import RESERVE, CostModel, largest
from streamstate.operations.policies.decision import Decision, Lever, Levers, Observed
from streamstate.operations.policies.figures import seconds_text, size_text
from streamstate.operations.policies.flow import Flow, dropped_share, state_bytes, works
from streamstate.operations.policies.terms import PolicyTerms

WINDOW = 120
"""The number of epochs that the cost model is fitted to."""
_AIM = 0.9
"""The share of the latency that a lever's new position aims at;"""
_MARGIN = 1.05
"""the costs being this much higher than the model's, which matters near the limit;"""
_CALM = 0.75
"""and a looser one."""
_FALLEN = 0.8
"""The rate has fallen if it is at most this share of what it was at the last move."""
_PATIENCE = 30
"""Epochs after which a position that turned out to be too strict is loosened, once."""
_BEST = 1.5
"""Rows may be processed so many times faster than few and small epochs tell."""
_STEP, _LEAST_STEP = 0.03, 0.002
_LATE_WINDOW, _IN_TIME = 20, 3
_ENOUGH = 8
"""Warm epochs that the model can do with;"""
_DEARER = 1.15
"""and by how many times longer than it says cold ones take, if they are left out."""
_SHOWN, _AS_MANY = 5, 1.25
"""So many epochs in time, though nearly as many rows arrived, count more than what the model expects."""
_PROBE = 0.25
"""The share of what cold epochs made drop that is kept again, to see, if results are early."""
_RESCALE_AFTER, _RESCALE_AGAIN, _SCALE_IN_AFTER = 60.0, 300.0, 600.0
_STATE_SOON = 3600.0


class Bottleneck(Protocol):
    """What limits a query, as :func:`decide` needs it."""

    @property
    def kind(self) -> str | None:
        """``operator``, ``partition``, ``source``, ``sink``, ``hot key``, or None."""

    @property
    def helps(self) -> bool:
        """True if more partitions would help."""

    @property
    def reason(self) -> str:
        """The reason, in a sentence or two."""


def decide(
    policy: PolicyTerms,
    observed: Sequence[Observed],
    levers: Levers,
    *,
    past: Sequence[Decision] = (),
    bottleneck: Bottleneck | None = None,
) -> tuple[Decision, ...]:
    """Decide what follows from the last epochs.

    Args:
        policy: the policy in force.
        observed: the last epochs, oldest first: at least 120, or all; with those of ten minutes, partitions that are
            not needed are given back.
        levers: what is in force for the next epoch, and what can be moved.
        past: the decisions so far, oldest first, since the query's policy was first set.
        bottleneck: what limits the query; without one, no rescale is decided.

    Returns:
        The levers to move, or a lever ``none`` if the promise is broken, or kept again, without a move. Mostly nothing.
    """
    if not observed or observed[-1].first:
        return ()
    model = _model(observed[-WINDOW:])
    return () if model is None else _Rules(policy, observed, levers, past, model).decisions(bottleneck)


def _model(observed: Sequence[Observed]) -> CostModel | None:
    """Return the cost model of the last epochs: of the warm ones alone, if the cold ones have cost more."""
    cold, warm = (works([epoch for epoch in observed if epoch.cold is kind]) for kind in (True, False))
    of_warm = CostModel.fitted(warm) if cold and len(warm) >= _ENOUGH else None
    if of_warm is not None:
        ratios = [work.seconds / of_warm.seconds(work.kept, work.dropped) for work in cold]
        if float(np.median(ratios)) > _DEARER:
            return of_warm
    return CostModel.fitted(works(observed))


@dataclass(frozen=True)
class _Rules:
    policy: PolicyTerms
    observed: Sequence[Observed]
    levers: Levers
    past: Sequence[Decision]
    model: CostModel

    def decisions(self, bottleneck: Bottleneck | None) -> tuple[Decision, ...]:
        kept, why_kept = self._shed()
        rows, why_rows = self._limit(kept)
        partitions, why_partitions = self._rescaled(kept, bottleneck)
        holds, state = self._holds(kept), self._state()
        strained = kept < 1 or not holds
        limits = self._last("bottleneck") if strained else None
        moved: list[tuple[Lever, float | None, float | None, str]] = []
        if rows != self.levers.rows:
            moved.append(("admission", self.levers.rows, rows, why_rows))
        if kept != self.levers.kept:
            moved.append(("shedding", self.levers.kept, kept, why_kept))
        if partitions != self.levers.partitions:
            moved.append(("rescale", self.levers.partitions, partitions, why_partitions))
            limits = bottleneck.kind if bottleneck is not None and strained else limits
        before = float(self._last("arriving") or 0)
        other = not holds and not 0.8 * before <= self._arriving <= 1.25 * before
        said = [state or self._promise(kept)] if other or holds != self._held or bool(state) != self._said_state else []
        # No lever waits for the search for the bottleneck, which takes its time.
        if not moved and strained and bottleneck is not None and limits is None and (said or self._strained):
            said.append(bottleneck.reason)
            limits = bottleneck.kind or "none"
        if not moved and said:
            moved.append(("none", None, None, " ".join(said)))
        if not moved:
            return ()
        needs = " ".join(text for text in ("" if holds else self._needs(kept), state) if text)
        inputs = {**self._inputs(kept, strained=strained, state=bool(state)), "bottleneck": limits}
        return tuple(
            Decision(lever, was, after, holds and not state, why, needs, inputs) for lever, was, after, why in moved
        )

    @cached_property
    def _flow(self) -> Flow:
        return Flow(self.observed, self.levers.trigger, float(self._last("arriving") or 0))

    @cached_property
    def _arriving(self) -> float:
        """The rows that arrive in a second. The longer the last epoch took, the less time there is to look back."""
        horizon = max(self.policy.seconds / 4 - self.observed[-1].load.seconds, self.policy.seconds / 20)
        # A fall is seen at once, so that what has just been given back is not taken again.
        return min(
            self._flow.rate(horizon), max(self._flow.rate(0), self._flow.rate(self.policy.seconds / 20, least=2))
        )

    @cached_property
    def _rate(self) -> float:
        """The same with a backlog, which is to be worked off within the latency."""
        return self._arriving + self._waiting / self.policy.seconds

    @cached_property
    def _calm_rate(self) -> float:
        """The same over the last two epochs, to find soon that the rate has fallen."""
        return self._flow.rate(self.policy.seconds / 20, least=2) + self._waiting / self.policy.seconds

    @property
    def _waiting(self) -> int:
        return self._flow.waiting[-1]

    @cached_property
    def _latencies(self) -> list[float]:
        return [self._flow.latency(at) for at in range(-min(_LATE_WINDOW, len(self._flow.began)), 0)]

    @cached_property
    def _foreseen(self) -> bool:
        """True if the model can be trusted. Cold epochs cost more than later ones will: only growing delays count."""
        before, newest = [0.0, *self._latencies][-2:]
        return not self.observed[-1].cold or newest > max(before, self.policy.seconds)

    @cached_property
    def _unprotected(self) -> float:
        """The share of rows that can be dropped, as far as the last epochs tell."""
        shares = [
            dropped_share(epoch) / (1 - epoch.kept)
            for epoch in self.observed[-10:]
            if epoch.kept < 1 and epoch.load.shed is not None
        ]
        return min(1.0, float(np.median(shares))) if shares else 1.0

    def _of_all(self, kept: float) -> float:
        """The share of all rows that is kept, if this share of the unprotected ones is."""
        return 1 - self._unprotected * (1 - kept)

    def _expected(self, rate: float, kept: float, speed: float = 1.0, reserve: float = RESERVE) -> float:
        share = self._of_all(kept)
        return self.model.latency(rate, share, trigger=self.levers.trigger, speed=speed, reserve=reserve)

    def _last(self, name: str) -> float | str | None:
        return self.past[-1].inputs.get(name) if self.past else None

    @cached_property
    def _held(self) -> bool:
        return not self.past or bool(self.past[-1].inputs.get("kept_promise", 1))

    @property
    def _said_state(self) -> bool:
        """True if the last decision said that the state grows too large."""
        return bool(self._last("state"))

    @property
    def _strained(self) -> bool:
        """True if the last decision found the policy under strain."""
        return self._last("strained_since") is not None

    def _moved(self, lever: Lever) -> Decision | None:
        return next((decision for decision in reversed(self.past) if decision.lever == lever), None)

    @property
    def _moved_cold(self) -> bool:
        """True if cold epochs, which cost more, are the reason for what is dropped."""
        before = self._moved("shedding")
        return before is not None and bool(before.inputs.get("cold"))

    def _since(self, decision: Decision | None, name: str) -> float:
        now = self._flow.began[-1] if name == "at" else self.observed[-1].epoch
        return math.inf if decision is None else now - float(decision.inputs[name] or 0)

    def _floor(self) -> float:
        """The smallest share that the policy allows, with a reserve for the chance of hashing."""
        drop = self.policy.may_drop if self.levers.can_shed else 0.0
        rows = self._rate * max(self.observed[-1].load.seconds, self.levers.trigger)
        rows = max(min(rows, self.levers.rows or rows), 1)
        return min(1.0, math.ceil((1 - drop + 2 * math.sqrt(drop * (1 - drop) / rows)) * 10_000) / 10_000)

    def _shed(self) -> tuple[float, str]:
        limit, kept, floor = self.policy.seconds, self.levers.kept, self._floor()
        if kept < 1 - self.policy.may_drop or not self.levers.can_shed:
            return (floor, "The policy allows no less.") if self.levers.can_shed else (kept, "")
        expected = self._expected(self._rate, kept)
        if expected > limit and self._foreseen:
            rate = self._rate * _MARGIN
            share = largest(lambda drop: self._expected(rate, 1 - drop) > _AIM * limit, 1 - kept, 1 - floor)
            new = max(floor, min(kept if share is None else 1 - share, kept - _STEP))
            if new > kept - _LEAST_STEP:
                return kept, ""
            waiting = f" and about {self._waiting:,} wait" if self._waiting else ""
            return round(new, 4), (
                f"{self._arriving:,.0f} rows arrive a second{waiting}, and results would take {seconds_text(expected)}:"
                f" {1 - new:.1%} of the unprotected rows are dropped."
            )
        if kept == 1 or self._flow.full:
            return kept, ""
        before = self._moved("shedding")
        reference = math.inf if before is None else float(before.inputs["rate"] or 0)
        fallen = self._calm_rate <= _FALLEN * reference
        fell_a_little = self._calm_rate <= 0.95 * reference and self._since(before, "epoch") >= _PATIENCE
        early = 0.4 * limit
        idle = max(self._latencies) <= early and self._since(before, "at") >= _SCALE_IN_AFTER
        guessed = self._moved_cold and self._since(before, "epoch") >= _ENOUGH
        guessed = guessed and max(self._latencies[-_ENOUGH:]) <= early
        if fallen or fell_a_little or idle or guessed:
            aim = _CALM if fallen else 0.6
            new = largest(lambda share: self._expected(self._calm_rate, share) <= aim * limit, kept, 1.0) or kept
            if guessed:
                new = min(max(new, kept + max(0.05, _PROBE * (1 - kept))), 1.0)
            if new == 1 or new >= kept + 0.05:
                now = "everything is kept again" if new == 1 else f"{1 - new:.1%} of the unprotected rows are dropped"
                took = f", and results take {seconds_text(self._latencies[-1])}" if guessed or idle else ""
                return round(new, 4), f"{self._calm_rate:,.0f} rows arrive a second{took}: {now}."
        return kept, ""

    def _limit(self, kept: float) -> tuple[int | None, str]:
        """The most rows of an epoch. A limit makes no row wait less; it keeps epochs short while rows wait anyway.

        Epochs that settle are left alone: shorter ones would spend more on what is fixed, and fall behind.
        """
        rows, limit, seen = self.levers.rows, self.policy.seconds, self.observed[-1]
        if rows is not None and self._flow.full:
            return self._repaced(rows)
        room = _AIM * limit / 2 - self.model.fixed
        if not self.levers.can_limit or room <= 0:
            return rows, ""
        per_row = self.model.per_row(self._of_all(kept))
        paced = room / per_row
        if (busy := 1.1 * self._arriving * per_row) < 1:
            # At least what arrives, as long as epochs stay within twice the latency.
            paced = max(paced, min(1.1 * self._arriving * self.model.fixed / (1 - busy), 2 * limit / per_row))
        # Until an epoch has dropped so much, what it costs is a guess: the best case counts.
        model, speed = (self.model, 1.0) if seen.kept <= kept else (replace(self.model, per_dropped=0.0), _BEST)
        share, told = self._of_all(kept), any(source.backlog_rows is not None for source in seen.load.sources)
        settled = model.latency(self._rate, share, trigger=self.levers.trigger, speed=speed, reserve=0)
        # Of a source that does not tell what waits, the limit hides what arrives: only if results are that late.
        grows = settled > 2 * limit and self._foreseen and (told or rows is not None)
        if grows or self._latencies[-1] > 2 * limit:
            reads = self._waiting + self._arriving * seen.load.seconds
            if reads > paced if rows is None else not 0.75 * paced <= rows <= 1.33 * paced:
                return round(paced), f"Rows wait in the source: epochs of {paced:,.0f} rows keep results coming."
            return rows, ""
        ours = self._moved("admission")
        original = None if ours is None else ours.inputs.get("limit_before")
        if rows is not None and ours is not None and rows != original and self._waiting <= rows / 10:
            return None if original is None else int(original), "No rows wait in the source: epochs read what arrives."
        return rows, ""

    def _repaced(self, rows: int) -> tuple[int | None, str]:
        """The limit while an unknown number of rows waits; alike epochs do not tell a model what is fixed."""
        target, last = _AIM * self.policy.seconds / 2, self.observed[-3:]
        took = float(np.median([epoch.load.seconds for epoch in last]))
        # A new limit acts one or two epochs later; only then it can be judged.
        is_new = self._since(self._moved("admission"), "epoch") < len(last) + 2
        if is_new or not all(epoch.full for epoch in last) or target / 1.6 <= took <= 2 * self.policy.seconds:
            return rows, ""
        paced = max(round(target * float(np.median([epoch.load.rows / epoch.load.seconds for epoch in last]))), 1)
        return paced, f"Rows wait in the source, and epochs take {took:.1f} s: {paced:,} rows each are better."

    def _rescaled(self, kept: float, bottleneck: Bottleneck | None) -> tuple[int, str]:
        now, span = self.levers.partitions, self.policy.partition_range
        last = self._moved("rescale")
        if span is None or not self.levers.can_rescale or self._since(last, "at") < _RESCALE_AGAIN:
            return now, ""
        fewest, most = span
        if not fewest <= now <= most:
            return min(max(now, fewest), most), f"The policy wants {fewest} to {most} partitions."
        strained = kept < 1 or not self._holds(kept)
        began = self._last("strained_since")
        lasts = began is not None and self._flow.began[-1] - float(began) >= _RESCALE_AFTER
        enough = self._partitions_needed(now, most) if strained and lasts and now < most else None
        # Looking for the bottleneck takes time.
        if enough is not None and bottleneck and bottleneck.helps and bottleneck.kind in ("operator", "partition"):
            return enough, (
                f"For a minute, the {bottleneck.kind} has been the bottleneck: {enough} partitions instead of {now}"
                " make its epochs shorter."
            )
        fewer = max(fewest, math.ceil(now / 2))
        calm = self._flow.began[-1] - self._flow.began[0] >= _SCALE_IN_AFTER and self._since_any() >= _SCALE_IN_AFTER
        if not strained and fewer < now and calm:
            busiest = max(self._flow.rate(self.policy.seconds, at) for at in range(len(self._flow.began)))
            if self._expected(busiest, 1.0, self._speed(now, fewer)) <= 0.5 * self.policy.seconds:
                return fewer, f"For ten minutes, {fewer} partitions would have been enough."
        return now, ""

    def _since_any(self) -> float:
        return self._since(self.past[-1] if self.past else None, "at")

    def _speed(self, before: int, after: int) -> float:
        """How many times faster rows are processed with other partitions: no more tasks run than there are cores."""
        return min(after, self.levers.cores) / min(before, self.levers.cores)

    def _partitions_needed(self, now: int, most: int) -> int | None:
        """The fewest partitions that hold without dropping; the most that are of use if none does; None: none is."""
        useful = range(now + 1, min(most, self.levers.cores) + 1)
        wanted = _CALM * self.policy.seconds
        holding = (count for count in useful if self._expected(self._rate, 1.0, self._speed(now, count)) <= wanted)
        return next(holding, useful[-1] if useful else None)

    @cached_property
    def _late(self) -> int:
        recent = self._flow.observed[-len(self._latencies) :]
        return sum(
            took > self.policy.seconds and not epoch.first for took, epoch in zip(self._latencies, recent, strict=True)
        )

    def _holds(self, kept: float) -> bool:
        """Check that the latency holds: by the model for a usual epoch, and for 95 of 100 of the last ones."""
        limit = self.policy.seconds
        expected = 0.0 if self._shown(kept) else self._expected(self._rate, kept, reserve=0)
        if self._held:
            return (expected <= 1.25 * limit or not self._foreseen) and self._late <= 2
        return expected <= limit and self._late <= 1 and not self._flow.full

    def _shown(self, kept: float) -> bool:
        """Check if the last epochs show that the latency holds: they kept as much, and were in time at this rate."""
        recent = self._flow.observed[-_SHOWN:]
        alike = len(recent) == _SHOWN and all(math.isclose(epoch.kept, kept, abs_tol=1e-4) for epoch in recent)
        in_time = max(self._latencies[-_SHOWN:]) <= 0.8 * self.policy.seconds
        return alike and in_time and self._rate <= _AS_MANY * self._flow.rate(0, least=_SHOWN - 1)

    def _promise(self, kept: float) -> str:
        took = f"The last epoch took {seconds_text(self._latencies[-1])} from arrival to result"
        limit = seconds_text(self.policy.seconds)
        if self._holds(kept):
            return f"{took}: the latency of {limit} holds again."
        if self._flow.full:
            return f"{took}, and rows wait in a source that does not tell how many."
        if self._late > 1:
            return f"{took}. Of the last {len(self._latencies)} epochs, {self._late} took more than {limit}."
        return f"{took}; with what arrives, results will take {seconds_text(self._expected(self._rate, kept))}."

    def _needs(self, kept: float) -> str:
        """What would make the policy hold, by the model."""
        limit, waiting = self.policy.seconds, self._waiting
        arriving = self._arriving
        if self._expected(arriving, kept) <= limit:
            spare = 1 / self.model.per_row(self._of_all(kept)) - arriving
            if not waiting:
                return (
                    "Time: epochs with the levers in force are short enough, and the policy holds again once at most"
                    f" one of the last {_LATE_WINDOW} took too long."
                )
            if self._flow.full:
                return "Time: the rows that wait in the source, which does not tell how many, are worked off."
            return f"Time: {waiting:,} rows wait, and are worked off in about {seconds_text(waiting / spare)}."
        found = []
        drop = largest(lambda share: self._expected(arriving, share) <= limit, 0.0, 1.0)
        if drop is not None and drop > 0.001:
            share = max(math.ceil((1 - drop) * 100) / 100, self.policy.may_drop + 0.01)
            found.append(f"may_drop={share:.2g}")
        faster = largest(lambda slower: self._expected(arriving, kept, 1 / slower) <= limit, 0.01, 1.0)
        if faster is not None:
            cores = math.ceil(self.levers.cores / faster)
            partitions = max(cores, self.levers.partitions)
            found.append(f"about {cores} cores with {partitions} partitions, if the work can be divided")
        settled = self._expected(arriving, kept)
        if math.isfinite(settled):
            found.append(f"latency='{math.ceil(settled * 1.1)}s'")
        if not found:
            return f"An epoch without rows takes {seconds_text(self.model.fixed)}: no lever makes it shorter."
        return f"{'One of: ' if len(found) > 1 else ''}{'; '.join(found)}."

    def _state(self) -> str:
        """What to do about the state, if it reaches the limit within an hour."""
        limit = self.policy.size_limit
        if limit is None:
            return ""
        recent = self.observed[-WINDOW:]
        sizes = [state_bytes(epoch) for epoch in recent]
        help_ = "State cannot be dropped: a watermark, a shorter window or a time to live (TTL) bounds it."
        if sizes[-1] >= limit:
            return f"The state has {size_text(sizes[-1])}, more than {size_text(limit)}. {help_}"
        times = np.array([epoch.began.timestamp() for epoch in recent])
        if len(sizes) < _IN_TIME or times[-1] == times[0]:
            return ""
        growth = float(np.polyfit(times - times[-1], sizes, 1)[0])
        left = (limit - sizes[-1]) / growth if growth > 0 else math.inf
        # Once said, it stays said until the limit is twice as far away.
        if left > _STATE_SOON * (2 if self._said_state else 1):
            return ""
        return f"The state reaches {size_text(limit)} in about {left / 60:.0f} minutes. {help_}"

    def _inputs(self, kept: float, *, strained: bool, state: bool) -> dict[str, float | str | None]:
        now, since, ours = self._flow.began[-1], self._last("strained_since"), self._moved("admission")
        limited = ours is not None and ours.after is not None and ours.after != ours.inputs.get("limit_before")
        expected = self._expected(self._rate, kept)
        return {
            "epoch": self.observed[-1].epoch,
            "at": round(now, 3),
            "rate": round(self._calm_rate if kept > self.levers.kept else self._rate, 3),
            "arriving": round(self._arriving, 3),
            "waiting": self._waiting,
            "latency": round(self._latencies[-1], 3),
            "expected_latency": round(expected, 3) if math.isfinite(expected) else None,
            "fixed_seconds": round(self.model.fixed, 4),
            "seconds_per_kept_row": self.model.per_kept,
            "seconds_per_dropped_row": self.model.per_dropped,
            "noise": round(self.model.noise, 4),
            "unprotected": round(self._unprotected, 4),
            "limit_before": ours.inputs.get("limit_before") if ours is not None and limited else self.levers.rows,
            "strained_since": None if not strained else now if since is None else since,
            "state": int(state),
            "cold": int(self.observed[-1].cold or (self.levers.kept < 1 and self._moved_cold)),
            "kept_promise": int(self._holds(kept)),
        }
