"""The plan of a streaming query, read through Spark's own objects: the result's columns as expressions over the state.

Nothing is run and no file is written. Spark plans a batch as for a running query; above the node that saves an
operator's state, the physical plan says how the state's columns become the result's. Names of buffers repeat, so
columns are distinguished by the numbers that Spark gives them.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from streamstate.snapshots.spark.catalyst import each, kind_of, number_of, walk
from streamstate.snapshots.spark.epoch_planning import EpochClock, at_time, has_current_time, incremental
from streamstate.snapshots.spark.private_classes import private_calls
from streamstate.snapshots.store.names import distinct
from streamstate.snapshots.store.query_plans.operator_plans import (
    DEDUPLICATE,
    DEDUPLICATE_WITHIN,
    JOIN,
    SAVES,
    SESSION_SAVE,
    WATERMARK,
    Removal,
    operator_plans,
    removals,
    stateful_operators,
    type_of,
)
from streamstate.snapshots.store.query_plans.plan_inputs import event_times, state_inputs, watermarks
from streamstate.snapshots.store.query_plans.plan_table import LivePlan
from streamstate.snapshots.store.query_plans.query_plan import (
    TOO_LONG,
    Expression,
    PlannedColumn,
    QueryPlan,
    TablePlan,
    limited,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

_SETTINGS = ("spark.sql.ansi.enabled", "spark.sql.session.timeZone", "spark.sql.caseSensitive")
_POLICY = "spark.sql.streaming.multipleWatermarkPolicy"
# Nodes above a state that neither add nor remove rows, nor change columns.
_PASSES = ("SortExec", "ShuffleExchangeExec", "EventTimeWatermarkExec", "CollectMetricsExec", "CoalesceExec")
_ANOTHER_TIME = 1_234_567_890_123  # milliseconds
_NO_TIME = "the current time is not in the state"
_MOST_NODES = 20_000
_MOST_FIELDS = 10_000
# In a plan's text: the numbers of columns and of lambda variables, addresses, and the names of watermark nodes.
_CHANGING = re.compile(r"#\d+L?|(?<=lambda [a-z])_\d+|@[0-9a-f]+|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def plan_of_query(query: StreamingQuery) -> LivePlan:
    """Return the plan of a query that runs in this process."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    running = query._jsq.streamingQuery()
    session = SparkSession(SparkContext.getOrCreate(), running.sparkSession())
    with private_calls(session):
        return _plan(session, running.analyzedPlan(), str(running.outputMode().toString()))


def first_epoch(query: StreamingQuery) -> int:
    """Return the first epoch that a query that runs in this process is known to have run with its plan."""
    known = [int(progress["batchId"]) for progress in query.recentProgress]
    return min(known, default=0)


def plan_of_frame(frame: DataFrame, mode: str) -> LivePlan:
    """Return the plan of a streaming DataFrame as a query with an output mode; nothing is started."""
    with private_calls(frame.sparkSession):
        return _plan(frame.sparkSession, frame._jdf.queryExecution().analyzed(), mode)


def _plan(spark: SparkSession, analyzed: Any, mode: str) -> LivePlan:
    jvm: Any = spark._jvm
    mode = mode.lower()

    def planned_at(began_at: int = 0) -> Any:
        clock = EpochClock(WATERMARK, began_at)
        return incremental(spark, at_time(jvm, analyzed, clock), mode, epoch=1, before=clock, now=clock)

    execution = planned_at()
    removed = removals(execution.executedPlan(), mode)
    tables = _tables(execution.sparkPlan(), removed)
    if has_current_time(jvm, analyzed):
        # What depends on the time, two times tell.
        later = _tables(planned_at(_ANOTHER_TIME).sparkPlan(), removed)
        tables = {name: _without_time(table, later[name]) for name, table in tables.items()}
    settings = {name: str(spark.conf.get(name)) for name in _SETTINGS}
    ansi = settings["spark.sql.ansi.enabled"] != "false"
    optimized = execution.optimizedPlan()
    plan = QueryPlan(
        mode,
        spark.version,
        settings,
        {name: replace(table, ansi=ansi) for name, table in tables.items()},
        fingerprint(analyzed),
        state_inputs(jvm, optimized, mode),
        watermarks(optimized),
        operator_plans(execution.sparkPlan()),
        event_times(jvm, analyzed),
        str(spark.conf.get(_POLICY)),
    )
    return LivePlan(spark, analyzed, plan)


