"""The record of a query's plan, as text: how each column of the result follows from a state table's columns.

An expression is a tree of JSON objects. ``is`` names the expression as Spark does (``Divide``, ``Cast``), ``of`` has
its arguments. A leaf is a state column (``{"is": "State", "part": "value", "at": 2, "type": "long"}``, by position,
because the names of buffers repeat), a literal, or a reason why there is no expression (``{"why": "…"}``). Nothing in a
record is code: a store may come from anywhere.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from streamstate.errors import QueryError, StoreError
from streamstate.snapshots.checkpoint.decoding.state_table_format import SparkType

FORMAT = 1
_LONGEST = 2_000_000
"""Characters of a record."""
_LONGEST_NAME = 1_000
_LONGEST_REASON = 200
_MOST_NODES, _DEEPEST = 2_000, 100
"""Nodes of an expression, and levels of nesting."""
_DEEPEST_RECORD = 300
"""Levels of JSON: two for each of an expression's, and those of types."""

TOO_LONG = "its expression is too long"

Expression = Mapping[str, Any]
"""A tree of JSON objects."""


@dataclass(frozen=True)
class PlannedColumn:
    """A column, with its type as Spark's schemas have it in JSON."""

    name: str
    type: SparkType
    expression: Expression = field(default_factory=dict, hash=False)
    """The expression that computes it; empty for a state column."""


@dataclass(frozen=True)
class TablePlan:
    """The expressions that turn the rows of one state table into rows of a result."""

    keys: tuple[PlannedColumn, ...] | None
    """The state's key columns in the order on disk; None if the expressions use none of them."""
    values: tuple[PlannedColumn, ...]
    """The state's value columns in the order on disk. A table may have further ones, which are Spark's own."""
    same: tuple[int | None, ...] = ()
    """For each key column, the number of the value column that always equals it, if there is one."""
    columns: tuple[PlannedColumn, ...] = ()
    """The result's columns, in the query's order."""
    where: tuple[Expression, ...] = field(default=(), hash=False)
    """Conditions; rows that do not meet them are not in the result."""
    needs_spark: str | None = None
    """The reason why the result is more than a row for each row of the state, such as a join; else None."""
    ansi: bool = True
    """True if the query ran in Spark's ANSI mode, in which an integer that overflows is an error."""
    time: Expression | None = field(default=None, compare=False)
    """A row's event time, over the state's columns: once the watermark has passed it, Spark removes the row. None if
    the watermark removes no row."""
    behind: int = field(default=0, compare=False)
    """By how many microseconds the watermark has to be past that time."""

    @property
    def is_renamed_state(self) -> bool:
        """True if the result has the state's rows, and columns of the state under other names."""
        renamed = all(column.expression.get("is") == "State" for column in self.columns)
        return renamed and not self.where and self.needs_spark is None


@dataclass(frozen=True)
class StateInput:
    """The input of one operator's state, as SQL over the sources' columns."""

    operator: str
    """Spark's name of the operator's logical node, such as ``Aggregate``."""
    keys: tuple[str, ...]
    """The key's expressions; empty for a join."""
    values: tuple[str, ...]
    """Aggregate functions; for a join, its type, its condition and the columns of both sides."""
    conditions: tuple[str, ...]
    """The conditions under which rows reach the operator: filters, and operations that make other rows."""


@dataclass(frozen=True)
class OperatorPlan:
    """A stateful operator."""

    name: str
    """Spark's name of the operator, as in the checkpoint's operator metadata, such as ``stateStoreSave``."""
    keys: tuple[SparkType, ...]
    """The types of its key columns."""
    kind: str = ""
    """The type of a join (``LEFT OUTER``), the timeout (``NoTimeout``) or the time mode (``NoTime``) of user code."""
    event_times: tuple[tuple[str, ...], ...] = ()
    """For each of its inputs, the columns with a watermark."""


@dataclass(frozen=True)
class EventTime:
    """A watermark that a query declares."""

    column: str
    delay: int
    """In milliseconds."""
    sources: tuple[str, ...]
    """The sources whose rows it is computed from: their names, or their places in the query from 0."""


