"""What in a query's plan may come out otherwise when it runs again, and into which columns of the state it flows.

The analysed plan lives in the JVM and is walked there, from the sources up. Each column that something uncertain went
into is remembered by Spark's own number for it, so that an aggregate's columns can be traced back to it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from streamstate.debugger.audit.python_code import suspects_in
from streamstate.debugger.audit.suspects import Kind, Suspect

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["suspects_of"]

_RANDOM = ("it draws anew in every run", "derive the value from the row, such as a hash of its key")
_EXPRESSIONS: dict[str, tuple[Kind, str, str]] = {
    **dict.fromkeys(
        ("Rand", "Randn", "RandStr", "Uniform", "Shuffle"),
        (Kind.RANDOM, "Spark gives it a new seed in every epoch, also where one was given", _RANDOM[1]),
    ),
    "Uuid": (Kind.RANDOM, *_RANDOM),
    # Spark puts the epoch's own time, which is in its log, in the place of the other three, not of these.
    **dict.fromkeys(
        ("Now", "CurrentTime"),
        (Kind.CLOCK, "it reads the clock of the machine, which is later in a replay", "use current_timestamp()"),
    ),
    "SparkPartitionID": (
        Kind.PARTITION,
        "it is the number of a partition, of which another run may have more",
        "use a column of the row, or its hash",
    ),
    "MonotonicallyIncreasingID": (
        Kind.PARTITION,
        "it counts the rows of each partition",
        "use a column of the row that tells rows apart",
    ),
    "CallMethodViaReflection": (Kind.RANDOM, "Spark cannot know what the method does", "write it as an expression"),
}
_FIRST_COMES = ("the rows of a key come in no fixed order after a shuffle", "use min_by, max_by or min and max")
_ORDERED = {
    **dict.fromkeys(("First", "Last", "AnyValue"), _FIRST_COMES),
    **dict.fromkeys(
        ("CollectList", "CollectSet", "ListAgg"),
        ("its elements stand in the order in which the rows came, which a shuffle does not fix", "collect and sort"),
    ),
    **dict.fromkeys(("MaxBy", "MinBy", "Mode"), ("of equals it keeps the one that came first", "break ties yourself")),
    **dict.fromkeys(
        ("ApproximatePercentile", "HistogramNumeric", "Percentile"),
        ("what it remembers depends on the order of the rows", "count in fixed classes"),
    ),
}
_LAST_BITS = (
    "sums of floating point numbers depend on the order of the rows in their last digits",
    "cast to decimal before summing",
)
_DOUBLES = {"StddevPop", "StddevSamp", "VariancePop", "VarianceSamp", "Skewness", "Kurtosis", "Corr"} | {
    "CovPopulation",
    "CovSample",
}
_ARBITRARY = ("of equals it keeps the row that comes first, which a shuffle does not fix", "aggregate with min_by")
_NODES: dict[str, tuple[Kind, str, str]] = {
    "Deduplicate": (Kind.ORDER, *_ARBITRARY),
    "DeduplicateWithinWatermark": (Kind.ORDER, *_ARBITRARY),
    "Sample": (Kind.RANDOM, "it draws rows anew in every run", "choose rows by a hash of their key"),
}
_IN_PYTHON = {"TransformWithState", "FlatMapGroups"}
_ARRIVAL = (
    "its function is given the rows of a key in no fixed order, and may remember that order, in a list state above all",
    "sort the rows in the function by columns that tell them apart",
)


def suspects_of(frame: DataFrame) -> list[Suspect]:
    """All that may come out otherwise in a query, those nearer to its sources first.

    Args:
        frame: the streaming DataFrame.
    """
    walk = _Walk()
    walk.node(frame._jdf.queryExecution().analyzed())
    return [replace(one, columns=frozenset(walk.columns.get(one, ()))) for one in walk.found]


@dataclass
class _Walk:
    """One walk through a plan."""

    found: dict[Suspect, None] = field(default_factory=dict)
    columns: dict[Suspect, set[str]] = field(default_factory=dict)
    _of: dict[int, set[Suspect]] = field(default_factory=dict)
    """What went into a column, by Spark's number of it."""
    _every: set[Suspect] = field(default_factory=set)
    """What any column of a row may be affected by: which row it is."""

    def node(self, plan: Any) -> None:
        for child in _each(plan.children()):
            self.node(child)
        name = str(plan.nodeName())
        if name in _NODES:
            kind, why, instead = _NODES[name]
            self._every.add(self._add(Suspect(name, f"operator {name}", why, instead, kind)))
        python = any(name.startswith(one) for one in _IN_PYTHON)
        if python:
            self._add(Suspect(f"the order of rows in {name}", f"operator {name}", *_ARRIVAL, Kind.ORDER))
        for expression in _each(plan.expressions()):
            went_in = self._expression(expression, name)
            if _class(expression) == "Alias":
                self._of[_number(expression)] = went_in
            elif name == "Aggregate" and _class(expression) != "AttributeReference":
                self._flow(went_in, {str(expression.sql())})
        if python:
            self._every |= set(self.found)

    def _expression(self, expression: Any, node: str, alias: str = "") -> set[Suspect]:
        """What is uncertain in an expression, or went into the columns that it reads."""
        kind = _class(expression)
        if kind == "AttributeReference":
            return self._of.get(_number(expression), set())
        if kind == "Alias":
            alias = str(expression.name())
        went_in: set[Suspect] = set()
        for child in _each(expression.children()):
            went_in = went_in | self._expression(child, node, alias)
        where = f"column {alias} of {node}" if alias else node
        went_in = went_in | {self._add(one) for one in self._own(expression, kind, where)}
        if kind == "AggregateExpression":
            function = expression.aggregateFunction()
            own = {self._add(one) for one in _order_of(function, where)}
            buffers = {str(one.name()) for one in _each(function.aggBufferAttributes())}
            self._flow(went_in | own | self._every, buffers)
            return went_in | own
        return went_in

    def _own(self, expression: Any, kind: str, where: str) -> Iterator[Suspect]:
        if kind in _EXPRESSIONS:
            way, why, instead = _EXPRESSIONS[kind]
            yield Suspect(_text(expression), where, why, instead, way)
        elif kind == "PythonUDF":
            function = _function_of(expression.func())
            if function is not None:
                yield from suspects_in(function, f"{_python_name(expression)} in {where}")
        elif not expression.children().size() and not expression.deterministic() and kind != "InputFileName":
            yield Suspect(_text(expression), where, "Spark takes it for uncertain", _RANDOM[1], Kind.RANDOM)

    def _add(self, suspect: Suspect) -> Suspect:
        self.found.setdefault(suspect)
        return suspect

    def _flow(self, suspects: set[Suspect], columns: set[str]) -> None:
        for one in suspects:
            self.columns.setdefault(one, set()).update(columns)