def _tables(physical: Any, removed: Mapping[tuple[int, str], Removal]) -> dict[str, TablePlan]:
    """Plan each state table: the result's columns, and the times at which the watermark removes its rows."""
    tables: dict[str, TablePlan] = {}
    for number, node in enumerate(stateful_operators(physical)):
        kind, name = kind_of(node), f"op{number}"
        if kind in SAVES:
            tables[name] = _aggregate(physical, node, removed.get((number, "")), top=number == 0)
        elif kind in (DEDUPLICATE, DEDUPLICATE_WITHIN):
            tables[name] = _deduplicated(physical, node, removed.get((number, "")), top=number == 0)
        elif kind == JOIN:
            for side in ("left", "right"):
                tables[f"{name}_{side}"] = _joined(node, side, removed.get((number, side)))
    return tables


def _without_time(table: TablePlan, later: TablePlan) -> TablePlan:
    """Return a plan without what differs from that of another time."""
    columns = tuple(
        column if column == other else replace(column, expression={"why": _NO_TIME})
        for column, other in zip(table.columns, later.columns, strict=True)
    )
    needs_spark = table.needs_spark if table.where == later.where else _NO_TIME
    return replace(table, columns=columns, needs_spark=needs_spark)


def fingerprint(analyzed: Any) -> str:
    """Hash an analysed plan's text, without its sources and what differs from one start to the next."""
    texts = []
    for node in walk(analyzed):
        is_leaf = node.children().isEmpty()
        names = [str(attribute.name()) for attribute in each(node.output())] if is_leaf else []
        texts.append(f"{kind_of(node)} {names}" if is_leaf else str(node.simpleString(_MOST_FIELDS)))
    return hashlib.sha256(_CHANGING.sub("", "\n".join(texts)).encode()).hexdigest()


def _aggregate(physical: Any, save: Any, removed: Removal | None, *, top: bool) -> TablePlan:
    """Return the state of an aggregation."""
    output = list(each(save.output()))
    of_keys: tuple[PlannedColumn, ...] | None = None
    same: tuple[int | None, ...]
    if kind_of(save) == SESSION_SAVE:
        # The value is the whole row. The state's key ends with the start of the session, which the row does not have.
        known, values = _state_columns("value", output)
        places = {number_of(attribute): at for at, attribute in enumerate(_stored(output))}
        same = (*(places.get(number_of(key)) for key in _stored(each(save.keyWithoutSessionExpressions()))), None)
    else:
        keys = list(each(save.keyExpressions()))
        numbers = {number_of(key) for key in keys}
        known, of_keys = _state_columns("key", keys)
        of_values, values = _state_columns("value", [one for one in output if number_of(one) not in numbers])
        known |= of_values
        same = (None,) * len(of_keys)
    above = nodes_above(physical, save)
    # The state has the buffers under other numbers than the functions that evaluate them.
    grouping = {number_of(key) for key in each(above[-1].groupingExpressions())}
    buffers = [known[number_of(one)] for one in output if number_of(one) not in grouping]
    at = 0
    for aggregated in each(above[-1].aggregateExpressions()):
        function = aggregated.aggregateFunction()
        own = [number_of(buffer) for buffer in each(function.aggBufferAttributes())]
        known |= dict(zip(own, buffers[at : at + len(own)], strict=True))
        at += len(own)
        why = None if _is_declarative(function) else f"{function.prettyName()} needs Spark"
        evaluated = {"why": why} if why else _expression(function.evaluateExpression(), known)
        known[number_of(aggregated.resultAttribute())] = evaluated
    state = _removed(TablePlan(of_keys, values, same), removed, known)
    return _result(state, known, above if top else above[-1:], above[0] if top else above[-1])


def _deduplicated(physical: Any, node: Any, removed: Removal | None, *, top: bool) -> TablePlan:
    """Return the state of a deduplication, which has the key columns only, or when a row expires."""
    known, keys = _state_columns("key", list(each(node.keyExpressions())))
    above = nodes_above(physical, node) if top else []
    state = _removed(TablePlan(keys, (), (None,) * len(keys)), removed, known)
    if kind_of(node) == DEDUPLICATE_WITHIN:
        state = replace(state, time={"is": "State", "part": "value", "at": 0, "type": "long"})
    made = _result(state, known, above, above[0] if above else node)
    return replace(made, columns=tuple(column for column in made.columns if "why" not in column.expression))


def _joined(join: Any, side: str, removed: Removal | None) -> TablePlan:
    """Return the state of a side of a join: its rows."""
    node = getattr(join, side)()
    output = _stored(list(each(node.output())))
    known, values = _state_columns("value", output)
    places = {number_of(attribute): at for at, attribute in enumerate(output)}
    keys = list(each(getattr(join, f"{side}Keys")()))
    same = tuple(places.get(number_of(key)) if kind_of(key) == "AttributeReference" else None for key in keys)
    return _result(_removed(TablePlan(None, values, same), removed, known), known, [], node)