@dataclass(frozen=True)
class QueryPlan:
    """The plan of one or more runs of a query."""

    mode: str
    """The output mode: ``append``, ``update`` or ``complete``."""
    spark: str
    """The version of Spark that planned it."""
    settings: Mapping[str, str]
    """Settings of the session that expressions depend on."""
    tables: Mapping[str, TablePlan]
    """By state table. Tables of processors, whose columns already are the user's own, are left out."""
    fingerprint: str = ""
    """A hash of the whole plan's text, with filters and expressions below the state."""

    inputs: tuple[StateInput, ...] = ()
    """The inputs of the state, by operator."""
    watermarks: tuple[str, ...] = ()
    """The event-time column and the delay of each watermark."""
    operators: tuple[OperatorPlan, ...] = ()
    """The stateful operators in Spark's numbers."""
    event_times: tuple[EventTime, ...] = ()
    """The watermarks, with their sources."""
    watermark_policy: str = field(default="min", compare=False)
    """The choice among several watermarks: ``min`` or ``max``."""
    topics: Mapping[str, str] = field(default_factory=dict, compare=False)
    """The ids of Kafka's topics when the query started; empty where the broker was not asked."""

    def to_json(self) -> str:
        """Return the record as text; equal plans have equal texts.

        Raises:
            QueryError: it would be too long to be read again.
        """
        text = json.dumps({"format": FORMAT, **asdict(self)}, sort_keys=True, separators=(",", ":"))
        if len(text) > _LONGEST:
            raise QueryError(f"The plan takes {len(text):,} characters; a store records at most {_LONGEST:,}.")
        return text

    @classmethod
    def from_json(cls, text: str) -> QueryPlan:
        """Read a record.

        Raises:
            StoreError: the text is not a record, or one of a newer format.
        """
        try:
            if len(text) > _LONGEST:
                raise ValueError("it is too long")
            data = json.loads(text)
            _check_text(data)
            if data["format"] > FORMAT:
                raise StoreError("The store has a plan that a newer version of streamstate recorded; upgrade.")
            tables = {name: _table_plan(table) for name, table in data["tables"].items()}
            return cls(
                str(data["mode"]),
                str(data["spark"]),
                dict(data["settings"]),
                tables,
                str(data.get("fingerprint", "")),
                tuple(_state_input(operator) for operator in data.get("inputs", ())),
                _texts(data.get("watermarks", ())),
                tuple(_operator_plan(operator) for operator in data.get("operators", ())),
                tuple(_event_time(watermark) for watermark in data.get("event_times", ())),
                str(data.get("watermark_policy", "min")),
                {str(name): str(topic) for name, topic in data.get("topics", {}).items()},
            )
        except (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            raise StoreError(f"The store's record of a plan cannot be read: {error!r:.200}.") from error


def _state_input(data: Mapping[str, Any]) -> StateInput:
    return StateInput(str(data["operator"]), _texts(data["keys"]), _texts(data["values"]), _texts(data["conditions"]))


def _operator_plan(data: Mapping[str, Any]) -> OperatorPlan:
    inputs = tuple(_texts(columns) for columns in data["event_times"])
    return OperatorPlan(str(data["name"]), tuple(data["keys"]), str(data["kind"]), inputs)


def _event_time(data: Mapping[str, Any]) -> EventTime:
    return EventTime(str(data["column"]), int(data["delay"]), _texts(data["sources"]))


def _texts(items: Iterable[object]) -> tuple[str, ...]:
    return tuple(str(item) for item in items)


def _table_plan(data: Mapping[str, Any]) -> TablePlan:
    keys = data["keys"]
    return TablePlan(
        None if keys is None else tuple(_column(column) for column in keys),
        tuple(_column(column) for column in data["values"]),
        tuple(None if at is None else int(at) for at in data["same"]),
        tuple(_column(column) for column in data["columns"]),
        tuple(limited(dict(condition)) for condition in data["where"]),
        None if data["needs_spark"] is None else str(data["needs_spark"]),
        bool(data["ansi"]),
        None if data.get("time") is None else limited(dict(data["time"])),
        int(data.get("behind", 0)),
    )


def _column(data: Mapping[str, Any]) -> PlannedColumn:
    name = str(data["name"])
    if len(name) > _LONGEST_NAME or "\0" in name:
        raise ValueError("a column has no valid name")
    if not isinstance(data["type"], str | dict):
        raise TypeError("a column has no type")
    return PlannedColumn(name, data["type"], limited(dict(data["expression"])))


def _check_text(data: Any) -> None:
    """Raise a ValueError if JSON has half characters, which no engine accepts, or is nested too deeply."""
    try:
        json.dumps(data, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise ValueError("it has half of a character") from None
    level = [data]
    for _ in range(_DEEPEST_RECORD):
        lists = (node.values() if isinstance(node, dict) else node for node in level)
        level = [part for parts in lists for part in parts if isinstance(part, dict | list)]
        if not level:
            return
    raise ValueError("it is nested too deeply")


def limited(tree: Expression) -> Expression:
    """Return the expression, or the reason why it is left out: it is nested too deeply, or has too many parts."""
    level, known = [tree], 0
    for _ in range(_DEEPEST):
        known += len(level)
        if known > _MOST_NODES:
            break
        level = [argument for node in level for argument in node.get("of", ())]
        if not level:
            return tree
    return {"why": TOO_LONG}


def reasons(tree: Expression) -> Iterator[str]:
    """Return the reasons for the parts that an expression lacks."""
    if "why" in tree:
        yield str(tree["why"])[:_LONGEST_REASON]
    for argument in tree.get("of", ()):
        yield from reasons(argument)
