"""Stores with made loads."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from synthetic import START

from streamstate.snapshots.store.entries import Entry, TableEntry
from streamstate.snapshots.store.epoch_load import EpochLoad, OperatorLoad, ShedCounts, SourceLoad, TaskLoad
from streamstate.snapshots.store.layout import CAPTURED, Layout
from streamstate.snapshots.store.manifest import Manifest
from streamstate.snapshots.store.registry import register
from streamstate.state_inspect import History, open_store

STEP = 10.0
"""Seconds from one epoch to the next."""


def entry(epoch: int, found: EpochLoad | None, *, began: datetime | None = None, **facts: Any) -> Entry:
    """Return the entry of an epoch that took as long as its load says."""
    began = began or START + timedelta(seconds=STEP * epoch)
    committed = began + timedelta(seconds=found.seconds if found else 4)
    known: dict[str, Any] = {
        "began_at": began,
        "committed_at": committed,
        "time_source": "commit",
        "tables": {"op0": TableEntry(None, 1, 0)},
        "load": found.text() if found else None,
    }
    return Entry(epoch, CAPTURED, **{**known, **facts})


def written(path: Path, entries: Iterable[Entry]) -> History:
    """Write a manifest, and return its history."""
    layout = Layout.at(path)
    register(layout, "q", "id", "checkpoint")
    Manifest(layout, "q").append([*entries], "q/_epochs")
    return open_store(path)["q"]


def kafka(rows: int, behind: int | None, seconds: float = 5.0, *, state: int = 100, size: int = 1000) -> EpochLoad:
    """Return the load of an epoch that reads a topic."""
    parts = None if behind is None else {"flights/0": behind}
    source = SourceLoad("Kafka", rows, behind, backlog_partitions=parts)
    operator = OperatorLoad("dedupe", state, 1, size, 0.1, 0.2, {"rocksdbSstFileSize": 10})
    return EpochLoad(seconds, {"addBatch": seconds - 1, "walCommit": 0.5}, (source,), (operator,))


def of_states(path: Path, rows: Sequence[int]) -> History:
    """Write a query whose state has some rows at each epoch."""
    return written(path, [entry(epoch, kafka(1, 0, state=count)) for epoch, count in enumerate(rows)])


def busy(path: Path) -> History:
    """Write a query that falls behind, and then sheds."""
    loads = [kafka(100, 20 * epoch, 4 + epoch / 10, state=100 + 10 * epoch, size=10**6 + epoch) for epoch in range(20)]
    for epoch in (18, 19):
        loads[epoch] = replace(loads[epoch], shed=ShedCounts(100, 70, {"sampled": 30}), tasks=TaskLoad(4, 1.0, 3.0, 2))
    return written(path, [entry(epoch, load) for epoch, load in enumerate(loads)])
