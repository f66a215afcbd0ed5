"""A load policy: what must hold for a query, and what may be done for it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from streamstate.errors import InvalidArgumentError
from streamstate.operations.policies.dry_run import DryRun, dry_run
from streamstate.operations.policies.figures import size_text
from streamstate.operations.policies.terms import PolicyTerms
from streamstate.snapshots.calls.html import head, table, tag, td

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamstate.operations.policies.decision import Levers, Observed
    from streamstate.state_inspect.history import History


@dataclass(frozen=True, kw_only=True, repr=False)
class Policy(PolicyTerms):
    """What must hold for a running query, and which levers a controller may move to keep it there.

    A controller observes every committed epoch. It limits what an epoch reads, drops rows that the query sheds
    (:func:`streamstate.shed`), and changes the number of partitions, in the order of their cost.

    Args:
        latency: the longest time from a row's arrival in the source to the commit of its epoch: seconds, a timedelta,
            or a text such as ``"5s"`` or ``"500ms"``. Rows that wait in the source count.
        keep: a condition in SQL of rows that are never dropped, such as ``"delay > 60"``.
        may_drop: the largest share of rows that an epoch may drop, from 0 to below 1. Rows that ``keep`` protects
            count as rows: with half of them protected, at most half of the share is dropped.
        weight: the column that holds each row's weight; None: the one that :func:`streamstate.shed` named.
        partitions: the fewest and the most partitions of the state, or one number; None: they are not changed.
        state_limit: the size that the state must not exceed: bytes, or a text such as ``"10GB"`` (10⁹ bytes each) or
            ``"10GiB"``. State cannot be dropped: the controller forecasts it and says what would help.
        utility: how much rows are worth by the value column of :func:`streamstate.shed`, as ascending pairs of a
            lower bound and a worth: ``((0, 1), (60, 10))``. Rows of little worth are dropped first.

    Raises:
        InvalidArgumentError: a value is invalid, or values contradict each other.

    Example:
        >>> policy = Policy(latency="5s", may_drop=0.2, partitions=(4, 16), state_limit="10GB")
        >>> policy
        Policy(latency='5s', may_drop=0.2, partitions=(4, 16), state_limit='10GB')
        >>> policy.latency, policy.state_limit
        (5.0, 10000000000)
    """

    def changed(self, **changes: Any) -> Policy:
        """Return the policy with other values.

        Args:
            changes: arguments of :class:`Policy`.

        Raises:
            InvalidArgumentError: a value is invalid, or no policy has such a value.

        Example:
            >>> Policy(latency="5s").changed(latency="2s")
            Policy(latency='2s')
        """
        names = [field.name for field in fields(self)]
        if unknown := sorted(set(changes) - set(names)):
            raise InvalidArgumentError(f"A policy has no {', '.join(unknown)}: it has {', '.join(names)}.")
        return replace(self, **changes)

    def text(self) -> str:
        """Return the policy as the store keeps it."""
        return json.dumps({name: value for name, value in asdict(self).items() if value is not None})

    @classmethod
    def of(cls, text: str) -> Policy:
        """Return the policy in a store's text."""
        known = json.loads(text)
        if isinstance(known.get("partitions"), list):
            known["partitions"] = tuple(known["partitions"])
        return cls(**known)

    def dry_run(self, history: History | Sequence[Observed], *, levers: Levers | None = None) -> DryRun:
        """Say what the policy would have decided over the load of recorded epochs, and what it would have kept.

        The rows arrive again as they did. How long an epoch takes follows from a cost model that is fitted to the
        recorded epochs, so latencies are estimates: the report has the model's error.

        Args:
            history: the recorded history of a query, or its epochs with their loads.
            levers: what can be moved; by default rows may be shed, if the policy lets any be dropped, and sources
                obey a limit. Partitions are not changed: what limits the query is not recorded.

        Returns:
            The decisions, and the epochs that follow from them.

        Raises:
            InvalidArgumentError: fewer than three epochs have a load.

        Example:
            >>> dry = Policy(latency="5s").dry_run(history)  # needs a history with loads  # doctest: +SKIP
        """
        return dry_run(self, history, levers)

    def contradictions(self, levers: Levers) -> list[str]:
        """Return why the policy cannot be meant for a query, a sentence or two each; empty if it can.

        Args:
            levers: the query's levers.
        """
        found = []
        latency = _duration_text(self.seconds)
        if levers.trigger and self.seconds < 2 * levers.trigger:
            interval = _duration_text(levers.trigger)
            found.append(
                f"latency={latency!r} cannot be kept with a trigger of {interval}: a row waits up to {interval} for its"
                f" epoch, which may take as long. Set a trigger of at most {_duration_text(self.seconds / 2)}, or a"
                f" latency of at least {_duration_text(2 * levers.trigger)}."
            )
        if self.may_drop and not levers.can_shed:
            found.append(
                f"may_drop={self.may_drop:g}, but the query sheds nothing: put ss.shed(…) before its stateful"
                " operators, or leave may_drop out."
            )
        if self.weight is not None and not levers.can_shed:
            found.append(f"weight={self.weight!r}, but the query sheds nothing: put shed(…, weight=…) into it.")
        if (span := self.partition_range) and not levers.can_rescale and not span[0] <= levers.partitions <= span[1]:
            found.append(
                f"partitions={_range_text(span)}, but the state has {levers.partitions} and cannot be repartitioned."
                f" Include {levers.partitions}, or leave partitions out."
            )
        return found

    def notes(self, levers: Levers) -> list[str]:
        """Return what else to know of the policy with a query, a sentence or two each.

        Args:
            levers: the query's levers.
        """
        found = []
        span = self.partition_range
        moves = bool(span and levers.can_rescale and span[0] < span[1])
        if not moves and not (self.may_drop and levers.can_shed):
            found.append(
                "Nothing may be dropped and the partitions are fixed: epochs are kept short if the sources obey a"
                " limit, but in an overload rows wait in them, and the latency does not hold."
            )
        if span and span[0] < span[1] and not levers.can_rescale:
            found.append(f"The state cannot be repartitioned: it stays at {levers.partitions} partitions.")
        if span and levers.can_rescale and span[1] > levers.cores:
            found.append(
                f"Only {levers.cores} tasks run at once: more partitions than that rarely make an epoch shorter."
            )
        return found

    def __repr__(self) -> str:
        return f"Policy({', '.join(f'{name}={value}' for name, value in self._shown())})"

    def _repr_html_(self) -> str:
        rows = [(tag("th", name, scope="row"), td(value)) for name, value in self._shown()]
        return table([head("policy"), head("")], rows, class_="streamstate-policy")

    def _shown(self) -> list[tuple[str, str]]:
        texts = {
            "latency": repr(_duration_text(self.seconds)),
            "partitions": None if self.partition_range is None else _range_text(self.partition_range),
            "state_limit": None if self.size_limit is None else repr(size_text(self.size_limit)),
        }
        return [
            (field.name, texts.get(field.name) or repr(getattr(self, field.name)))
            for field in fields(self)
            if getattr(self, field.name) != field.default
        ]


def _range_text(span: tuple[int, int]) -> str:
    return str(span[0]) if span[0] == span[1] else str(span)


def _duration_text(seconds: float) -> str:
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= length and seconds % length == 0:
            return f"{seconds / length:g}{unit}"
    return f"{seconds:g}s" if seconds >= 1 else f"{seconds * 1000:g}ms"
