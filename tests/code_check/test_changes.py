"""The verdict on every kind of change, and that Spark really does what it says."""

from __future__ import annotations

from pathlib import Path

import pytest

import streamstate as ss
from code_check.changes import BASES, CHANGES
from code_check.started import Oracle, Started, settings
from streamstate.reports import CheckReport

STARTED = ("max(v) to max(2 * v)", "source added")
"""The changes that the slow tests start for real; the exhaustive ones start all."""
NOT_SHOWN = ("a recorded setting",)
"""Changes that the input here does not bring out."""
NOT_SEEN = ("processor: only Python code",)
"""Changes that only a rehearsal finds."""


def checked(started: Started, name: str, *, with_store: bool = True) -> CheckReport:
    """Check a change."""
    change = CHANGES[name]
    base = BASES[change.base]
    checkpoint = started.checkpoint(change.base)
    with settings(started.spark, change.conf):
        return ss.Checkpoint(checkpoint).check(
            lambda: (change.build or base.build)(started.inputs),
            mode=change.mode or base.mode,
            store=started.store if with_store else None,
        )


def kinds(report: CheckReport, *levels: str) -> list[str]:
    """The kinds of the findings of some levels, sorted."""
    return sorted(finding.kind for finding in report.findings if finding.level in levels)


def cases() -> list[object]:
    """All changes: those of one query always, some of the others in the slow tests."""
    others = [name for name, change in CHANGES.items() if change.base != "aggregate"]
    slow = {others[0], "join: column added", "dedup key added", "another time zone"}
    marks = dict.fromkeys(others, (pytest.mark.exhaustive,)) | dict.fromkeys(slow, (pytest.mark.slow,))
    return [pytest.param(name, marks=marks.get(name, ())) for name in CHANGES]


@pytest.mark.parametrize("name", cases())
def test_each_change_is_found(started: Started, name: str) -> None:
    """Each change leads to its findings, and to no other that matters."""
    report = checked(started, name)
    assert kinds(report, "refused", "changed") == sorted(CHANGES[name].kinds), report
    assert {*CHANGES[name].notes} <= {*kinds(report, "note")}, report
    assert report.ok == (not CHANGES[name].kinds)


@pytest.mark.parametrize("name", ["max to min", "keys swapped", "key renamed", "filter added"])
def test_without_a_record(started: Started, name: str) -> None:
    """Without a store, other names of the state's columns are found, and that expressions are not compared."""
    report = checked(started, name, with_store=False)
    assert kinds(report, "refused", "changed") == sorted(CHANGES[name].no_store or ()), report
    assert "no_recorded_plan" in kinds(report, "note")


def really() -> list[object]:
    """All changes; a few are started in the slow tests, the others in the exhaustive ones."""
    return [
        pytest.param(name, marks=pytest.mark.slow if name in STARTED else pytest.mark.exhaustive)
        for name in CHANGES
        if name not in NOT_SHOWN
    ]


@pytest.mark.parametrize("name", really())
def test_spark_does_what_the_check_says(started: Started, tmp_path: Path, name: str) -> None:
    """The changed query, started on a copy, fails if it was refused, and else means the same if it was found to."""
    report = checked(started, name)
    levels = [finding.level for finding in report.findings]
    said = "refused" if "refused" in levels else "changed" if "changed" in levels else "same"
    if name in NOT_SEEN:
        said = "changed"
    assert Oracle(started, CHANGES[name], tmp_path).level() == said, report
