"""Code is checked before it is deployed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from versions.queries import Totals, aggregated, spark_version, stream

BEFORE_4_0 = spark_version() < (4, 0)


@pytest.mark.versions("`Checkpoint.check`: unchanged code")
def test_unchanged_code(totals: Totals) -> None:
    """There is nothing to say, and no wrong note about the version."""
    report = totals.checkpoint.check(totals.build, store=totals.store)
    assert report.ok
    assert {finding.kind for finding in report.findings} == ({"state_unchecked"} if BEFORE_4_0 else set())


@pytest.mark.versions("`Checkpoint.check`: columns of the state")
def test_changed_state(totals: Totals, record_property: Callable[[str, object], None]) -> None:
    """Spark would refuse one more aggregate; before 4.0 it does not say so before the query runs."""
    report = totals.checkpoint.check(totals.changed)
    if BEFORE_4_0:
        assert "state_unchecked" in {finding.kind for finding in report.findings}
        record_property("answer", "noted as not compared")
        return
    assert not report.ok
    assert "value_schema" in {finding.kind for finding in report.findings}
    assert "refused" in {finding.level for finding in report.findings}


@pytest.mark.versions("`Checkpoint.check`: settings and sources")
def test_changed_input(totals: Totals) -> None:
    """Another folder is named."""
    other = totals.folder / "other"
    other.mkdir(exist_ok=True)
    report = totals.checkpoint.check(lambda: aggregated(stream(totals.spark, other)))
    assert {finding.kind for finding in report.findings} == {"source_moved"}


@pytest.mark.versions("`Checkpoint.check`: expressions of the recorded plan")
def test_changed_meaning(totals: Totals) -> None:
    """Spark starts it silently: the columns are the same."""
    values = ("count(*) AS n", "max(2 * v) AS most", "sum(v) AS total")
    report = totals.checkpoint.check(lambda: totals.build(*values), store=totals.store)
    assert "value_expression" in {finding.kind for finding in report.findings}
