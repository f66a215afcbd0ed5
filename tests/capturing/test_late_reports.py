"""Spark's report of an epoch may come after the capture has seen the commit."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from streamstate.snapshots.capture import epoch_entries
from streamstate.snapshots.capture.epoch_entries import BatchProgress, EpochEntries


def test_the_report_of_a_running_query_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine it takes more than a second; the manifest has the run and its rows all the same."""
    committed_at, query = datetime.now(UTC), SimpleNamespace(id="q", runId="run")

    def progress_of(*_: object) -> tuple[int, dict[int, BatchProgress]]:
        is_late = datetime.now(UTC) - committed_at < timedelta(seconds=1)
        return (-1, {}) if is_late else (4, {4: BatchProgress("run", 7)})

    monkeypatch.setattr(epoch_entries, "_progress_of", progress_of)
    reader: Any = SimpleNamespace(
        checkpoint=SimpleNamespace(query_id="q", committed_at=lambda _epoch: committed_at),
        running=SimpleNamespace(streams=SimpleNamespace(active=[query])),
    )
    assert EpochEntries(reader)._progress([4]) == {4: BatchProgress("run", 7)}
