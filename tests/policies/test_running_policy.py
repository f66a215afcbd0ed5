"""A policy at work in a query that Spark runs: it is declared, changed, shown, explained, ended, and survives."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import streamstate as ss
from policies.levelled import ROWS, add, levelled
from policies.made import MadePolicy
from policies.planned_epochs import planned_epochs
from streamstate.errors import QueryError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from streamstate.launch.running import Running

pytestmark = pytest.mark.slow
Started = Callable[..., "Running"]
POLICY = MadePolicy(5.0)


def until(condition: Callable[[], object], seconds: float = 60) -> None:
    """Wait for a condition."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.05)


def run(running: Running, folder: Path, first: int, last: int) -> None:
    """Run an epoch for each file, one after another."""
    running.wait(epoch=first - 1, timeout=300)
    for number in range(first, last + 1):
        add(folder / "input", number)
        running.wait(epoch=number, timeout=300)


def test_a_policy_at_work(started: Started, tmp_path: Path) -> None:
    """Decisions act in the next epoch, are rows of the store, and are explained; the status shows a broken promise."""
    running = started(policy=POLICY)
    assert running.policy == POLICY
    run(running, tmp_path, 1, 6)
    until(lambda: "broken" in (running.status().policy or "") or "holds" in (running.status().policy or ""))
    running.stop()
    found = running.history.decisions()
    shed = found[found["lever"] == "shedding"].dropna(subset="acted")  # the last one may come too late to act
    assert shed["acted"].tolist() == [epoch + 1 for epoch in shed["epoch"]]
    assert shed["after"].tolist() == [0.5, 0.25, 1.0][: len(shed)]
    why = running.history.why_policy(4)
    assert (why.kept, why.declared, why.policy) == (0.25, -1, POLICY.text())
    assert "Decision" in str(why)
    assert "Epoch 3 took" in str(why)
    assert "ran under the policy latency=5.0" in str(why)
    assert [row["policy"] for _, row in running.history.policies().iterrows()] == [POLICY.text()]


def test_a_limit_of_rows_acts_on_a_source_of_files(started: Started, tmp_path: Path) -> None:
    """The rows become files, by the rows of a file in the newest epochs; the end of the policy lifts the limit."""
    running = started(policy=POLICY)
    run(running, tmp_path, 1, 3)
    until(lambda: "admission" in set(running.history.decisions()["lever"]))
    for number in range(4, 14):
        add(tmp_path / "input", number)
    until(lambda: len(_read(running)) > 8 and sum(_read(running)) >= 1400)
    decided = running.history.decisions()
    [acted] = decided[decided["lever"] == "admission"]["acted"].tolist()
    assert max(_read(running)[acted:]) <= 200
    assert running.history.why_policy(acted).rows == 200
    running.policy = None
    for number in range(14, 24):
        add(tmp_path / "input", number)
    until(lambda: sum(_read(running)) >= 2400)
    assert max(_read(running)) > 200
    assert running.policy is None
    assert running.status().policy is None


def _read(running: Running) -> list[int]:
    return [int(rows) for rows in running.history.epochs()["input_rows"].fillna(0)]


def test_a_policy_survives_a_restart_and_another_start(started: Started, tmp_path: Path) -> None:
    """It is taken from the store if none is given; the level is what it was."""
    running = started(policy=POLICY)
    run(running, tmp_path, 1, 2)
    running = running.restart()
    assert running.policy == POLICY
    run(running, tmp_path, 3, 4)
    running = started()
    assert running.policy == POLICY
    run(running, tmp_path, 5, 5)
    running.stop()
    found = running.history.decisions()
    assert found["number"].is_unique
    assert running.history.why_policy(2).kept == 0.5
    assert running.history.why_policy(5).kept == 0.25


def test_a_contradiction_is_refused_before_the_query_starts(started: Started, tmp_path: Path) -> None:
    """Nothing is written, and nothing runs."""
    with pytest.raises(QueryError, match=r"does not fit q:\nlatency 5.0 is below the trigger"):
        started(policy=POLICY, trigger="1m")
    assert not (tmp_path / "checkpoints" / "q" / "commits").exists()
    assert not (tmp_path / "store" / "q" / "_control").exists()


@pytest.mark.exhaustive
def test_results_equal_those_of_the_recorded_levels(spark: SparkSession, started: Started, tmp_path: Path) -> None:
    """An audit runs the epochs again, with the levels that they were bound to, and finds the same state."""
    running = started(policy=POLICY)
    run(running, tmp_path, 1, 5)
    running.stop()
    expected = 0
    for epoch, planned in planned_epochs(Path(running.checkpoint.path), "q_level").items():
        kept = running.history.why_policy(epoch).kept
        firsts = [int(Path(name).stem) * ROWS for name in planned.files]
        expected += sum(v * 7919 % 10_000 < kept * 10_000 for first in firsts for v in range(first, first + ROWS))
    assert running.history.live().table().to_pandas()["count"].sum() == expected
    assert expected < 500
    frame = levelled(spark, tmp_path / "input", ss.shared(tmp_path / "store", "q_level"))
    audit = running.checkpoint.audit(lambda: frame)
    assert audit.clean, audit
