"""Advice on the number of partitions of a query's state, from captured state and, for a running query, its timings.

In every epoch one task works on each partition of the state. The useful number is therefore limited by the cores that
are available, by how much state one task can hold, and by the heaviest key, which cannot be split.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from streamstate.snapshots.calls.checks import whole_number
from streamstate.snapshots.calls.html import listed, tag
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.store.registry import required_query

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from streamstate.state_inspect import History

_ROWS_PER_PARTITION = 1_000_000
_SMALL = 10_000
_UNEVEN = 1.5
_HEAVY = 0.1


@dataclass(frozen=True)
class RescaleFacts:
    """The facts behind an advice."""

    partitions: int
    """The current number of partitions."""
    rows: Sequence[int]
    """Rows of state in each partition, all tables together."""
    cores: int
    """How many tasks can run at once."""
    bytes: Sequence[int] = ()
    """Bytes of state in each partition; empty if not known."""
    heaviest: str = ""
    """The key with the most rows, as text."""
    heaviest_rows: int = 0
    """How many rows it has; 0 if no key has more than one."""
    epoch_seconds: float | None = None
    """How long an epoch takes; None if not known."""
    state_seconds: float | None = None
    """How long all tasks of an epoch together spend on state; None if not known."""
    behind: bool = False
    """Whether input arrives faster than it is processed."""


@dataclass(frozen=True)
class RescaleAdvice:
    """A suggested number of partitions, with reasons.

    Example:
        >>> rescale_advice(history, cores=8).suggested
        2
    """

    suggested: int
    """The suggested number of partitions; the current one if no other would help."""
    reasons: tuple[str, ...]
    """The reasons, in plain words."""
    facts: RescaleFacts = field(repr=False)
    """What the advice is based on."""

    @property
    def changes(self) -> bool:
        """True if the suggestion differs from the current number."""
        return self.suggested != self.facts.partitions

    def __repr__(self) -> str:
        return "\n".join([self._headline, *(f"  {reason}" for reason in self.reasons)])

    def _repr_html_(self) -> str:
        return listed(tag("b", self._headline), self.reasons)

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
    """Suggest how many partitions a query's state should have.

    :meth:`streamstate.Checkpoint.rescale_advice` describes the arguments and errors.
    """
    if cores is not None:
        whole_number(cores, "cores")
    whole_number(rows_per_partition, "rows_per_partition")
    return advice_from(_facts(history, query, cores or _cores()), rows_per_partition)


def advice_from(facts: RescaleFacts, rows_per_partition: int = _ROWS_PER_PARTITION) -> RescaleAdvice:
    """Return the advice that follows from facts."""
    total, current = sum(facts.rows), facts.partitions
    by_size = math.ceil(total / rows_per_partition)
    suggested, reasons = current, []
    if max(facts.rows, default=0) > rows_per_partition and by_size > current:
        # A multiple of the cores, so that no core is idle in the last round of tasks.
        suggested = math.ceil(by_size / facts.cores) * facts.cores
        reasons.append(
            f"The fullest partition has {max(facts.rows):,} rows; a task should hold about {rows_per_partition:,}."
        )
    if current < facts.cores and total > _SMALL * current:
        suggested = max(suggested, facts.cores)
        reasons.append(
            f"{facts.cores} tasks can run at once, but {current} partitions keep only {current} of them busy."
        )
    if suggested == current and current > 2 * facts.cores and total < _SMALL * current:
        suggested = facts.cores
        reasons.append(
            f"{current} partitions have {total // max(current, 1):,} rows each on average, and {facts.cores} run"
            " at a time: starting so many tasks costs more than it gains."
        )
    reasons += _of_times(facts)
    heavy = [*_of_heaviest(facts, total)]
    if heavy and suggested > current:
        suggested = min(suggested, max(current, math.ceil(total / max(facts.heaviest_rows, 1))))
    reasons += heavy or _of_skew(facts, total)
    if suggested == current and not reasons:
        reasons.append(f"{current} partitions suit {total:,} rows of state and {facts.cores} cores.")
    return RescaleAdvice(suggested, tuple(reasons), facts)


def _of_times(facts: RescaleFacts) -> Iterator[str]:
    if facts.behind and facts.epoch_seconds is not None:
        line = f"Input arrives faster than it is processed; an epoch takes {facts.epoch_seconds:.1f} s"
        if facts.state_seconds is not None:
            line += f", in which all tasks together spend {facts.state_seconds:.1f} s on state"
        if facts.partitions >= facts.cores:
            line += f". More partitions alone will not help: their tasks would wait for the {facts.cores} cores"
        yield f"{line}."


def _of_heaviest(facts: RescaleFacts, total: int) -> Iterator[str]:
    share = facts.heaviest_rows / total if total else 0.0
    if share >= _HEAVY and facts.heaviest_rows > 1:
        useful = max(int(total / facts.heaviest_rows), 1)
        yield (
            f"A single key, {facts.heaviest}, has {share:.0%} of the rows. A key cannot be split: more than {useful}"
            " partitions will not make the fullest one smaller. A finer key in the query would."
        )


def _of_skew(facts: RescaleFacts, total: int) -> Iterator[str]:
    mean = total / len(facts.rows) if facts.rows else 0
    ratio = max(facts.rows, default=0) / mean if mean else 1.0
    if ratio >= _UNEVEN:
        yield (
            f"The fullest partition has {ratio:.1f} times the rows of an average one, although no single key is heavy:"
            " another number of partitions distributes the keys differently. The more keys there are, the more even it"
            " usually is."
        )


def _facts(history: History, query: StreamingQuery | None, cores: int) -> RescaleFacts:
    snapshot = history.live()
    rows: dict[int, int] = {}
    sizes: dict[int, int] = {}
    heaviest, most = "", 0
    for name in snapshot.tables():
        table = snapshot.table(name)
        for partition, count, size in table.skew()[["partition", "rows", "bytes"]].itertuples(index=False):
            rows[partition] = rows.get(partition, 0) + int(count)
            sizes[partition] = sizes.get(partition, 0) + int(size)
        heavy = table.heavy_keys(n=1)
        if len(heavy) and int(heavy["_rows"].iloc[0]) > max(most, 1):
            most = int(heavy["_rows"].iloc[0])
            columns = [column for column in heavy.columns if not column.startswith("_")]
            heaviest = ", ".join(f"{column}={heavy[column].iloc[0]!r}" for column in columns)
    partitions = _partitions(history) or max(rows, default=0) + 1
    known = range(max([partitions, *(partition + 1 for partition in rows)]))
    return RescaleFacts(
        partitions=partitions,
        rows=[rows.get(partition, 0) for partition in known],
        bytes=[sizes.get(partition, 0) for partition in known],
        cores=cores,
        heaviest=heaviest,
        heaviest_rows=most,
        **_times(query),
    )


def _partitions(history: History) -> int | None:
    """Return the number that the checkpoint records; None if the checkpoint is gone."""
    checkpoint = CheckpointFiles(required_query(history.recorded.layout, history.name).checkpoint)
    committed = checkpoint.committed()
    return checkpoint.partitions(committed[-1]) if committed else None


def _times(query: StreamingQuery | None) -> dict[str, Any]:
    """Return the timings of the last epochs that read input."""
    progress = query.recentProgress if query is not None else []
    recent = [epoch for epoch in progress if epoch["numInputRows"]][-5:]
    if not recent:
        return {}
    seconds = sum(epoch["durationMs"].get("triggerExecution", 0) for epoch in recent) / len(recent) / 1000
    on_state = [
        sum(operator["allUpdatesTimeMs"] + operator["commitTimeMs"] for operator in epoch["stateOperators"])
        for epoch in recent
    ]
    behind = all(epoch["inputRowsPerSecond"] > epoch["processedRowsPerSecond"] > 0 for epoch in recent)
    return {"epoch_seconds": seconds, "state_seconds": sum(on_state) / len(on_state) / 1000, "behind": behind}


def _cores() -> int:
    from streamstate.snapshots.spark.session import running_session

    spark = running_session()
    return spark.sparkContext.defaultParallelism if spark is not None else os.cpu_count() or 1
