"""A debugger's session goes forward and back through epochs, on branches of its own."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from oracle import spark_rows
from pyspark.sql import SparkSession
from stepping import counting, tree, untouched

import streamstate as ss
from streamstate.debugger.watches import statement
from streamstate.snapshots.errors import InvalidArgumentError, InvalidSQLError, QueryError, UnknownTableError


@pytest.fixture(scope="module")
def session(spark: SparkSession, counted: tuple[Path, Path]) -> Iterator[ss.DebugSession]:
    """A session over a query of the epochs 0 to 4, begun at 1; the tests of this file go on in it, in turn."""
    before = tree(counted[0])
    with ss.debug(counting(spark, counted[0].parent), counted[0], at=1, name="tried") as session:
        yield session
        directory = Path(session.checkpoint)
    assert not directory.exists()
    assert untouched(before, counted[0])
    with pytest.raises(InvalidArgumentError, match="closed"):
        session.step()


def test_it_begins_at_an_epoch(session: ss.DebugSession, counted: tuple[Path, Path]) -> None:
    """Nothing has been run; the original and the first branch are there."""
    assert (session.epoch, session.name, session.last, session.plan) == (1, "tried", None, None)
    original, first = session.branches()
    assert (original.name, original.parent, original.newest, original.checkpoint) == (
        "checkpoint",
        None,
        4,
        str(counted[0]),
    )
    assert (first.name, first.parent, first.epoch, first.newest, first.current) == ("tried", "checkpoint", 1, 1, True)


def test_a_step_says_what_changed(session: ss.DebugSession) -> None:
    """Rows in, changed keys and the plan, and the diff of the epoch with its causes."""
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


def test_going_back_begins_a_new_branch(session: ss.DebugSession, spark: SparkSession) -> None:
    """With the next step; the branch that was left stays, and going forward on it runs nothing."""
    session.step(2)
    left, rows = session.checkpoint, spark_rows(spark, session.checkpoint, "op0", 4)
    assert session.back() == 3
    assert session.goto(4) == 4
    assert session.back(2) == 2
    assert (session.name, session.last) == ("tried", None)
    session.step()
    assert (session.name, session.epoch) == ("tried_2", 3)
    branch = session.branches()[-1]
    assert (branch.parent, branch.epoch, branch.newest, branch.current) == ("tried", 2, 3, True)
    assert spark_rows(spark, left, "op0", 4) == rows
    assert session.goto(4) == 4
    assert spark_rows(spark, session.checkpoint, "op0", 4) == rows


def test_watches_along_the_branch(session: ss.DebugSession, store: ss.Store) -> None:
    """A value for each epoch, of the branch whose the epoch is."""
    session.watch("count(*) FROM checkpoint WHERE count > 5")
    values = session.watches()
    assert values["epoch"].to_list() == [1, 2, 3, 4]
    assert values["branch"].to_list() == ["tried", "tried_2", "tried_2", "tried_2"]
    for epoch, most, many in values[["epoch", *values.columns[2:]]].itertuples(index=False):
        rows = store["counts"].at(epoch).table().to_pandas()
        assert most == rows["max"].max()
        assert many == (rows["count"] > 5).sum()
    session.unwatch("count(*) FROM checkpoint WHERE count > 5")
    assert [*session.watches().columns] == ["epoch", "branch", "max(max)"]


@pytest.mark.parametrize(
    ("expression", "error", "match"),
    [("1 +", InvalidSQLError, "does not parse"), ("k", InvalidSQLError, "one value"), ("max(no)", Exception, "no")],
)
def test_a_watch_that_cannot_be_meant(
    session: ss.DebugSession, expression: str, error: type[Exception], match: str
) -> None:
    """It is refused, and the others stay."""
    before = [*session.watches().columns]
    with pytest.raises(error, match=match):
        session.watch(expression)
    assert [*session.watches().columns] == before


def test_running_until_a_breakpoint(session: ss.DebugSession) -> None:
    """Conditions and keys look at rows that changed; functions at the report; the original's end is an end."""
    for condition, stops_at in (
        ("op0.k = 'only3'", 3),
        ({"k": "only2"}, 2),
        (lambda report: report.epoch == 3, 3),
    ):
        session.goto(1)
        report = session.run_until(condition)
        assert (report.stopped, report.epoch) == ("breakpoint", stops_at), report
    session.goto(1)
    # The row is there, and no epoch changes it.
    report = session.run_until("k = 'only0'")
    assert (report.stopped, report.epoch) == ("end", 4)
    assert "new_input=True" in report.reason


def test_several_threads(session: ss.DebugSession) -> None:
    """Calls wait for each other."""
    session.goto(1)
    reports: list[ss.StepReport] = []
    threads = [threading.Thread(target=lambda: reports.append(session.step())) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(one.epoch for one in reports) == [2, 3]
    assert session.epoch == 3


@pytest.mark.parametrize("epoch", [0, -1, "2", True])
def test_an_epoch_before_the_session(session: ss.DebugSession, epoch: object) -> None:
    """The message names the first."""
    with pytest.raises(InvalidArgumentError, match="began at epoch 1"):
        session.goto(epoch)  # type: ignore[arg-type]


def test_what_a_watch_means() -> None:
    """The branch's own tables, whatever the query was called when the watch was written."""
    assert statement("max(v)", "b-1", ["op0"]) == 'SELECT MAX(v) FROM "b-1"."op0"'
    assert statement("max(d.v) FROM delays d", "b", ["op0"]) == 'SELECT MAX(d.v) FROM "b"."op0" AS "d"'
    assert '"b"."op0_left"' in statement("count(*) FROM op0_left", "b", ["op0_left", "op0_right"])
    with pytest.raises(UnknownTableError, match="say which one"):
        statement("max(v)", "b", ["op0_left", "op0_right"])
    with pytest.raises(UnknownTableError, match="'other'"):
        statement("max(v) FROM other", "b", ["op0_left", "op0_right"])


def test_a_step_that_fails(session: ss.DebugSession) -> None:
    """The session stays where it is, and no empty branch is left."""
    session.goto(2)
    good, before = session.build_query, session.branches()
    session.build_query = lambda: good().dropDuplicates(["n"])
    with pytest.raises(QueryError):
        session.step()
    assert (session.epoch, session.branches()) == (2, before)
    session.build_query = good
    assert session.step().epoch == 3
