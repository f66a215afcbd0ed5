"""A query's plan over the input of one epoch, as a batch: what came into its stateful operators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from streamstate.snapshots.checkpoint.bindings import binds
from streamstate.snapshots.spark.catalyst import each, kind_of, number_of, scala_list
from streamstate.snapshots.spark.epoch_planning import EpochClock, at_time, event_time_bound
from streamstate.snapshots.spark.plan_building import alias, column_of, expand, null_of, project, struct_of
from streamstate.snapshots.store.query_plans.plan_inputs import JOIN, LIMIT
from streamstate.state_inspect.inputs.shown_rows import SOURCE


@dataclass(frozen=True)
class OperatorInput:
    """Input of one side of a stateful operator."""

    side: str
    """``left`` or ``right`` of a join; otherwise empty."""
    plan: Any
    """The analysed plan below the operator."""
    keys: tuple[Any, ...]
    """The key's expressions, in the order of the state's key columns."""
    passed: tuple[Column, Column] | None
    """The watermark, and what has to be later than it, or the row is dropped; None if the operator drops no rows."""
    session: Any = None
    """The expression of a row's own session window, if the operator merges sessions."""
    is_aggregation: bool = False
    watermark: datetime | None = None
    """The operator's own, which rows had to be later than; None if it drops none, or if there was no watermark yet.
    With operators below, it may be earlier than the query's."""

    @property
    def late(self) -> Column | None:
        """The condition that the operator drops a row as late; None if it drops none."""
        if self.passed is None:
            return None
        watermark, time = self.passed
        return time <= watermark

    @property
    def late_by(self) -> Column | None:
        """The interval by which the watermark was past a row; None if the operator drops none."""
        if self.passed is None:
            return None
        watermark, time = self.passed
        return watermark - time


def operator_inputs(jvm: Any, node: Any, physical: Any, mode: str) -> list[OperatorInput]:
    """Return the input of each side of a stateful operator, given as a logical node and its physical one."""
    kind = kind_of(node)
    conditions = _watermarks_passed(jvm, physical, mode)
    watermarks = {side: None if passed is None else _own_watermark(physical) for side, passed in conditions.items()}
    if kind == JOIN:
        return [
            OperatorInput(
                side,
                getattr(node, side)(),
                tuple(each(getattr(physical, f"{side}Keys")())),
                conditions[side],
                watermark=watermarks[side],
            )
            for side in ("left", "right")
        ]
    if kind == LIMIT:  # what Spark limits in each partition came in, too
        return [OperatorInput("", next(each(node.child().children())), (), None)]
    session = None
    keys: Sequence[Any]
    if kind == "Aggregate":
        keys = list(each(node.groupingExpressions()))
        if kind_of(physical) == "SessionWindowStateStoreSaveExec":
            number = number_of(physical.sessionExpression().toAttribute())
            session = next(key for key in keys if number_of(_attribute(key)) == number)
            keys = [key for key in keys if key is not session]
    elif kind.startswith("Deduplicate"):
        keys = list(each(node.keys()))
    elif kind == "FlatMapGroupsInPandasWithState":
        keys = list(each(node.groupingAttributes()))
    elif kind == "TransformWithStateInPySpark":
        keys = list(each(node.child().output()))[: int(node.groupingAttributesLen())]
    else:
        keys = list(each(node.child().output()))
    return [OperatorInput("", node.child(), tuple(keys), conditions[""], session, kind == "Aggregate", watermarks[""])]


def _own_watermark(physical: Any) -> datetime | None:
    milliseconds = int(physical.eventTimeWatermarkForLateEvents().get())
    return datetime.fromtimestamp(milliseconds / 1000, UTC) if milliseconds else None


def _attribute(expression: Any) -> Any:
    return expression.toAttribute() if kind_of(expression) == "Alias" else expression


def _watermarks_passed(jvm: Any, physical: Any, mode: str) -> dict[str, tuple[Column, Column] | None]:
    """Return the watermark and the time compared with it, by side of an operator.

    Spark's own predicate compares a timestamp with a number, which no analysed plan takes.
    """
    is_join = kind_of(physical) == "StreamingSymmetricHashJoinExec"
    if not _drops(physical, mode):
        return {"left": None, "right": None} if is_join else {"": None}
    if is_join:
        watermark = physical.eventTimeWatermarkForLateEvents()
        return {
            side: _passed(event_time_bound(jvm, getattr(physical, side)().output(), watermark), jvm)
            for side in ("left", "right")
        }
    return {"": _passed(physical.watermarkExpressionForLateEvents(), jvm)}