def _removed(state: TablePlan, removed: Removal | None, known: Mapping[int, Expression]) -> TablePlan:
    """Return a state with what the watermark removes of it."""
    if removed is None:
        return state
    return replace(state, time=_expression(removed.time, known), behind=removed.behind)


def _stored(attributes: Iterable[Any]) -> list[Any]:
    """Return the columns that a state table has: a void has no column."""
    return [attribute for attribute in attributes if type_of(attribute) != "void"]


def _state_columns(part: str, attributes: Sequence[Any]) -> tuple[dict[int, Expression], tuple[PlannedColumn, ...]]:
    known: dict[int, Expression] = {
        number_of(one): {"is": "Literal", "type": "void", "value": None} for one in attributes if type_of(one) == "void"
    }
    columns = []
    for at, attribute in enumerate(_stored(attributes)):
        kind = type_of(attribute)
        known[number_of(attribute)] = {"is": "State", "part": part, "at": at, "type": kind}
        columns.append(PlannedColumn(str(attribute.name()), kind))
    return known, tuple(columns)


def nodes_above(physical: Any, node: Any) -> list[Any]:
    """Return the nodes above one, from the top down."""
    path: list[Any] = []

    def leads(plan: Any) -> bool:
        if plan.equals(node):
            return True
        path.append(plan)
        if any(leads(child) for child in each(plan.children())):
            return True
        path.pop()
        return False

    leads(physical)
    return path


def _result(state: TablePlan, known: dict[int, Expression], above: Sequence[Any], root: Any) -> TablePlan:
    """Derive result columns from state columns, which are ``known`` by their numbers."""
    where: list[Expression] = []
    needs_spark = None
    for node in reversed(above):
        kind = kind_of(node)
        if kind == "ProjectExec":
            _define(known, node.projectList())
        elif kind.endswith("AggregateExec") and node is above[-1]:
            _define(known, node.resultExpressions())
        elif kind == "FilterExec":
            where.append(limited(_expression(node.condition(), known)))
        elif kind.endswith("EvalPythonExec"):
            known |= {number_of(made): {"why": "a Python function needs Spark"} for made in each(node.resultAttrs())}
        elif kind not in _PASSES:
            needs_spark = f"{kind.removesuffix('Exec')} needs Spark"
            break
    columns: list[PlannedColumn] = []
    attributes = list(each(root.output()))
    for name, attribute in zip(distinct(str(one.name()) for one in attributes), attributes, strict=True):
        found = limited(known.get(number_of(attribute), {"why": needs_spark or "it is not in the state"}))
        columns.append(PlannedColumn(name, type_of(attribute), found))
    return replace(state, columns=tuple(columns), where=tuple(where), needs_spark=needs_spark)


def _define(known: dict[int, Expression], expressions: Any) -> None:
    for expression in each(expressions):
        known[number_of(expression)] = _expression(expression, known)


def _is_declarative(function: Any) -> bool:
    """Return whether an aggregate function's value is an expression over its buffers."""
    kind = function.getClass()
    while kind is not None:
        if str(kind.getSimpleName()) == "DeclarativeAggregate":
            return True
        kind = kind.getSuperclass()
    return False


def _expression(expression: Any, known: Mapping[int, Expression]) -> Expression:
    """Return an expression, with columns replaced by what they are."""
    nodes = json.loads(str(expression.toJSON()))
    if len(nodes) > _MOST_NODES:
        return {"why": TOO_LONG}
    return _tree(iter(nodes), known)


def _tree(nodes: Iterator[Mapping[str, Any]], known: Mapping[int, Expression]) -> Expression:
    """Return the next expression of a list that Spark has flattened from the top down."""
    node = next(nodes)
    kind = str(node["class"]).rpartition(".")[2]
    arguments = [_tree(nodes, known) for _ in range(int(node["num-children"]))]
    if kind == "AttributeReference":
        return known.get(int(node["exprId"]["id"]), {"why": f"{node['name']} is not in the state"})
    if kind == "BoundReference":  # of a join's key
        return {"is": "State", "part": "key", "at": int(node["ordinal"]), "type": node["dataType"]}
    if kind == "Alias":
        return arguments[0]
    tree: dict[str, Any] = {"is": kind}
    if arguments:
        tree["of"] = arguments
    if "dataType" in node:
        tree["type"] = node["dataType"]
    if kind == "Literal":
        tree["value"] = node["value"]
    if kind in ("GetStructField", "GetArrayStructFields"):
        tree["at"] = int(node["ordinal"])
    return tree
