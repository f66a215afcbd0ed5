"""The exercises on scaling out and recovery: copies of a checkpoint as a kill leaves them, and the shorter rule."""

from __future__ import annotations

from math import gcd
from pathlib import Path

import pytest

import streamstate as ss
from streamstate.tutorials.exercises import Worksheet
from streamstate.tutorials.exercises.p05_scaling import MOMENTS, runs_again


def test_an_epoch_runs_again_until_it_is_committed(counted: tuple[Path, Path]) -> None:
    """State that is written does not count, and the checkpoint itself stays as it is."""
    checkpoint, _ = counted
    before = sorted(checkpoint.rglob("*"))
    assert {moment for moment in MOMENTS if runs_again(checkpoint, moment)} == {"planned", "written"}
    assert sorted(checkpoint.rglob("*")) == before
    assert set(ss.Checkpoint(checkpoint).epochs()["status"]) == {"committed"}


def test_the_rule_may_be_written_with_a_divisor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two partitions share a key if their numbers have the same remainder; a list is as good as a set."""
    monkeypatch.setenv("STREAMSTATE_PROGRESS", str(tmp_path / "progress.json"))
    rule = lambda p, m, n: [q for q in range(m) if (p - q) % gcd(m, n) == 0]  # noqa: E731 - as learners write it
    assert Worksheet("p05_scaling").check("reads", rule).mark == "right"
