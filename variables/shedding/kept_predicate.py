"""The predicate of the rows that shedding keeps, such as ``delay > 60``, as intervals of one column's values."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

from streamstate.errors import InvalidSQLError

_EXPECTED = (
    "Expected comparisons of one column with numbers, such as 'delay > 60', 'delay < -10 OR delay >= 60',"
    " 'delay BETWEEN 5 AND 10' or 'code IN (1, 2)'."
)


@dataclass(frozen=True)
class KeptPredicate:
    """A predicate over the values of one column.

    Attributes:
        text: as it was given.
        column: the column's name.
        cuts: where its truth may change, ascending: a value that is equal to a cut is above it.
    """

    text: str
    column: str
    cuts: tuple[float, ...]
    _tree: Any

    def holds(self, value: float) -> bool:
        """Return whether it is true of a value, which is a number."""
        return _true(self._tree, value)


def kept_predicate(text: str) -> KeptPredicate:
    """Parse a predicate.

    Raises:
        InvalidSQLError: it is none, or more than comparisons of one column with numbers.
    """
    import sqlglot
    from sqlglot import exp
    from sqlglot.errors import SqlglotError

    if not isinstance(text, str):
        raise InvalidSQLError(f"Invalid predicate {text!r}.\n{_EXPECTED}")
    try:
        tree = sqlglot.parse_one(text, read="spark")
    except SqlglotError as error:
        raise InvalidSQLError(f"Invalid predicate {text!r}: it is not SQL.\n{_EXPECTED}") from error
    cuts: set[float] = set()
    _check(tree, text, cuts)
    columns = {column.sql(dialect="spark").casefold(): column for column in tree.find_all(exp.Column)}
    if len(columns) != 1:
        _refuse(text, f"it compares {len(columns)} columns")
    name = ".".join(part.name for part in next(iter(columns.values())).parts)
    return KeptPredicate(text, name, tuple(sorted(cuts)), tree)


def _refuse(text: str, why: str) -> NoReturn:
    raise InvalidSQLError(f"Invalid predicate {text!r}: {why}.\n{_EXPECTED}")


def _check(node: Any, text: str, cuts: set[float]) -> None:
    """Check a part of the predicate, and collect where its truth may change."""
    from sqlglot import exp

    if isinstance(node, (exp.And, exp.Or, exp.Paren, exp.Not)):
        for part in filter(None, (node.this, node.args.get("expression"))):
            _check(part, text, cuts)
        return
    for number in _numbers(node, text):
        # A value is above the first cut if it is at least the number, and above the second if it is greater.
        cuts.update((number, math.nextafter(number, math.inf)))


def _numbers(node: Any, text: str) -> list[float]:
    """Return the numbers that a comparison compares its column with."""
    from sqlglot import exp

    if isinstance(node, exp.Between) and not node.args.get("symmetric"):
        column, others = node.this, [node.args["low"], node.args["high"]]
    elif isinstance(node, exp.In) and node.expressions:
        column, others = node.this, node.expressions
    elif type(node) in _compared():
        column, others = node.this, [node.expression]
        if isinstance(others[0], exp.Column):
            column, others = others[0], [column]
    else:
        _refuse(text, f"{node.sql(dialect='spark')} is no such comparison")
    if not isinstance(column, exp.Column):
        _refuse(text, f"{node.sql(dialect='spark')} does not compare a column")
    return [_number(other, text) for other in others]


def _number(node: Any, text: str) -> float:
    """Return the number that a literal spells."""
    from sqlglot import exp

    plain = node.this if isinstance(node, exp.Neg) else node
    if not isinstance(plain, exp.Literal) or plain.is_string:
        _refuse(text, f"{node.sql(dialect='spark')} is not a number")
    try:
        number = float(plain.name)
        exact = not plain.name.isdigit() or int(plain.name) == number
    except (ValueError, OverflowError):
        _refuse(text, f"{plain.name} is not a number")
    if not exact or math.isinf(number):
        _refuse(text, f"{plain.name} is no double-precision number")
    return -number if isinstance(node, exp.Neg) else number


def _compared() -> dict[Any, Callable[[float, float], bool]]:
    """Return the comparisons, and what they are with the column at their left."""
    from sqlglot import exp

    return {
        exp.GT: lambda value, number: value > number,
        exp.GTE: lambda value, number: value >= number,
        exp.LT: lambda value, number: value < number,
        exp.LTE: lambda value, number: value <= number,
        exp.EQ: lambda value, number: value == number,
        exp.NEQ: lambda value, number: value != number,
    }


def _true(node: Any, value: float) -> bool:
    """Return whether a part of the predicate is true of a value."""
    from sqlglot import exp

    if isinstance(node, (exp.Paren, exp.Not)):
        return _true(node.this, value) != isinstance(node, exp.Not)
    if isinstance(node, (exp.And, exp.Or)):
        parts = (_true(part, value) for part in (node.this, node.expression))
        return all(parts) if isinstance(node, exp.And) else any(parts)
    return _compares(node, value)


def _compares(node: Any, value: float) -> bool:
    """Return whether a comparison is true of a value."""
    from sqlglot import exp

    if isinstance(node, exp.Between):
        return _number(node.args["low"], "") <= value <= _number(node.args["high"], "")
    if isinstance(node, exp.In):
        return any(value == _number(number, "") for number in node.expressions)
    compare = _compared()[type(node)]
    if isinstance(node.this, exp.Column):
        return compare(value, _number(node.expression, ""))
    return compare(_number(node.this, ""), value)
