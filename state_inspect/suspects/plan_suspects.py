"""Parts of a query's plan that may be nondeterministic, and the columns of the state that depend on them.

The analysed plan lives in the JVM and is walked there, from the sources up. Columns that depend on something
nondeterministic are remembered by their expression ids, so that the columns of an aggregate can be traced back to it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark import cloudpickle

from streamstate.state_inspect.suspects.python_suspects import suspects_in
from streamstate.state_inspect.suspects.suspect import Suspect, SuspectKind

_RANDOM = ("it returns another value in every run", "derive the value from the row, such as a hash of its key")
_EXPRESSIONS: dict[str, tuple[SuspectKind, str, str]] = {
    **dict.fromkeys(
        ("Rand", "Randn", "RandStr", "Uniform", "Shuffle"),
        (SuspectKind.RANDOM, "Spark gives it a new seed in every epoch, even if you set one", _RANDOM[1]),
    ),
    "Uuid": (SuspectKind.RANDOM, *_RANDOM),
    # Spark replaces the other clock functions by the epoch's own time, which is in its log, but not these.
    **dict.fromkeys(
        ("Now", "CurrentTime"),
        (SuspectKind.CLOCK, "it reads the clock of the machine, which is later in a replay", "use current_timestamp()"),
    ),
    "SparkPartitionID": (
        SuspectKind.PARTITION,
        "it is the number of a partition, and another run may have more partitions",
        "use a column of the row, or its hash",
    ),
    "MonotonicallyIncreasingID": (
        SuspectKind.PARTITION,
        "it counts the rows of each partition",
        "use a column that identifies the row",
    ),
    "CallMethodViaReflection": (
        SuspectKind.RANDOM,
        "Spark does not know what the method does",
        "write it as an expression",
    ),
}
_FIRST_ARRIVES = ("a shuffle does not fix the order of the rows of a key", "use min_by, max_by or min and max")
_ORDERED = {
    **dict.fromkeys(("First", "Last", "AnyValue"), _FIRST_ARRIVES),
    **dict.fromkeys(
        ("CollectList", "CollectSet", "ListAgg"),
        ("its elements are in the order in which the rows arrived, which a shuffle does not fix", "sort the elements"),
    ),
    **dict.fromkeys(
        ("MaxBy", "MinBy", "Mode"),
        ("of equal rows it keeps the one that arrives first", "break ties with another column"),
    ),
    **dict.fromkeys(
        ("ApproximatePercentile", "HistogramNumeric", "Percentile"),
        ("its buffer depends on the order of the rows", "count in fixed buckets"),
    ),
}
_LAST_BITS = (
    "the last digits of a floating-point sum depend on the order of the rows",
    "cast to decimal before summing",
)
_DOUBLES = {"StddevPop", "StddevSamp", "VariancePop", "VarianceSamp", "Skewness", "Kurtosis", "Corr"} | {
    "CovPopulation",
    "CovSample",
}
_ARBITRARY = (
    "of equal rows it keeps the one that arrives first, which a shuffle does not fix",
    "aggregate with min_by",
)
_NODES: dict[str, tuple[SuspectKind, str, str]] = {
    "Deduplicate": (SuspectKind.ORDER, *_ARBITRARY),
    "DeduplicateWithinWatermark": (SuspectKind.ORDER, *_ARBITRARY),
    "Sample": (SuspectKind.RANDOM, "it samples other rows in every run", "choose rows by a hash of their key"),
}
_IN_PYTHON = ("TransformWithState", "FlatMapGroups")
_ARRIVAL = (
    "its function receives the rows of a key in no fixed order, and may store that order, especially in list state",
    "sort the rows in the function by columns that identify them",
)


def suspects_of(analyzed: Any) -> list[Suspect]:
    """Return everything that may be nondeterministic in an analysed plan, starting at its sources."""
    walk = _PlanWalk()
    walk.node(analyzed)
    return [replace(suspect, columns=frozenset(walk.columns.get(suspect, ()))) for suspect in walk.found]


@dataclass
class _PlanWalk:
    """One walk through a plan."""

    found: dict[Suspect, None] = field(default_factory=dict)
    columns: dict[Suspect, set[str]] = field(default_factory=dict)
    _by_column: dict[int, set[Suspect]] = field(default_factory=dict)
    """The suspects that a column depends on, by its expression id."""
    _every: set[Suspect] = field(default_factory=set)
    """The suspects that every column depends on, because they determine which rows there are."""

    def node(self, plan: Any) -> None:
        for child in _elements(plan.children()):
            self.node(child)
        name = str(plan.nodeName())
        if name in _NODES:
            kind, why, instead = _NODES[name]
            self._every.add(self._add(Suspect(name, f"operator {name}", why, instead, kind)))
        python = name.startswith(_IN_PYTHON)
        if python:
            self._add(Suspect(f"the order of rows in {name}", f"operator {name}", *_ARRIVAL, SuspectKind.ORDER))
        for expression in _elements(plan.expressions()):
            went_in = self._expression(expression, name)
            if _class(expression) == "Alias":
                self._by_column[_number(expression)] = went_in
            elif name == "Aggregate" and _class(expression) != "AttributeReference":
                self._flow(went_in, {str(expression.sql())})
        if python:
            self._every |= set(self.found)

    def _expression(self, expression: Any, node: str, alias: str = "") -> set[Suspect]:
        """Return the suspects in an expression and in the columns that it reads."""
        kind = _class(expression)
        if kind == "AttributeReference":
            return self._by_column.get(_number(expression), set())
        if kind == "Alias":
            alias = str(expression.name())
        went_in: set[Suspect] = set()
        for child in _elements(expression.children()):
            went_in = went_in | self._expression(child, node, alias)
        where = f"column {alias} of {node}" if alias else node
        went_in = went_in | {self._add(suspect) for suspect in self._own(expression, kind, where)}
        if kind == "AggregateExpression":
            function = expression.aggregateFunction()
            own = {self._add(suspect) for suspect in _order_of(function, where)}
            buffers = {str(attribute.name()) for attribute in _elements(function.aggBufferAttributes())}
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
            yield Suspect(
                _text(expression), where, "Spark marks it as nondeterministic", _RANDOM[1], SuspectKind.RANDOM
            )

    def _add(self, suspect: Suspect) -> Suspect:
        self.found.setdefault(suspect)
        return suspect

    def _flow(self, suspects: set[Suspect], columns: set[str]) -> None:
        for suspect in suspects:
            self.columns.setdefault(suspect, set()).update(columns)


def _order_of(function: Any, where: str) -> Iterator[Suspect]:
    """Yield the suspect for an aggregate function whose result depends on the order of the rows."""
    kind = _class(function)
    why = _ORDERED.get(kind)
    if kind in _DOUBLES or (kind in ("Sum", "Average", "TrySum") and _floating(function)):
        why = _LAST_BITS
    if why is not None:
        yield Suspect(_text(function), where, *why, SuspectKind.ORDER)


def _floating(function: Any) -> bool:
    return any(str(child.dataType().typeName()) in ("float", "double") for child in _elements(function.children()))


def _function_of(python: Any) -> Any:
    """Return the Python function of a node in the plan; None if Spark keeps it elsewhere."""
    pickled = python.command()
    unpickled = cloudpickle.loads(bytes(pickled.unsafeArray()))  # pickled by this session itself
    return unpickled[0] if isinstance(unpickled, tuple) else None


def _python_name(expression: Any) -> str:
    name = str(expression.name())
    return "the processor" if name.startswith("transformWithState") else name


def _elements(sequence: Any) -> Iterator[Any]:
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
