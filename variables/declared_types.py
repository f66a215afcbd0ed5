"""The types of shared variables, as Spark's DDL spells them, and values of them."""

from __future__ import annotations

import datetime
import decimal
import random
import re
import string
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from streamstate.errors import InvalidArgumentError

_SIMPLE: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_LONGEST = 10_000
_SPELLED = "double, bigint, string, struct<n: bigint, mean: double>, list<string>, set<string>, map<string, double>"


@dataclass(frozen=True)
class DeclaredType:
    """The type of a variable's value.

    Attributes:
        text: as Spark's DDL spells it; ``set<…>`` and ``list<…>`` are arrays.
        arrow: what values are stored as.
        is_set: whether it is a set, whose elements are distinct and in no order.
    """

    text: str
    arrow: pa.DataType
    is_set: bool = False

    @property
    def is_map(self) -> bool:
        """True for a map, of which a version stores only what changed."""
        return bool(pa.types.is_map(self.arrow))

    def stored(self, value: Any, name: str) -> Any:
        """Return a value in the form in which it is stored: plain Python, sets as lists.

        Raises:
            InvalidArgumentError: it is not of this type.
        """
        return as_stored(value, self.arrow, f"{name} is a {self.text}")

    def shown(self, stored: Any) -> Any:
        """Return a stored value as ``get()`` returns it."""
        return frozenset(stored) if self.is_set and stored is not None else stored


def as_stored(value: Any, arrow: pa.DataType, what: str) -> Any:
    """Return a value as an Arrow type holds it, as plain Python.

    Raises:
        InvalidArgumentError: it is not of the type; ``what`` says which it should be.
    """
    if value is None:
        return None
    if isinstance(value, bool) != pa.types.is_boolean(arrow) and not pa.types.is_nested(arrow):
        raise _not_a(value, what)
    try:
        return pa.scalar(_plain(value, arrow), arrow).as_py(maps_as_pydicts="strict")
    except (pa.ArrowException, TypeError, ValueError, OverflowError, KeyError) as error:
        raise _not_a(value, what) from error


def _not_a(value: Any, what: str) -> InvalidArgumentError:
    shown = repr(value)
    shown = shown if len(shown) <= 80 else f"{shown[:77]}…"
    return InvalidArgumentError(f"Invalid value {shown} of type {type(value).__name__}: {what}.")


def _plain(value: Any, arrow: pa.DataType) -> Any:
    """Sets as lists at any depth, which is what Arrow takes, and an error for what Arrow would leave out or guess."""
    if isinstance(value, (set, frozenset)):
        value = list(value)
    if isinstance(value, datetime.datetime) and pa.types.is_timestamp(arrow):
        if (value.tzinfo is None) != (arrow.tz is None):
            raise ValueError("a timestamp has a zone, a timestamp_ntz has none")
    elif pa.types.is_struct(arrow) and isinstance(value, Mapping):
        if unknown := value.keys() - {field.name for field in arrow}:
            raise KeyError(*unknown)
        return {field.name: _plain(value.get(field.name), field.type) for field in arrow}
    elif pa.types.is_list(arrow) and isinstance(value, list):
        return [_plain(item, arrow.value_type) for item in value] if _is_open(arrow.value_type) else value
    elif pa.types.is_map(arrow) and isinstance(value, Mapping):
        if _is_open(arrow.item_type):
            return [(key, _plain(item, arrow.item_type)) for key, item in value.items()]
    elif (pa.types.is_integer(arrow) and isinstance(value, float)) or (
        pa.types.is_nested(arrow) and isinstance(value, (str, bytes))
    ):
        raise TypeError("it would be cut, or taken apart")
    return value


def _is_open(arrow: pa.DataType) -> bool:
    """Return whether values of a type must be checked before Arrow takes them."""
    return bool(pa.types.is_nested(arrow) or pa.types.is_timestamp(arrow) or pa.types.is_integer(arrow))


