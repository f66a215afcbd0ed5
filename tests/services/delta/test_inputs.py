"""Input of epochs over a Delta table: exact, or refused with the reason."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import streamstate as ss
from services.delta.conftest import Table
from streamstate.errors import NotReplayableError
from streamstate.reports import History, Running


def run(table: Table, folder: Path, **options: str | int) -> Running:
    """Run the totals of a table to the end."""
    running = ss.start(
        table.totals(**options), "totals", folder / "store", checkpoint=folder / "cp",
        trigger="available-now", partitions=2,
    )  # fmt: skip
    running.wait(timeout=300)
    return running


def numbers(history: History, epoch: int) -> set[int]:
    """The numbers that an epoch read."""
    return {row.v for row in history.inputs(epoch).collect()}


def reasons(*calls: Callable[[], Any]) -> list[str]:
    """The reasons that calls are refused with."""
    found = []
    for call in calls:
        with pytest.raises(NotReplayableError) as refused:
            call()
        found.append(str(refused.value))
    return found


def test_splits_of_commits(table: Table, tmp_path: Path) -> None:
    """Each epoch's input is that of its files, after OPTIMIZE too; after VACUUM, what is gone is named everywhere."""
    table.append(0, 6, files=2)
    first = run(table, tmp_path)
    table.append(6, 15, files=3)
    table.append(15, 18)
    running = run(table, tmp_path)
    history = running.history

    oracle = [*table.files(1), *table.files(2)]
    snapshot = [numbers(history, epoch) for epoch in range(2)]
    assert sorted(map(sorted, snapshot)) == sorted(map(sorted, table.files(0)))
    assert [numbers(history, epoch) for epoch in range(2, 6)] == oracle
    assert running.checkpoint.epochs()["sources"].map(lambda words: words[0]).tolist() == [
        "snapshot of table version 0, file 0", "table version 0", "table version 1, file 0", "table version 1, file 1",
        "table version 1", "table version 2",
    ]  # fmt: skip
    assert history.at(offset={"version": 1, "file": 1}).epoch == 3
    assert history.at(offset={"version": 1}).epoch == 4

    why = history.why(3, k="k1")
    assert set(why.rows["v"]) == {number for number in oracle[1] if number % 3 == 1}
    assert set(why.rows["_table_version"]) == {1}
    assert [Path(table.path, name).is_file() for name in why.rows["_table_file"]] == [True]
    assert set(history.why(1, k="k1").rows["_table_version"]) == {0}

    table.sql("OPTIMIZE {}")
    assert [numbers(history, epoch) for epoch in range(2, 6)] == oracle
    table.vacuum()
    checkpoint, build = running.checkpoint, table.totals
    refusals = reasons(
        lambda: history.inputs(3),
        lambda: history.why(3, k="k1"),
        lambda: checkpoint.fork(tmp_path / "fork", at=2).step(build),
        lambda: checkpoint.replay(build, to=tmp_path / "replay", epochs="3..4"),
    )
    for reason in (*refusals, str(checkpoint.check(build, replay=3))):
        assert "1 of 1 files that the epoch read" in reason
        assert "gone (1 of table version 1)" in reason
        assert "VACUUM" in reason
        assert "delta.deletedFileRetentionDuration" in reason
    assert "snapshot of table version 0" in reasons(lambda: checkpoint.audit(build))[0]
    assert first.history.live().epoch == 5