def _passed(predicate: Any, jvm: Any) -> tuple[Column, Column] | None:
    if not predicate.isDefined():
        return None
    compared = predicate.get()
    bound = F.timestamp_micros(F.lit(int(compared.right().value())))
    return bound, column_of(jvm, compared.left())


def _drops(physical: Any, mode: str) -> bool:
    """Return whether an operator drops late rows at all."""
    kind = kind_of(physical)
    if kind == "StateStoreSaveExec":
        return mode != "complete"  # it has the predicate then, too, and does not use it
    if kind == "FlatMapGroupsInPandasWithStateExec":
        return "EventTime" in str(physical.timeoutConf().toString())
    if kind.startswith("TransformWithState"):
        return "EventTime" in str(physical.timeMode().toString())
    return kind != "StreamingGlobalLimitExec"


def over_input(jvm: Any, plan: Any, batches: Sequence[tuple[Any, Any]], clock: EpochClock) -> Any:
    """Return a plan over what its sources delivered, with each source's whole row in a column.

    ``batches`` has each leaf of the plan with what it delivered; ``clock`` gives expressions their current time.
    """
    return at_time(jvm, _Carrier(jvm, batches).carried(plan)[0], clock)


def with_leaves(jvm: Any, plan: Any, batches: Sequence[tuple[Any, Any]]) -> Any:
    """Return a plan with what its sources delivered in the place of its leaves."""
    if plan.children().isEmpty():
        return next((batch for leaf, batch in batches if leaf.equals(plan)), plan)
    old = list(each(plan.children()))
    new = [with_leaves(jvm, child, batches) for child in old]
    same = all(before is after for before, after in zip(old, new, strict=True))
    return plan if same else plan.withNewChildren(scala_list(jvm, new))


class _Carrier:
    """Adds the sources' whole rows to a plan, as far up as rows keep their identity."""

    def __init__(self, jvm: Any, batches: Sequence[tuple[Any, Any]]) -> None:
        self._jvm = jvm
        self._batches = batches

    def carried(self, node: Any) -> tuple[Any, list[Any]]:
        """Return the plan, and the attributes with the sources' rows that it passes on."""
        if node.children().isEmpty():
            return self._leaf(node)
        old = list(each(node.children()))
        done = [self.carried(child) for child in old]
        below, passed = [plan for plan, _ in done], [attribute for _, passed in done for attribute in passed]
        if not passed:
            same = all(before is after for before, after in zip(old, below, strict=True))
            return (node if same else node.withNewChildren(scala_list(self._jvm, below))), []
        kind = kind_of(node)
        if kind == "Project":
            return project(self._jvm, [*each(node.projectList()), *passed], below[0]), passed
        if kind == "Expand":
            projections = [[*each(columns), *passed] for columns in each(node.projections())]
            return expand(self._jvm, projections, [*each(node.output()), *passed], below[0]), passed
        if kind == "Union":
            return self._union(node, done)
        made = node.withNewChildren(scala_list(self._jvm, below))
        known = {number_of(attribute) for attribute in each(made.output())}
        return made, [attribute for attribute in passed if number_of(attribute) in known]

    def _leaf(self, node: Any) -> tuple[Any, list[Any]]:
        for at, (leaf, batch) in enumerate(self._batches):
            if leaf.equals(node):
                if binds(leaf):
                    return batch, []
                row = alias(self._jvm, struct_of(self._jvm, each(batch.output())), f"{SOURCE}{at}")
                return project(self._jvm, [*each(node.output()), row], batch), [row.toAttribute()]
        return node, []

    def _union(self, node: Any, done: Sequence[tuple[Any, list[Any]]]) -> tuple[Any, list[Any]]:
        """Return each side has the rows of its own source, and nulls for those of the others."""
        all_of = {str(one.name()): one for _, passed in reversed(done) for one in passed}
        wide = []
        for plan, passed in done:
            own = {str(one.name()): one for one in passed}
            columns = [one for one in each(plan.output()) if str(one.name()) not in all_of]
            for name, one in all_of.items():
                columns.append(alias(self._jvm, own.get(name) or null_of(self._jvm, one.dataType()), name))
            wide.append(project(self._jvm, columns, plan))
        made = node.withNewChildren(scala_list(self._jvm, wide))
        return made, [one for one in each(made.output()) if str(one.name()) in all_of]
