"""Facts of an epoch's load: how long it took, in which phase, operator and task, and what waited in its sources.

Spark reports them in its progress event, of which it keeps the last hundred; so the manifest keeps them, as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

SHED = "streamstate_shed"
"""The name of the observed metrics of :func:`streamstate.shed`; of one with a name, ``streamstate_shed_<name>``."""


@dataclass(frozen=True)
class SourceLoad:
    """The load of one source.

    Attributes:
        name: Spark's description, shortened, such as ``KafkaV2[Subscribe[flights]]``.
        rows: the rows that the epoch read.
        backlog_rows: the rows that waited in the source when the epoch was planned, beyond those that it read. None
            if the source does not tell.
        backlog_bytes: the same in bytes.
        backlog_partitions: the waiting rows of each partition, such as ``{"flights/0": 120}``, of sources that have
            partitions.
    """

    name: str
    rows: int
    backlog_rows: int | None = None
    backlog_bytes: int | None = None
    backlog_partitions: Mapping[str, int] | None = None


@dataclass(frozen=True)
class OperatorLoad:
    """The load of one stateful operator.

    Attributes:
        name: its name in Spark, such as ``stateStoreSave``.
        rows: the rows of its state.
        updated: the rows that the epoch updated.
        memory_bytes: the memory of its state stores.
        update_seconds, commit_seconds: the time in its state stores, summed over tasks.
        stores: Spark's own metrics of its state stores, by name (``rocksdbSstFileSize`` and others, in bytes).
    """

    name: str
    rows: int
    updated: int
    memory_bytes: int
    update_seconds: float
    commit_seconds: float
    stores: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class TaskLoad:
    """The tasks of an epoch's longest stage.

    Attributes:
        tasks: their number.
        median_seconds, worst_seconds: their run times.
        worst_partition: the partition of the slowest task.
        worst_rows, median_rows: the rows that the slowest task read, and those of a median one.
        stateful: whether the stage holds a stateful operator.
    """

    tasks: int
    median_seconds: float
    worst_seconds: float
    worst_partition: int
    worst_rows: int | None = None
    median_rows: int | None = None
    stateful: bool = True


@dataclass(frozen=True)
class ShedCounts:
    """The rows that an epoch kept and dropped by :func:`streamstate.shed`; ``rows`` is kept + dropped.

    Attributes:
        rows: the rows before shedding.
        kept: the rows after it.
        dropped: the dropped rows, by reason: ``level``, or the number of the interval of values (``1`` to ``5``), or
            ``no_value``.
        level: the version of the variable that holds the level; None if the epoch is not bound to one.
        kept_null_id: the rows that were kept because their id is null.
        intervals: the rows before shedding of each interval of values, by its number.
    """

    rows: int
    kept: int
    dropped: Mapping[str, int] = field(default_factory=dict)
    level: int | None = None
    kept_null_id: int = 0
    intervals: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def observed(cls, metrics: Mapping[str, Mapping[str, Any]]) -> ShedCounts | None:
        """Return the counts among the observed metrics of a progress event; None if the query sheds nothing.

        Those of several sheds are added up. Of an epoch without rows, Spark may observe nothing.

        Args:
            metrics: the metrics by the name of their observation, such as ``progress["observedMetrics"]``.
        """
        found = [counts for name, counts in metrics.items() if name == SHED or name.startswith(f"{SHED}_")]
        if not found:
            return None
        totals: dict[str, int] = {}
        for counts in found:
            for name, count in counts.items():
                totals[name] = totals.get(name, 0) + (count or 0)
        levels = [counts["level"] for counts in found if counts.get("level") is not None]
        return cls(
            totals.get("rows", 0),
            totals.get("kept", 0),
            _with_prefix(totals, "dropped_"),
            max(levels, default=None),
            totals.get("kept_null_id", 0),
            _with_prefix(totals, "rows_"),
        )


def _with_prefix(counts: Mapping[str, int], prefix: str) -> dict[str, int]:
    """Return the counts whose names have a prefix and that are not zero, without it."""
    return {name.removeprefix(prefix): count for name, count in counts.items() if name.startswith(prefix) and count}


@dataclass(frozen=True)
class EpochLoad:
    """The load of one epoch.

    Attributes:
        seconds: from the epoch's trigger to its commit.
        phases: the seconds of each of Spark's phases (``addBatch``, ``latestOffset``, ``walCommit``, …).
        sources, operators: in Spark's order.
        tasks: the tasks of the longest stage; None if Spark's status was not at hand.
        shed: what was shed; None if the query sheds nothing.
        watermark_lag: seconds from the watermark to the newest event time of the epoch; None without a watermark.
    """

    seconds: float
    phases: Mapping[str, float] = field(default_factory=dict)
    sources: tuple[SourceLoad, ...] = ()
    operators: tuple[OperatorLoad, ...] = ()
    tasks: TaskLoad | None = None
    shed: ShedCounts | None = None
    watermark_lag: float | None = None

    @property
    def rows(self) -> int:
        """The rows that the epoch read from all sources."""
        return sum(source.rows for source in self.sources)

    def text(self) -> str:
        """Return the facts as the manifest keeps them."""
        return json.dumps(_known(asdict(self)), separators=(",", ":"))

    @classmethod
    def of(cls, text: str) -> EpochLoad:
        """Return the facts in a manifest's text."""
        known = json.loads(text)
        return cls(
            **known
            | {
                "sources": tuple(SourceLoad(**source) for source in known.get("sources", ())),
                "operators": tuple(OperatorLoad(**operator) for operator in known.get("operators", ())),
                "tasks": None if known.get("tasks") is None else TaskLoad(**known["tasks"]),
                "shed": None if known.get("shed") is None else ShedCounts(**known["shed"]),
            }
        )


def _known(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return facts without those that are not known: each has None as its default."""
    return {
        name: _known(value)
        if isinstance(value, Mapping)
        else [_known(part) for part in value]
        if isinstance(value, tuple)
        else value
        for name, value in facts.items()
        if value is not None
    }
