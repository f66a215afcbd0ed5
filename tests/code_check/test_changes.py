"""The verdict on every kind of change, and that Spark really does what it says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from code_check.changes import BASES, CHANGES
from code_check.started import Oracle, Started, settings
from pyspark.sql import SparkSession

import streamstate as ss

PYTHON = ("processor", "groups")
USUAL = ("max(v) to max(2 * v)", "keys swapped", "source added", "more shuffle partitions")


@pytest.fixture(scope="module")
def started(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Started]:
    """The queries before the change."""
    return Started(spark, tmp_path_factory.mktemp("checked"))


def checked(started: Started, name: str, *, with_store: bool = True) -> ss.CheckReport:
    """Check a change."""
    change = CHANGES[name]
    base = BASES[change.base]
    checkpoint = started.checkpoint(change.base)
    with settings(started.spark, change.conf):
        return ss.check(
            lambda: (change.build or base.build)(started.inputs),
            checkpoint,
            mode=change.mode or base.mode,
            store=started.store if with_store else None,
        )


def kinds(report: ss.CheckReport, *levels: str) -> list[str]:
    """The kinds of the findings of some levels, sorted."""
    return sorted(finding.kind for finding in report.findings if finding.level in levels)


def cases() -> list[object]:
    """All changes; those of Python functions take longer."""
    return [
        pytest.param(name, marks=pytest.mark.slow) if change.base in PYTHON else name
        for name, change in CHANGES.items()
    ]


@pytest.mark.parametrize("name", cases())
def test_each_change_is_found(started: Started, name: str) -> None:
    """Each change leads to its findings, and to no other that matters."""
    report = checked(started, name)
    assert kinds(report, "refused", "changed") == sorted(CHANGES[name].kinds), report
    assert {*CHANGES[name].notes} <= {*kinds(report, "note")}, report
    assert report.ok == (not CHANGES[name].kinds)
