"""A result that Spark computes: the query's own physical plan above a state, over captured rows of that state.

The plan is that of an epoch of the running query. Where it reads the state of an aggregation, a scan of captured rows
takes its place; the columns have the numbers that the nodes above refer to. So every function gives what it gave in the
query, bit for bit, whatever its buffers look like.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F
from pyspark.sql import types as T

from streamstate.errors import NoResultError
from streamstate.snapshots.spark.catalyst import each, kind_of, number_of, scala_list, walk
from streamstate.snapshots.spark.epoch_planning import (
    has_current_time,
    incremental,
    physical_plan,
    prepared_plan,
)
from streamstate.snapshots.spark.plan_building import aliases, project
from streamstate.snapshots.spark.pyspark_classes import ClassicDataFrame
from streamstate.snapshots.store.native_types import is_kept
from streamstate.snapshots.store.query_plans.operator_plans import SAVES, SESSION_SAVE, STATEFUL, stateful_operators
from streamstate.snapshots.store.query_plans.plan_table import LivePlan
from streamstate.snapshots.store.query_plans.query_plan import PlannedColumn, TablePlan
from streamstate.snapshots.store.query_plans.spark_plan import nodes_above

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_ROW = "_row"


class SparkResult:
    """The result of an aggregation's state table."""

    def __init__(self, planned: LivePlan, plan: TablePlan, table: str) -> None:
        self._planned = planned
        self._plan = plan
        self._spark = planned.spark
        self._jvm: Any = planned.spark._jvm
        self._java: Any = planned.spark._jsparkSession
        physical = incremental(planned.spark, planned.analyzed, planned.plan.mode).sparkPlan()
        number = int(table.removeprefix("op").partition("_")[0])
        self._save = stateful_operators(physical)[number]
        above = nodes_above(physical, self._save)
        self._above = above if number == 0 else above[-1:]
        """The nodes above the state that belong to the result, from the top down; the last one is the aggregation."""

    def why_not(self) -> str | None:
        """Return why Spark cannot compute the result; None if it can."""
        if kind_of(self._save) not in SAVES:
            return "it does not come from an aggregation"
        if any(kind_of(node) in STATEFUL or kind_of(node).startswith("StreamingRelation") for node in self._beside()):
            return "rows of another stream are added above the state"
        if any(not expression.deterministic() for node in self._above for expression in self._expressions(node)):
            return "a random expression above the state gives another value each time"
        if self._has_time():
            return "it uses the current time, which is not recorded"
        for column in (*(self._plan.keys or ()), *self._plan.values):
            if column.type != "void" and not is_kept(_type(column)):
                return f"the state has a column of type {_type(column).simpleString()}, which is stored as another type"
        return None

    def frame(self, rows: DataFrame, keys: Sequence[str], values: Sequence[str], spark: SparkSession) -> DataFrame:
        """Return the result's columns, under their names.

        The rows of the state table are in the session that the query was planned in; the frame belongs to ``spark``.
        """
        made = self._over(rows, keys, values, spark, with_row=False)
        return _named(made, {column.name: F.col(f"c{at}") for at, column in enumerate(self._plan.columns)})

    def beside_keys(
        self, rows: DataFrame, keys: Sequence[str], values: Sequence[str], wanted: Sequence[int]
    ) -> DataFrame:
        """Return some columns of the result as ``_spark<number>``, beside the state's keys as ``_key<number>``.

        The rows of the state table are in the session that the query was planned in; ``wanted`` are places of columns.
        """
        made = self._over(rows, keys, values, self._spark, with_row=True)
        row = F.col(f"c{len(self._plan.columns)}")
        columns = {f"_key{at}": row.getField(f"k{at}") for at in range(len(keys))}
        return _named(made, columns | {f"_spark{at}": F.col(f"c{at}") for at in wanted})

    def _beside(self) -> Iterator[Any]:
        """Yield the nodes that are neither above the state nor below."""
        for at, node in enumerate(self._above):
            own = self._above[at + 1] if at + 1 < len(self._above) else self._save
            for child in each(node.children()):
                if not child.equals(own):
                    yield from walk(child)

    def _expressions(self, node: Any) -> Iterator[Any]:
        # What an aggregate function makes of rows is decided: its buffers are in the state.
        return each(node.resultExpressions() if node is self._above[-1] else node.expressions())

    def _has_time(self) -> bool:
        """Return whether an expression above the state, or in it, uses the current time."""
        return any(
            has_current_time(self._jvm, expression)
            for node in _above_input(self._planned.analyzed)
            for expression in each(node.expressions())
        )

    def _over(
        self, rows: DataFrame, keys: Sequence[str], values: Sequence[str], spark: SparkSession, *, with_row: bool
    ) -> DataFrame:
        """Return the result's columns as ``c0``, ``c1``, …, and the state's key as a struct if wanted."""
        scan, row = self._scan(rows, keys, values)
        plan, below = scan, self._save
        for node in reversed(self._above):
            children = [plan if child.equals(below) else child for child in each(node.children())]
            if node is self._above[-1]:
                plan = self._aggregated(node, row, children, with_row=with_row)
            elif with_row and kind_of(node) == "ProjectExec":
                plan = node.copy(self._list([*each(node.projectList()), row]), children[0])
            else:
                plan = node.withNewChildren(self._list(children))
            below = node
        ready = prepared_plan(self._jvm, self._java, plan)
        streaming = False
        java: Any = spark._jsparkSession
        made = ClassicDataFrame(java.internalCreateDataFrame(ready.execute(), ready.schema(), streaming), spark)
        numbers = [number_of(attribute) for attribute in each(ready.output())]
        names = [f"r{at}" for at in range(len(numbers))]
        own = [at for at, number in enumerate(numbers) if number != number_of(row)]
        own += [numbers.index(number_of(row))] if with_row else []
        return made.toDF(*names).select(*(F.col(names[at]).alias(f"c{to}") for to, at in enumerate(own)))

    def _aggregated(self, node: Any, row: Any, children: Sequence[Any], *, with_row: bool) -> Any:
        """Return the final aggregation of rows of which each has its own key.

        The key is one more column to group by: it can be passed on, and without rows there are no groups, either. As a
        streaming aggregate it would insist on the state's partitions.
        """
        nothing, streaming = self._jvm.scala.Option.empty(), False
        result = [*each(node.resultExpressions()), *([row] if with_row else [])]
        return node.copy(
            nothing,
            streaming,
            nothing,
            self._list([row, *each(node.groupingExpressions())]),
            node.aggregateExpressions(),
            node.aggregateAttributes(),
            node.initialInputBufferOffset() + 1,
            self._list(result),
            children[0],
        )

    def _scan(self, rows: DataFrame, keys: Sequence[str], values: Sequence[str]) -> tuple[Any, Any]:
        """Return a physical plan of state rows with the state's attributes, and the attribute of the key."""
        output = list(each(self._save.output()))
        known = self._stored(rows, output, keys, values)
        row = F.struct(*(_column(name).alias(f"k{at}") for at, name in enumerate(keys))) if keys else F.lit(0)
        below = rows.select(row.alias(_ROW), *(known[number_of(attribute)] for attribute in output))
        analyzed = below._jdf.queryExecution().analyzed()
        attribute, *columns = each(analyzed.output())
        named = aliases(self._jvm, columns, output, metadata_of="output")
        plan = project(self._jvm, [attribute, *named], analyzed)
        return physical_plan(self._jvm, self._java, plan), attribute

    def _stored(
        self, rows: DataFrame, output: Sequence[Any], keys: Sequence[str], values: Sequence[str]
    ) -> dict[int, Column]:
        """Return the stored column of each of the state's attributes, by number."""
        if kind_of(self._save) == SESSION_SAVE:  # the value is the whole row
            parts = [(output, values, self._plan.values)]
        else:
            of_keys = list(each(self._save.keyExpressions()))
            numbers = {number_of(attribute) for attribute in of_keys}
            others = [attribute for attribute in output if number_of(attribute) not in numbers]
            parts = [(of_keys, keys, self._plan.keys or ()), (others, values, self._plan.values)]
        known: dict[int, Column] = {}
        for attributes, names, planned in parts:
            stored = iter(zip(names, planned, strict=False))
            for attribute in attributes:
                if str(attribute.dataType().typeName()) == "void":
                    known[number_of(attribute)] = F.lit(None)
                    continue
                name, column = next(stored, (None, None))
                if name is None or column is None or _nullable(rows.schema[name].dataType) != _nullable(_type(column)):
                    raise NoResultError(
                        f"The recorded plan does not fit the state: it has {', '.join([*keys, *values])}; the plan"
                        f" expects {', '.join(column.name for column in planned)}.\n"
                        "Record the query's plan again: history.describe(build_query)."
                    )
                known[number_of(attribute)] = _column(name)
        return known

    def _list(self, items: Sequence[Any]) -> Any:
        return scala_list(self._jvm, items)


