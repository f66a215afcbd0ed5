"""Translates recorded expressions of Spark to DuckDB's SQL, where the two mean exactly the same.

Whatever is not known to give the same value, bit for bit, is refused. Differences that are bridged: DuckDB divides by
zero to infinity, divides decimals as doubles, and rounds a double to an integer.

A record may come from a stranger. Some expressions contain their arguments several times, so that nesting multiplies
the SQL; an expression whose SQL becomes too long is refused before it is longer.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Any

from streamstate.snapshots.checkpoint.decoding.state_table_format import SparkType
from streamstate.snapshots.store.duckdb_sql import quoted
from streamstate.snapshots.store.query_plans.query_plan import TOO_LONG, Expression, reasons

StateColumn = Callable[[Expression], str]
"""Returns the SQL of a state column."""

_TYPES = {
    "long": "BIGINT",
    "integer": "INTEGER",
    "short": "SMALLINT",
    "byte": "TINYINT",
    "double": "DOUBLE",
    "float": "FLOAT",
    "string": "VARCHAR",
    "boolean": "BOOLEAN",
    "date": "DATE",
    "timestamp": "TIMESTAMPTZ",
    "timestamp_ntz": "TIMESTAMP",
}
_INTEGERS = ("byte", "short", "integer", "long")
_FLOATS = ("float", "double")
_COMPARES = {
    "EqualTo": "=",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
    "EqualNullSafe": "IS NOT DISTINCT FROM",
}
_JUNCTIONS = {"And": "AND", "Or": "OR"}
_OF_ONE = {"IsNull": "({} IS NULL)", "IsNotNull": "({} IS NOT NULL)", "Not": "(NOT {})"}
_ALWAYS: dict[str, SparkType] = {
    **dict.fromkeys([*_COMPARES, *_JUNCTIONS, *_OF_ONE], "boolean"),
    "Sqrt": "double",
    "IntegralDivide": "long",
}
_ARITHMETIC = {"Add": "+", "Subtract": "-", "Multiply": "*"}
# They change nothing but what Spark's optimizer knows, or the bits of NaN and -0.0 in a key.
_TRANSPARENT = ("KnownNotNull", "KnownNullable", "KnownFloatingPointNormalized", "UnresolvedAlias", "Alias")
_DECIMAL = re.compile(r"decimal\((\d{1,2}),(\d{1,2})\)")
_HANDLED = (
    *("Literal", "If", "CaseWhen", "Coalesce", "UnaryMinus", "Divide", "IntegralDivide"),
    *("DecimalDivideWithOverflowCheck", "Remainder", "Sqrt", "CheckOverflow", "CheckOverflowInSum", "Round", "Cast"),
    *("GetStructField", "CreateNamedStruct", "Concat"),
)
_LONGEST = 20_000
"""Characters of an expression's SQL; those of Spark's own statistics have at most 400."""
_LONGEST_TEXT = 500
"""Characters of a literal: each row of a result holds it."""
_MOST_DIGITS, _LEAST_SCALE = 38, 6
_WHOLE_DOUBLES = 2**53  # from here on a double has no fraction


class UntranslatableError(Exception):
    """An expression that may mean something else in DuckDB; its text says which part."""


def in_duckdb(tree: Expression, column: StateColumn, *, ansi: bool = True) -> tuple[str, SparkType]:
    """Return the expression as DuckDB's SQL, and its type.

    Args:
        tree: the expression.
        column: names the state columns.
        ansi: whether Spark refused what overflows; without it, integers wrap around, and their arithmetic is refused.

    Raises:
        UntranslatableError: part of it may mean something else in DuckDB, or is not recorded.
    """
    for why in reasons(tree):
        raise UntranslatableError(why)
    try:
        translator = _Translator(column, ansi=ansi)
        return translator.sql(tree), translator.type_of(tree)
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError, RecursionError):
        raise UntranslatableError("its record is damaged") from None


class _Translator:
    def __init__(self, column: StateColumn, *, ansi: bool) -> None:
        self._column = column
        self._ansi = ansi
        self._types: dict[int, SparkType] = {}

    def sql(self, tree: Expression) -> str:
        made = self._sql(tree)
        if len(made) > _LONGEST:
            raise UntranslatableError(TOO_LONG)
        return made

    def type_of(self, tree: Expression) -> SparkType:
        """Return the type of an expression, as Spark's schemas have it in JSON."""
        known = self._types.get(id(tree))
        if known is None:
            known = self._types[id(tree)] = self._type_of(tree)
        return known

    def _type_of(self, tree: Expression) -> SparkType:
        kind, of = str(tree["is"]), list(tree.get("of", ()))
        found: SparkType | None = tree.get("type") or _ALWAYS.get(kind)
        if found is None and kind == "GetStructField":
            found = _field(self.type_of(of[0]), tree["at"])["type"]
        if found is not None:
            return found
        if kind == "CreateNamedStruct":
            return {
                "type": "struct",
                "fields": [
                    {"name": _name_in(name), "type": self.type_of(value), "nullable": True, "metadata": {}}
                    for name, value in zip(of[::2], of[1::2], strict=True)
                ],
            }
        if kind in ("If", "CaseWhen"):
            return self.type_of(of[1])
        if kind in (*_ARITHMETIC, "Divide") and _digits(self.type_of(of[0])):
            return _decimal_result(kind, self._digits_of(of[0]), self._digits_of(of[1]))
        if not of:
            raise UntranslatableError(f"{_spelled(kind)} needs Spark")
        return self.type_of(of[0])

    def _digits_of(self, tree: Expression) -> tuple[int, int]:
        found = _digits(self.type_of(tree))
        if found is None:
            raise UntranslatableError("decimals with other types need Spark")
        return found

    def _sql(self, tree: Expression) -> str:
        kind = str(tree["is"])
        of = list(tree.get("of", ()))
        if kind == "State":
            return self._column(tree)
        if kind in _TRANSPARENT:
            return self.sql(of[0])
        if kind in _HANDLED:
            return str(getattr(self, f"_{kind.casefold()}")(tree, of))
        if kind in _OF_ONE:
            return _OF_ONE[kind].format(self.sql(of[0]))
        if kind in _COMPARES:
            self._comparable(of)
        if operator := _COMPARES.get(kind) or _JUNCTIONS.get(kind):
            return f"({self.sql(of[0])} {operator} {self.sql(of[1])})"
        if kind in _ARITHMETIC:
            return self._arithmetic(tree, of, _ARITHMETIC[kind])
        raise UntranslatableError(f"{_spelled(kind)} needs Spark")

    def _arithmetic(self, tree: Expression, of: list[Expression], operator: str) -> str:
        kind = self.type_of(tree)
        if kind in _FLOATS:
            return f"({self.sql(of[0])} {operator} {self.sql(of[1])})"
        if kind in _INTEGERS and self._ansi:
            # An overflow is an error in Spark, so that the query has not returned it; it is missing here.
            wide = f"{self.sql(of[0])}::HUGEINT {operator} {self.sql(of[1])}::HUGEINT"
            return f"TRY_CAST(({wide}) AS {_TYPES[str(kind)]})"
        digits = _digits(kind)
        if digits and sum(self._digits_of(each)[0] for each in of) <= _MOST_DIGITS and digits[0] < _MOST_DIGITS:
            return f"CAST({self.sql(of[0])} {operator} {self.sql(of[1])} AS {duckdb_type(kind)})"
        raise UntranslatableError(f"{tree['is'].lower()} of {kind} needs Spark")

    def _literal(self, tree: Expression, _of: list[Expression]) -> str:
        kind, value = tree["type"], tree["value"]
        if value is None:
            return "NULL" if kind == "void" else f"CAST(NULL AS {duckdb_type(kind)})"
        text = str(value)
        if len(text) > _LONGEST_TEXT or "\0" in text:
            raise UntranslatableError(f"a literal of {len(text):,} characters needs Spark")
        if kind == "string":
            return "'" + text.replace("'", "''") + "'"
        if kind == "boolean" and text in ("true", "false"):
            return text
        number = _number(text, kind)
        if number is None:
            raise UntranslatableError(f"a literal {named(kind)} needs Spark")
        return f"CAST('{number}' AS {duckdb_type(kind)})"

    def _if(self, tree: Expression, of: list[Expression]) -> str:
        when, then, otherwise = (self.sql(each) for each in of)
        return self._typed(tree, f"CASE WHEN {when} THEN {then} ELSE {otherwise} END")

    def _casewhen(self, tree: Expression, of: list[Expression]) -> str:
        parts = [self.sql(each) for each in of]
        whens = "".join(f" WHEN {a} THEN {b}" for a, b in zip(parts[::2], parts[1::2], strict=False))
        last = f" ELSE {parts[-1]}" if len(parts) % 2 else ""
        return self._typed(tree, f"CASE{whens}{last} END")

    def _coalesce(self, tree: Expression, of: list[Expression]) -> str:
        return self._typed(tree, f"coalesce({', '.join(self.sql(each) for each in of)})")

    def _typed(self, tree: Expression, sql: str) -> str:
        """Branches have one type in Spark; DuckDB would widen a decimal and a NULL to another."""
        kind = self.type_of(tree)
        return f"CAST({sql} AS {duckdb_type(kind)})" if _digits(kind) else sql

    def _unaryminus(self, tree: Expression, of: list[Expression]) -> str:
        if self.type_of(tree) in _FLOATS:
            return f"(-{self.sql(of[0])})"
        raise UntranslatableError("minus needs Spark")

    def _divide(self, tree: Expression, of: list[Expression]) -> str:
        if self.type_of(tree) in _FLOATS:
            return f"({self.sql(of[0])} / nullif({self.sql(of[1])}, 0))"
        return self._divided_decimals(of, self.type_of(tree))

    def _decimaldividewithoverflowcheck(self, tree: Expression, of: list[Expression]) -> str:
        return self._divided_decimals(of, tree["type"])

    def _divided_decimals(self, of: list[Expression], kind: SparkType) -> str:
        """Return a quotient of decimals, rounded half up: DuckDB would divide doubles."""
        (pa, sa), (pb, sb) = self._digits_of(of[0]), self._digits_of(of[1])
        p, s = _digits(kind) or (0, 0)
        up = s - sa + sb
        if up < 0 or pa + up > 36 or pb > 36 or p + s > 37 or not p:
            raise UntranslatableError("dividing wide decimals needs Spark")
        n, d = f"({_unscaled(self.sql(of[0]), sa)} * {10**up}::HUGEINT)", _unscaled(self.sql(of[1]), sb)
        whole = f"(2 * abs({n}) + abs({d})) // nullif(2 * abs({d}), 0) * sign({n}) * sign({d})"
        unit = f"CAST('{Decimal(1).scaleb(-s):f}' AS DECIMAL({s + 1},{s}))"
        return f"CAST(CAST({whole} AS DECIMAL({37 - s},0)) * {unit} AS DECIMAL({p},{s}))"

    def _integraldivide(self, _tree: Expression, of: list[Expression]) -> str:
        return self._whole(of, "//")

    def _remainder(self, _tree: Expression, of: list[Expression]) -> str:
        return self._whole(of, "%")

    def _whole(self, of: list[Expression], operator: str) -> str:
        if any(self.type_of(each) not in _INTEGERS for each in of):
            raise UntranslatableError("the remainder of fractions needs Spark")
        return f"({self.sql(of[0])} {operator} nullif({self.sql(of[1])}, 0))"

    def _sqrt(self, _tree: Expression, of: list[Expression]) -> str:
        inner = self.sql(of[0])
        return f"(CASE WHEN {inner} < 0 THEN CAST('NaN' AS DOUBLE) ELSE sqrt({inner}) END)"

    def _checkoverflow(self, tree: Expression, of: list[Expression]) -> str:
        return f"TRY_CAST({self.sql(of[0])} AS {duckdb_type(tree['type'])})"

    _checkoverflowinsum = _checkoverflow

    def _round(self, tree: Expression, of: list[Expression]) -> str:
        """Half up, of the shortest decimal number that a double is written as, as in Spark."""
        kind, scale = self.type_of(of[0]), of[1]
        places = int(scale["value"]) if scale["is"] == "Literal" and scale["value"] is not None else -1
        if kind != "double" or not 0 <= places <= 15:
            raise UntranslatableError(f"rounding of {kind} needs Spark")
        inner = self.sql(of[0])
        rounded = f"CAST(CAST(CAST(CAST({inner} AS VARCHAR) AS DECIMAL(38,{places})) AS VARCHAR) AS DOUBLE)"
        return f"(CASE WHEN abs({inner}) < {_WHOLE_DOUBLES} THEN {rounded} ELSE {inner} END)"

    def _cast(self, tree: Expression, of: list[Expression]) -> str:
        old, new = self.type_of(of[0]), tree["type"]
        inner = self.sql(of[0])
        if old == new:
            return inner
        whole, wide = old in _INTEGERS or old == "boolean", new in _INTEGERS
        if old in _INTEGERS and wide and _INTEGERS.index(str(new)) < _INTEGERS.index(str(old)):
            self._check_ansi(old, new)
            return f"TRY_CAST({inner} AS {duckdb_type(new)})"
        exact = (
            (whole and wide)
            or (old in _INTEGERS and (new in _FLOATS or new == "string"))
            or (old == "float" and new == "double")
            or (_digits(old) and new == "double")
        )
        if exact:
            return f"CAST({inner} AS {duckdb_type(new)})"
        if (old in _INTEGERS or _digits(old)) and _digits(new):
            return f"TRY_CAST({inner} AS {duckdb_type(new)})"
        if old == "double" and wide:
            self._check_ansi(old, new)
            return f"TRY_CAST(trunc({inner}) AS {duckdb_type(new)})"
        raise UntranslatableError(f"casting {old} to {new} needs Spark")

    def _check_ansi(self, old: SparkType, new: SparkType) -> None:
        """Without ANSI mode, what does not fit becomes another number."""
        if not self._ansi:
            raise UntranslatableError(f"casting {old} to {new} needs Spark")

    def _getstructfield(self, tree: Expression, of: list[Expression]) -> str:
        return f"({self.sql(of[0])}).{quoted(_field(self.type_of(of[0]), tree['at'])['name'])}"

    def _createnamedstruct(self, _tree: Expression, of: list[Expression]) -> str:
        names = [_name_in(name) for name in of[::2]]
        if len({name.casefold() for name in names}) < len(names):
            raise UntranslatableError("a struct with two fields of one name needs Spark")
        fields = (f"{quoted(name)} := {self.sql(value)}" for name, value in zip(names, of[1::2], strict=True))
        return f"struct_pack({', '.join(fields)})"

    def _concat(self, tree: Expression, of: list[Expression]) -> str:
        if self.type_of(tree) != "string":
            raise UntranslatableError("concat needs Spark")
        return f"({' || '.join(self.sql(each) for each in of)})"

    def _comparable(self, of: list[Expression]) -> None:
        for each in of:
            kind = self.type_of(each)
            if kind not in _TYPES and not _digits(kind):
                raise UntranslatableError(f"comparing {named(kind)} needs Spark")


