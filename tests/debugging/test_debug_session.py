"""A debug session steps forward and back through epochs, on its own branches."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from oracle import spark_rows
from pyspark.sql import SparkSession
from stepping import counting, tree, untouched

import streamstate as ss
from streamstate.errors import InvalidArgumentError, InvalidSQLError, QueryError, UnknownTableError
from streamstate.replay.debugging.session import watch_query
from streamstate.reports import DebugSession, StepReport, Store


@pytest.fixture(scope="module")
def session(spark: SparkSession, counted: tuple[Path, Path]) -> Iterator[DebugSession]:
    """A session over a query with epochs 0 to 4, started at epoch 1. The tests of this file share it, in order."""
    before = tree(counted[0])
    with ss.Checkpoint(counted[0]).debug(counting(spark, counted[0].parent), at=1, name="tried") as session:
        yield session
        directory = Path(session.checkpoint)
    assert not directory.exists()
    assert untouched(before, counted[0])
    with pytest.raises(InvalidArgumentError, match="closed"):
        session.step()


def test_a_session_starts_at_an_epoch(session: DebugSession, counted: tuple[Path, Path]) -> None:
    """Before the first step there are only the original and the first branch."""
    assert (session.epoch, session.name, session.last, session.plan) == (1, "tried", None, None)
    original, first = session.branches()
    assert (original.name, original.parent, original.newest, original.checkpoint) == (
        "checkpoint",
        None,
        4,
        str(counted[0]),
    )
    assert (first.name, first.parent, first.epoch, first.newest, first.current) == ("tried", "checkpoint", 1, 1, True)


def test_a_step_reports_what_changed(session: DebugSession) -> None:
    """The report has the input rows, the changed keys, and the epoch's diff with its causes."""
    session.watch("max(max)")
    report = session.step()
    assert (report.stopped, report.epoch, session.epoch, session.last) == ("done", 2, 2, report)
    (run,) = report.epochs
    assert (run.epoch, run.input, run.changed) == (2, "original", {"op0": len(report.diff())})
    assert run.input_rows is not None
    assert run.input_rows > 0
    assert {*report.diff().page()["_cause"]} == {"input"}
    assert session.plan is not None
    assert session.plan.epoch == 2
    assert "epoch 2" in repr(report)
    assert "op0" in report._repr_html_()


def test_a_step_after_going_back_starts_a_new_branch(session: DebugSession, spark: SparkSession) -> None:
    """The old branch is kept. Going forward to an epoch that a branch already has runs nothing."""
    session.step(2)
    old_branch, rows = session.checkpoint, spark_rows(spark, session.checkpoint, "op0", 4)
    assert session.back() == 3
    assert session.goto(4) == 4
    assert session.back(2) == 2
    assert (session.name, session.last) == ("tried", None)
    session.step()
    assert (session.name, session.epoch) == ("tried_2", 3)
    branch = session.branches()[-1]
    assert (branch.parent, branch.epoch, branch.newest, branch.current) == ("tried", 2, 3, True)
    assert spark_rows(spark, old_branch, "op0", 4) == rows
    assert session.goto(4) == 4
    assert spark_rows(spark, session.checkpoint, "op0", 4) == rows


def test_watches_along_the_branch(session: DebugSession, store: Store) -> None:
    """A watch has one value per epoch, from the branch that ran the epoch."""
    session.watch("count(*) FROM checkpoint WHERE count > 5")
    values = session.watches()
    assert values["epoch"].to_list() == [1, 2, 3, 4]
    assert values["branch"].to_list() == ["tried", "tried_2", "tried_2", "tried_2"]
    for epoch, largest, count in values[["epoch", *values.columns[2:]]].itertuples(index=False):
        rows = store["counts"].at(epoch).table().to_pandas()
        assert largest == rows["max"].max()
        assert count == (rows["count"] > 5).sum()
    session.unwatch("count(*) FROM checkpoint WHERE count > 5")
    assert [*session.watches().columns] == ["epoch", "branch", "max(max)"]


@pytest.mark.parametrize(
    ("expression", "error", "match"),
    [
        ("1 +", InvalidSQLError, "does not parse"),
        ("k", InvalidSQLError, "one value"),
        ("max(no)", Exception, "no"),
    ],
)
def test_an_invalid_watch_is_refused(
    session: DebugSession, expression: str, error: type[Exception], match: str
) -> None:
    """The other watches are kept."""
    before = [*session.watches().columns]
    with pytest.raises(error, match=match):
        session.watch(expression)
    assert [*session.watches().columns] == before


@pytest.mark.slow
def test_running_until_a_breakpoint(session: DebugSession) -> None:
    """Conditions and keys apply to changed rows, functions to the report. A run ends with the original."""
    for condition, stops_at in (
        ("op0.k = 'only3'", 3),
        ({"k": "only2"}, 2),
        (lambda report: report.epoch == 3, 3),
    ):
        session.goto(1)
        report = session.run_until(condition)
        assert (report.stopped, report.epoch) == ("breakpoint", stops_at), report
    session.goto(1)
    # The row exists, but no epoch changes it.
    report = session.run_until("k = 'only0'")
    assert (report.stopped, report.epoch) == ("end", 4)
    assert "new_input=True" in report.reason


def test_concurrent_steps_run_in_turn(session: DebugSession) -> None:
    """Two threads run one step each, without conflict."""
    session.goto(1)
    reports: list[StepReport] = []
    threads = [threading.Thread(target=lambda: reports.append(session.step())) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(report.epoch for report in reports) == [2, 3]
    assert session.epoch == 3


@pytest.mark.parametrize("epoch", [0, -1, "2", True])
def test_an_epoch_before_the_session_is_refused(session: DebugSession, epoch: object) -> None:
    """The message names the first epoch."""
    with pytest.raises(InvalidArgumentError, match="starts at epoch 1"):
        session.goto(epoch)  # type: ignore[arg-type]


def test_a_watch_queries_the_tables_of_its_branch() -> None:
    """The branch in a watch's FROM clause is replaced by the current one."""
    assert watch_query("max(v)", "b-1", ["op0"]) == 'SELECT MAX(v) FROM "b-1"."op0"'
    assert watch_query("max(d.v) FROM delays d", "b", ["op0"]) == 'SELECT MAX(d.v) FROM "b"."op0" AS "d"'
    assert '"b"."op0_left"' in watch_query("count(*) FROM op0_left", "b", ["op0_left", "op0_right"])
    with pytest.raises(UnknownTableError, match="names none of them"):
        watch_query("max(v)", "b", ["op0_left", "op0_right"])
    with pytest.raises(UnknownTableError, match="'other'"):
        watch_query("max(v) FROM other", "b", ["op0_left", "op0_right"])


def test_a_failed_step_leaves_the_session_unchanged(session: DebugSession) -> None:
    """The session stays at its epoch, without an empty branch."""
    session.goto(2)
    build_query, branches = session.build_query, session.branches()
    session.build_query = lambda: build_query().dropDuplicates(["n"])
    with pytest.raises(QueryError):
        session.step()
    assert (session.epoch, session.branches()) == (2, branches)
    session.build_query = build_query
    assert session.step().epoch == 3
