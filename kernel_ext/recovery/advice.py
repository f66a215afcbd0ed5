"""How many partitions a query's state should have, and why; from what was captured and, where it runs, from its times.

A partition of state is the work of one task an epoch, so what bounds the useful number is the cores there are, how
much one task has to hold, and the heaviest key, which cannot be split.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, Any

from streamstate.snapshots.checkpoint import Checkpoint
from streamstate.snapshots.errors import InvalidArgumentError
from streamstate.snapshots.registry import required_query

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from streamstate.state_inspect import History

__all__ = ["Facts", "RescaleAdvice", "advise", "rescale_advice"]

_ROWS_PER_PARTITION = 1_000_000
_SMALL = 10_000
_UNEVEN = 1.5
_HEAVY = 0.1


@dataclass(frozen=True)
class Facts:
    """What the advice rests on."""

    partitions: int
    """How many there are."""
    rows: Sequence[int]
    """Rows of state of each, all tables together."""
    cores: int
    """Tasks that can run at once."""
    bytes: Sequence[int] = ()
    """Bytes of state of each; empty where that is not known."""
    heaviest: str = ""
    """The key with most rows, as text."""
    heaviest_rows: int = 0
    """How many it has; 0 where no key has several."""
    epoch_seconds: float | None = None
    """How long an epoch takes; None where that is not known."""
    state_seconds: float | None = None
    """How long the tasks of an epoch spend on state, all together; None where that is not known."""
    behind: bool = False
    """Whether input comes faster than it is processed."""


@dataclass(frozen=True)
class RescaleAdvice:
    """A number of partitions, and why.

    Example:
        >>> ss.rescale_advice(history, cores=8).suggested  # doctest: +SKIP
        8
    """

    suggested: int
    """How many partitions would do; the number there is where another would not help."""
    reasons: tuple[str, ...]
    """Why, in plain words."""
    facts: Facts = field(repr=False)
    """What it rests on."""

    @property
    def changes(self) -> bool:
        """Whether another number is suggested."""
        return self.suggested != self.facts.partitions

    def __repr__(self) -> str:
        return "\n".join([self._headline, *(f"  {one}" for one in self.reasons)])

    def _repr_html_(self) -> str:
        items = "".join(f"<li>{escape(one)}</li>" for one in self.reasons)
        return f"<p><b>{escape(self._headline)}</b></p><ul>{items}</ul>"

    @property
    def _headline(self) -> str:
        if not self.changes:
            return f"Keep the {self.facts.partitions} partitions."
        return f"{self.suggested} partitions instead of {self.facts.partitions}."


def rescale_advice(
    history: History,
    *,
    query: StreamingQuery | None = None,
    cores: int | None = None,
    rows_per_partition: int = _ROWS_PER_PARTITION,
) -> RescaleAdvice:
    """How many partitions a query's state should have, and why.

    Args:
        history: what was captured of the query; it alone will do.
        query: the query where it runs here, for the times of its epochs.
        cores: how many tasks can run at once; by default those of the running session, else of this machine.
        rows_per_partition: how many rows of state one task should hold at most.

    Raises:
        UnknownEpochError: where nothing was captured yet.
        InvalidArgumentError: where ``cores`` or ``rows_per_partition`` is below 1.

    Example:
        >>> ss.rescale_advice(store["delays"], cores=8)  # doctest: +SKIP
        8 partitions instead of 2.
          8 tasks can run at once and 2 partitions keep only 2 of them busy.
    """
    for name, number in (("cores", cores), ("rows_per_partition", rows_per_partition)):
        if number is not None and number < 1:
            raise InvalidArgumentError(f"{name}={number!r} cannot be meant: at least 1.")
    return advise(_facts(history, query, cores or _cores()), rows_per_partition)


def advise(facts: Facts, rows_per_partition: int = _ROWS_PER_PARTITION) -> RescaleAdvice:
    """The advice that facts lead to."""
    total, now = sum(facts.rows), facts.partitions
    by_size = math.ceil(total / rows_per_partition)
    wanted, reasons = now, []
    if max(facts.rows, default=0) > rows_per_partition and by_size > now:
        wanted = _whole_rounds(by_size, facts.cores)
        reasons.append(
            f"The fullest partition has {max(facts.rows):,} rows; about {rows_per_partition:,} a task are easy to hold."
        )
    if now < facts.cores and total > _SMALL * now:
        wanted = max(wanted, facts.cores)
        reasons.append(f"{facts.cores} tasks can run at once and {now} partitions keep only {now} of them busy.")
    if wanted == now and now > 2 * facts.cores and total < _SMALL * now:
        wanted = facts.cores
        reasons.append(
            f"{now} partitions have {total // max(now, 1):,} rows each on average and run {facts.cores} at a time:"
            " starting that many tasks costs more than it gives."
        )
    reasons += _of_times(facts)
    heavy = _of_heaviest(facts, total)
    if heavy and wanted > now:
        useful = max(now, math.ceil(total / max(facts.heaviest_rows, 1)))
        wanted = min(wanted, useful)
    reasons += [*heavy, *_of_skew(facts, total, heavy=bool(heavy))]
    if wanted == now and not reasons:
        reasons.append(f"{now} partitions fit {total:,} rows of state and {facts.cores} cores.")
    return RescaleAdvice(wanted, tuple(reasons), facts)


def _whole_rounds(number: int, cores: int) -> int:
    """The number, made a multiple of the cores, so that no core waits in the last round."""
    return math.ceil(number / cores) * cores


def _of_times(facts: Facts) -> list[str]:
    if not facts.behind or facts.epoch_seconds is None:
        return []
    line = f"Input comes faster than it is processed; an epoch takes {facts.epoch_seconds:.1f} s"
    if facts.state_seconds is not None:
        line += f", in which the tasks spend {facts.state_seconds:.1f} s on state, all together"
    if facts.partitions >= facts.cores:
        line += f". With {facts.cores} cores more partitions alone will not help: they would wait for each other"
    return [f"{line}."]


def _of_heaviest(facts: Facts, total: int) -> list[str]:
    share = facts.heaviest_rows / total if total else 0.0
    if share < _HEAVY or facts.heaviest_rows < 2:
        return []
    useful = max(int(total / facts.heaviest_rows), 1)
    line = (
        f"One key, {facts.heaviest}, has {share:.0%} of the rows. A key cannot be split: more than {useful} partitions"
        " will not make the fullest one smaller. A finer key in the query would."
    )
    return [line]


def _of_skew(facts: Facts, total: int, *, heavy: bool) -> list[str]:
    mean = total / len(facts.rows) if facts.rows else 0
    ratio = max(facts.rows, default=0) / mean if mean else 1.0
    if ratio < _UNEVEN or heavy:
        return []
    line = (
        f"The fullest partition has {ratio:.1f} times the rows of an average one, and no key is to blame: another"
        " number spreads the keys anew, more often evenly the more keys there are."
    )
    return [line]


def _facts(history: History, query: StreamingQuery | None, cores: int) -> Facts:
    snapshot = history.live()
    rows: dict[int, int] = {}
    sizes: dict[int, int] = {}
    heaviest, most = "", 0
    for name in snapshot.tables():
        table = snapshot.table(name)
        for at, count, size in table.skew()[["partition", "rows", "bytes"]].itertuples(index=False):
            rows[at], sizes[at] = rows.get(at, 0) + int(count), sizes.get(at, 0) + int(size)
        heavy = table.heavy_keys(n=1)
        if len(heavy) and int(heavy["_rows"].iloc[0]) > max(most, 1):
            most = int(heavy["_rows"].iloc[0])
            heaviest = ", ".join(f"{one}={heavy[one].iloc[0]!r}" for one in heavy.columns if not one.startswith("_"))
    partitions = _partitions(history) or max(rows, default=0) + 1
    known = range(max([partitions, *(one + 1 for one in rows)]))
    return Facts(
        partitions=partitions,
        rows=[rows.get(one, 0) for one in known],
        bytes=[sizes.get(one, 0) for one in known],
        cores=cores,
        heaviest=heaviest,
        heaviest_rows=most,
        **_times(query),
    )


def _partitions(history: History) -> int | None:
    """What the checkpoint says, where it can still be reached."""
    checkpoint = Checkpoint(required_query(history.layout, history.name).checkpoint)
    committed = checkpoint.committed()
    return checkpoint.partitions(committed[-1]) if committed else None


def _times(query: StreamingQuery | None) -> dict[str, Any]:
    """Of the last epochs that read input."""
    recent = [one for one in (query.recentProgress if query is not None else []) if one["numInputRows"]][-5:]
    if not recent:
        return {}
    seconds = sum(one["durationMs"].get("triggerExecution", 0) for one in recent) / len(recent) / 1000
    on_state = [
        sum(operator["allUpdatesTimeMs"] + operator["commitTimeMs"] for operator in one["stateOperators"])
        for one in recent
    ]
    behind = all(one["inputRowsPerSecond"] > one["processedRowsPerSecond"] > 0 for one in recent)
    return {"epoch_seconds": seconds, "state_seconds": sum(on_state) / len(on_state) / 1000, "behind": behind}


def _cores() -> int:
    from streamstate.spark_session import running_session

    spark = running_session()
    return spark.sparkContext.defaultParallelism if spark is not None else os.cpu_count() or 1