def duckdb_type(kind: SparkType) -> str:
    """DuckDB's type with the same values."""
    digits = _digits(kind)
    if digits:
        return f"DECIMAL({digits[0]},{digits[1]})"
    if isinstance(kind, str) and kind in _TYPES:
        return _TYPES[kind]
    raise UntranslatableError(f"{named(kind)} needs Spark")


def _decimal_result(kind: str, a: tuple[int, int], b: tuple[int, int]) -> str:
    """Return the type of decimal arithmetic, by Spark's rules (``DecimalPrecision``)."""
    (p1, s1), (p2, s2) = a, b
    if kind == "Multiply":
        p, s = p1 + p2 + 1, s1 + s2
    elif kind == "Divide":
        s = max(_LEAST_SCALE, s1 + p2 + 1)
        p = p1 - s1 + s2 + s
    else:
        s = max(s1, s2)
        p = max(p1 - s1, p2 - s2) + s + 1
    if p > _MOST_DIGITS:
        p, s = _MOST_DIGITS, max(_MOST_DIGITS - (p - s), min(s, _LEAST_SCALE))
    return f"decimal({p},{s})"


def _digits(kind: SparkType) -> tuple[int, int] | None:
    found = _DECIMAL.fullmatch(kind) if isinstance(kind, str) else None
    return (int(found[1]), int(found[2])) if found else None


