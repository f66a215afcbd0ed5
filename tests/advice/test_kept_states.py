"""States from which Spark removes no row: by the plan, and by the checkpoint alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from recorded.unpacked import unpacked

from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.store.query_plans.query_plan import (
    EventTime,
    OperatorPlan,
    PlannedColumn,
    QueryPlan,
    StateInput,
    TablePlan,
)
from streamstate.state_inspect.advice.kept_states import kept_by_checkpoint, kept_by_plan

TIME = {"is": "State", "part": "key", "at": 0, "type": "timestamp"}
KEYS = (PlannedColumn("user", "string"), PlannedColumn("_groupingexpression", "string"))
WATERMARK = EventTime("t", 600_000, ("0",))


def planned(
    operator: OperatorPlan, *tables: tuple[str, TablePlan], mode: str = "update", watermarks: int = 0
) -> dict[tuple[str, ...], str]:
    """The states that a query of one operator keeps, and why."""
    inputs = (StateInput("", ("user", "upper(page)"), (), ()),)
    times = (WATERMARK,) * watermarks
    plan = QueryPlan(mode, "4.3.0", {}, dict(tables), inputs=inputs, operators=(operator,), event_times=times)
    return {state.tables: state.why for state in kept_by_plan(plan, [name for name, _ in tables] or ["op0_total"])}


def joined(
    left: bool, right: bool, kind: str = "INNER", *, bounded: tuple[bool, bool] = (False, False)
) -> dict[str, str]:
    """Return why each side of a join is kept, given its watermark and the time at which its rows are removed."""
    operator = OperatorPlan("symmetricHashJoin", ("string",), kind, (("t",) * left, ("u",) * right))
    sides = zip(("left", "right"), bounded, strict=True)
    tables = [(f"op0_{side}", TablePlan(None, (), time=TIME if known else None)) for side, known in sides]
    return {table: why for states, why in planned(operator, *tables, mode="append").items() for table in states}


@pytest.mark.parametrize("name", ["stateStoreSave", "dedupe"])
def test_a_key_without_event_time_is_kept(name: str) -> None:
    """The reason names the key, and what it lacks; a key that the watermark can pass is not kept."""
    operator, table = OperatorPlan(name, ("string", "string")), TablePlan(KEYS, ())
    keeps = "dropDuplicates remembers" if name == "dedupe" else "it keeps"
    every = f"{keeps} every key (user, upper(page)), and"
    assert planned(operator, ("op0", table)) == {("op0",): f"{every} the query has no watermark"}
    assert planned(operator, ("op0", table), watermarks=1) == {("op0",): f"{every} the key lacks the event time t"}
    assert planned(operator, ("op0", TablePlan(KEYS, (), time=TIME)), watermarks=1) == {}


def test_complete_mode_keeps_all_groups() -> None:
    """Also those of windows with a watermark, and of sessions."""
    for name in ("stateStoreSave", "sessionWindowStateStoreSaveExec"):
        [why] = planned(OperatorPlan(name, ("string",)), ("op0", TablePlan(KEYS, ())), mode="complete").values()
        assert "complete mode" in why


def test_one_row_is_no_state_that_grows() -> None:
    """Aggregations without a key, and limits."""
    assert planned(OperatorPlan("stateStoreSave", ()), ("op0", TablePlan((), ()))) == {}
    assert planned(OperatorPlan("globalLimit", ())) == {}
    assert planned(OperatorPlan("dedupeWithinWatermark", ("string",)), ("op0", TablePlan(KEYS, (), time=TIME))) == {}


def test_each_side_of_a_join_has_its_reason() -> None:
    """A watermark on both sides, and a condition that bounds both, keep none."""
    assert {*joined(False, False).values()} == {"neither side of the join has a watermark"}
    assert {*joined(True, False).values()} == {"the right side of the join has no watermark"}
    assert {*joined(False, True).values()} == {"the left side of the join has no watermark"}
    open_ended = joined(True, True, bounded=(False, True))
    assert open_ended == {
        "op0_left": "the join condition does not say how much later than t a row of the right side may match"
    }
    assert joined(True, True, bounded=(True, True)) == {}


@pytest.mark.parametrize(
    ("kind", "sides"),
    [("LEFT OUTER", {"left"}), ("RIGHT OUTER", {"right"}), ("FULL OUTER", {"left", "right"}), ("INNER", set())],
)
def test_an_outer_join_never_returns_rows_of_a_side_that_is_kept(kind: str, sides: set[str]) -> None:
    """Spark accepts some of them, and nothing ever comes out."""
    found = {table for table, why in joined(False, True, kind).items() if "therefore never returned" in why}
    assert found == {f"op0_{side}" for side in sides}


def test_the_checkpoint_tells_of_states_without_event_time(tmp_path: Path) -> None:
    """Whichever Spark wrote it. What only the plan knows is not guessed: the condition of a join, the output mode."""
    for version in ("3.4", "4.2"):
        kept = {}
        for folder in (unpacked(version, tmp_path / version) / "HDFS").iterdir():
            checkpoint = CheckpointFiles(folder)
            kept[folder.name] = kept_by_checkpoint(checkpoint, checkpoint.committed()[-1])
        why = {name: [(state.tables, state.why) for state in states] for name, states in kept.items() if states}
        assert why.pop("aggregation") == [(("op0",), "it keeps every key, and the key (k) has no event time")]
        # Not every version recorded these.
        why.pop("aggregation-200-partitions", None)
        user_code = why.pop("applyInPandasWithState", [])
        assert all("it has no timeout" in reason for _, reason in user_code)
        assert why == {}