def _above_input(node: Any) -> Iterator[Any]:
    """Yield the nodes of an analysed plan that are not below its lowest streaming aggregations."""
    yield node
    children = list(each(node.children()))
    if _aggregates(node) and not any(_aggregates(below) for child in children for below in walk(child)):
        return
    for child in children:
        yield from _above_input(child)


def _aggregates(node: Any) -> bool:
    return kind_of(node) == "Aggregate" and bool(node.isStreaming())


def _named(frame: DataFrame, columns: dict[str, Column]) -> DataFrame:
    """Columns under new names, without metadata: a later groupBy on a session window would merge sessions."""
    return frame.select(*(column.alias(name, metadata={}) for name, column in columns.items()))


def _column(name: str) -> Column:
    return F.col(f"`{name.replace('`', '``')}`")


def _type(column: PlannedColumn) -> T.DataType:
    field = {"name": "it", "type": column.type, "nullable": True, "metadata": {}}
    return T.StructType.fromJson({"type": "struct", "fields": [field]}).fields[0].dataType


def _nullable(kind: T.DataType) -> T.DataType:
    """Return the type as Delta stores it: everything inside it may be null."""
    if isinstance(kind, T.StructType):
        return T.StructType([T.StructField(field.name, _nullable(field.dataType)) for field in kind.fields])
    if isinstance(kind, T.ArrayType):
        return T.ArrayType(_nullable(kind.elementType))
    if isinstance(kind, T.MapType):
        return T.MapType(_nullable(kind.keyType), _nullable(kind.valueType))
    return kind