def _number(text: str, kind: SparkType) -> str | None:
    """Return a literal's number in digits; None if it is not a number of the type."""
    try:
        if kind in _FLOATS:
            return str(float(text))
        number = Decimal(text)
    except (ValueError, InvalidOperation):
        return None
    # Written out, an exponent of a billion would take a gigabyte.
    fits = (kind in _INTEGERS or _digits(kind)) and number.is_finite() and abs(number.adjusted()) <= _MOST_DIGITS
    return format(number, "f") if fits else None


def _unscaled(sql: str, scale: int) -> str:
    return f"CAST(replace(CAST({sql} AS VARCHAR), '.', '') AS HUGEINT)" if scale else f"CAST({sql} AS HUGEINT)"


def _field(kind: SparkType, at: int) -> dict[str, Any]:
    if isinstance(kind, str) or kind.get("type") != "struct":
        raise UntranslatableError("a field of a struct needs Spark")
    fields = kind["fields"]
    found: dict[str, Any] = fields[at]
    if [field["name"].casefold() for field in fields].count(found["name"].casefold()) > 1:
        raise UntranslatableError("a field whose name repeats needs Spark")
    return found


def _name_in(tree: Expression) -> str:
    """Return the name of a field of a struct that is made."""
    if tree["is"] != "Literal" or tree.get("type") != "string" or tree["value"] is None:
        raise UntranslatableError("a struct needs Spark")
    return str(tree["value"])


def named(kind: SparkType) -> str:
    """Return a type's name, for messages."""
    return kind if isinstance(kind, str) else str(kind.get("type"))


def _spelled(kind: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", kind).lower()
