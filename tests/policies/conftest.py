"""A query that Spark runs, whose rows are dropped by a level that the tests' own rules set."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import streamstate as ss
from policies.levelled import RULES, add, levelled
from streamstate.launch import load_policy
from streamstate.operations.policies import decision
from streamstate.state_inspect import control

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from streamstate.launch.running import Running


@pytest.fixture
def own_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    """Controllers decide by the tests' rules, and move a level that is a number."""
    monkeypatch.setattr(load_policy, "rules_of", lambda _running: RULES)
    monkeypatch.setattr(load_policy, "LEVEL", "_level")
    monkeypatch.setattr(control, "LEVEL", "_level")


@pytest.fixture
def started(spark: SparkSession, tmp_path: Path, own_rules: None) -> Iterator[Callable[..., Running]]:
    """Start the query ``q`` over the files in ``tmp_path/input``; it stops at the end."""
    handles: list[Running] = []

    def start(**options: Any) -> Running:
        level = ss.shared(tmp_path / "store", "q_level", "bigint", init=10_000)
        frame = levelled(spark, tmp_path / "input", level)
        options = {"trigger": "200ms", "partitions": 2, "shared": (level,), **options}
        handles.append(ss.start(frame, "q", tmp_path / "store", **options))
        return handles[-1]

    add(tmp_path / "input", 0)
    yield start
    for handle in handles:
        handle.newest.stop()


@pytest.fixture
def warm(monkeypatch: pytest.MonkeyPatch) -> None:
    """No epoch is cold: these queries run for a few seconds only."""
    monkeypatch.setattr(decision, "WARM_UP", -1e6)