def _order_of(function: Any, where: str) -> Iterator[Suspect]:
    """Where the result of an aggregate function depends on the order of the rows."""
    kind = _class(function)
    why = _ORDERED.get(kind)
    if kind in _DOUBLES or (kind in ("Sum", "Average", "TrySum") and _floating(function)):
        why = _LAST_BITS
    if why is not None:
        yield Suspect(_text(function), where, *why, Kind.ORDER)


def _floating(function: Any) -> bool:
    return any(str(one.dataType().typeName()) in ("float", "double") for one in _each(function.children()))


def _function_of(python: Any) -> Any:
    """The function in a plan, as Python has it; None where Spark keeps it elsewhere."""
    from pyspark import cloudpickle

    told = python.command()
    unpickled = cloudpickle.loads(bytes(told.unsafeArray()))  # what this session itself pickled
    return unpickled[0] if isinstance(unpickled, tuple) else None


def _python_name(expression: Any) -> str:
    name = str(expression.name())
    return "the processor" if name.startswith("transformWithState") else name


def _each(sequence: Any) -> Iterator[Any]:
    for at in range(sequence.size()):
        yield sequence.apply(at)


def _class(expression: Any) -> str:
    return str(expression.getClass().getSimpleName())


def _number(expression: Any) -> int:
    return int(expression.exprId().id())


def _text(expression: Any) -> str:
    text = str(expression.sql())
    name, bracket, rest = text.partition("(")
    return f"{name}()" if bracket and rest.rstrip(")").lstrip("-").rstrip("L").isdigit() else text
