"""State is written into a new checkpoint: Spark can since 4.2, and nothing is left behind where it cannot."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import streamstate as ss
from versions.queries import EPOCHS, Totals, aggregated, recaptured, state

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LAST = EPOCHS - 1


@pytest.mark.versions("`Checkpoint.migrate`", since="4.2")
def test_migrating(totals: Totals, tmp_path: Path) -> None:
    """The other columns are kept for code with one aggregate more."""
    new = totals.checkpoint.migrate(
        totals.changed, to=tmp_path / "new", mapping={"op0": "SELECT k, count, max, sum, NULL AS min FROM op0"}
    )
    assert recaptured(new, tmp_path / "store", new.epoch) == totals.expected(LAST)


@pytest.mark.versions("`snapshot.restore`", since="4.2")
def test_restoring(totals: Totals, tmp_path: Path) -> None:
    """From the store, and the query's checkpoint."""
    new = totals.history.at(1).restore(to=tmp_path / "new")
    assert recaptured(new, tmp_path / "store", 1) == totals.expected(1)


@pytest.mark.versions("`snapshot.restore` by code", since="4.2")
def test_restoring_by_code(totals: Totals, tmp_path: Path) -> None:
    """Without the query's checkpoint."""
    new = totals.history.at(1).restore(to=tmp_path / "new", build_query=totals.build)
    assert recaptured(new, tmp_path / "store", new.epoch) == totals.expected(1)


@pytest.mark.versions("`ss.bootstrap`", since="4.2")
def test_bootstrapping(totals: Totals, tmp_path: Path) -> None:
    """From the rows of a batch."""
    rows = aggregated(totals.rows(LAST), "count(*) AS count", "max(v) AS max", "sum(v) AS sum")
    new = ss.bootstrap(totals.build, to=tmp_path / "new", state=rows, offsets=[[str(totals.input / "*.parquet")]])
    assert recaptured(new, tmp_path / "store", new.epoch) == totals.expected(LAST)


@pytest.mark.versions("`fork(edit=…)`", since="4.2")
def test_editing(totals: Totals, tmp_path: Path) -> None:
    """One key is removed."""
    fork = totals.checkpoint.fork(tmp_path / "fork", edit="DELETE FROM op0 WHERE k = 'k1'")
    assert recaptured(fork, tmp_path / "store", LAST) == {row for row in totals.expected(LAST) if row[0] != "k1"}


@pytest.mark.versions("`fork(partitions=…)`", since="4.2")
def test_a_fork_in_other_partitions(totals: Totals, tmp_path: Path) -> None:
    """The rows are the same."""
    fork = totals.checkpoint.fork(tmp_path / "fork", partitions=3)
    assert recaptured(fork, tmp_path / "store", LAST) == totals.expected(LAST)


@pytest.mark.versions("`Checkpoint.rescale`", since="4.2")
def test_rescaling(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The query's own checkpoint has other partitions, in an epoch of its own."""
    own = Totals.started(spark, tmp_path_factory.mktemp("rescaled"), epochs=1)
    report = own.checkpoint.rescale(3)
    assert report.partitions == (2, 3)
    assert own.running is not None
    own.running.restart().wait(timeout=300)
    assert state(own.history, own.history.captured()[-1]) == own.expected(0)