def declared_type(given: Any) -> DeclaredType:
    """Return the type for a text such as ``double`` or ``map<string, bigint>``, or for a type of PySpark.

    Raises:
        InvalidArgumentError: it is not one, or holds a type that variables cannot have.
    """
    text = given if isinstance(given, str) else getattr(given, "simpleString", lambda: None)()
    if not isinstance(text, str) or not text.strip():
        raise InvalidArgumentError(f"Invalid type {given!r}.\nExpected a type such as {_SPELLED}.")
    text = text.strip()
    if len(text) > _LONGEST:
        raise InvalidArgumentError(f"A type has at most {_LONGEST:,} characters, not {len(text):,}.")
    if outer := re.fullmatch(r"(?i)(set|list)\s*<(.*)>", text, re.DOTALL):
        element, is_set = _parsed(outer[2]), outer[1].lower() == "set"
        return DeclaredType(f"{outer[1].lower()}<{element[0]}>", pa.list_(element[1]), is_set)
    spelled, arrow = _parsed(text)
    return DeclaredType(spelled, arrow)


def _parsed(text: str) -> tuple[str, pa.DataType]:
    from sqlglot import exp
    from sqlglot.errors import SqlglotError

    try:
        tree = exp.DataType.build(text, dialect="spark")
        return tree.sql(dialect="spark").lower(), _arrow(tree)
    except (SqlglotError, KeyError, ValueError, TypeError, IndexError, AttributeError, RecursionError) as error:
        raise InvalidArgumentError(f"Invalid type {text!r}.\nExpected a type such as {_SPELLED}.") from error


def _arrow(tree: Any) -> pa.DataType:
    from sqlglot import exp

    kind = tree.this.name
    if kind in ("ARRAY", "LIST"):
        return pa.list_(_arrow(tree.expressions[0]))
    if kind == "MAP":
        key, value = tree.expressions
        return pa.map_(_arrow(key), _arrow(value))
    if kind == "STRUCT":
        fields = [(field.name, _arrow(field.args["kind"])) for field in tree.expressions]
        if len({name.casefold() for name, _ in fields}) < len(fields) or not fields:
            raise ValueError(kind)
        return pa.struct(fields)
    if kind == "DECIMAL":
        sizes = [int(size.name) for size in tree.find_all(exp.DataTypeParam)]
        return pa.decimal128(*(sizes or [10, 0]))
    return _SIMPLE[tree.sql(dialect="spark").lower()]


def random_value(arrow: pa.DataType, random_: random.Random) -> Any:
    """Return a random value of a type; numbers are small integers, so that floating-point sums are exact."""
    whole = random_.randint(-100, 100)
    types = pa.types
    if types.is_list(arrow):
        return [random_value(arrow.value_type, random_) for _ in range(random_.randint(0, 3))]
    if types.is_struct(arrow):
        return {field.name: random_value(field.type, random_) for field in arrow}
    if types.is_map(arrow):
        keys = [random_value(arrow.key_type, random_) for _ in range(random_.randint(0, 3))]
        return {key: random_value(arrow.item_type, random_) for key in keys}
    text = "".join(random_.choices(string.ascii_lowercase, k=random_.randint(0, 3)))
    made: Mapping[bool, Any] = {
        types.is_boolean(arrow): whole > 0,
        types.is_integer(arrow): whole,
        types.is_floating(arrow): float(whole),
        types.is_decimal(arrow): decimal.Decimal(whole % 10),
        types.is_string(arrow): text,
        types.is_binary(arrow): text.encode(),
        types.is_date(arrow): datetime.date(2024, 1, 1) + datetime.timedelta(days=whole),
        types.is_timestamp(arrow): datetime.datetime(
            2024, 1, 1, tzinfo=datetime.UTC if getattr(arrow, "tz", None) else None
        )
        + datetime.timedelta(minutes=whole),
    }
    return made[True]
