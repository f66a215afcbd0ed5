"""The merges by name, and functions of the user's as merges.

All are associative; all but ``last`` and ``append``, which depend on the order, are commutative.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from streamstate.errors import InvalidArgumentError
from streamstate.variables.declared_types import DeclaredType, as_stored, declared_type, random_value
from streamstate.variables.merge import Merge, added
from streamstate.variables.model_merges import Average, Moments, Regression, Sketch, hll, kll, moments

_TRIALS = 100


@dataclass(frozen=True)
class _PerKey(Merge):
    """A merge of maps: values of the same key are merged."""

    entry: Callable[[Any, Any], Any] = max

    def merged(self, state: Any, more: Any) -> Any:
        if state is None or more is None:
            return more if state is None else state
        found = dict(state)
        for key, value in more.items():
            found[key] = self.entry(found[key], value) if key in found else value
        return found

    def collected(self, collected: Any, name: str, *given: Any) -> Any:
        more = self.lifted(name, *given)
        if collected is None:
            return dict(more or {})
        for key, value in (more or {}).items():
            collected[key] = self.entry(collected[key], value) if key in collected else value
        return collected


@dataclass(frozen=True)
class _Append(Merge):
    """A list of the newest items that were added."""

    most: int = 1000

    def lifted(self, name: str, *given: Any) -> Any:
        [item] = given if len(given) == 1 else [None]
        return [as_stored(item, self.type.arrow.value_type, f"{name} is a {self.type.text}")]

    def merged(self, state: Any, more: Any) -> Any:
        return [*(state or ()), *(more or ())][-self.most :]


@dataclass(frozen=True)
class _Union(Merge):
    """A set to which elements are added."""

    def lifted(self, name: str, *given: Any) -> Any:
        [item] = given if len(given) == 1 else [None]
        items = list(item) if isinstance(item, (list, tuple, set, frozenset)) else [item]
        return list(dict.fromkeys(self.type.stored(items, name)))


def _united(a: list[Any], b: list[Any]) -> list[Any]:
    return list(dict.fromkeys([*a, *b]))


def _last(_a: Any, b: Any) -> Any:
    return b


def _min(a: Any, b: Any) -> Any:
    """Return the smaller value; a missing one does not count."""
    return b if a is None else a if b is None else min(a, b)


def _max(a: Any, b: Any) -> Any:
    """Return the larger value; a missing one does not count."""
    return b if a is None else a if b is None else max(a, b)


_SIMPLE: dict[str, Callable[[Any, Any], Any]] = {"last": _last, "sum": added, "min": _min, "max": _max}
_OTHER: dict[str, tuple[type[Merge], Callable[[Any, Any], Any], str]] = {
    "average": (Average, added, "double"),
    "moments": (Moments, moments, "struct<n: bigint, mean: double, variance: double>"),
    "regression": (Regression, added, "list<double>"),
    "hll": (Sketch, hll, "double"),
    "kll": (
        Sketch,
        kll,
        "struct<n: bigint, min: double, max: double, p50: double, p90: double, p99: double>",
    ),
}
NAMES = (*_SIMPLE, "union", "append", "append(N)", *_OTHER)
"""Spellings of merges."""


def merge_of(given: Any, type_: DeclaredType, name: str) -> Merge:
    """Return the merge for a name, or for a function of two values of the type.

    Raises:
        InvalidArgumentError: there is none, it does not fit the type, or it is not associative and commutative.
    """
    if callable(given):
        return _checked(given, type_, name)
    bounded = re.fullmatch(r"append(?:\((\d+)\))?", given) if isinstance(given, str) else None
    is_list = pa.types.is_list(type_.arrow) and not type_.is_set
    if bounded is not None and int(bounded[1] or 1):
        _require(is_list, given, type_, "list<string>")
        most = int(bounded[1] or 1000)
        return _Append(f"append({most})", type_, _united, most)
    if given == "union":
        _require(type_.is_set, given, type_, "set<string>")
        return _Union("union", type_, _united)
    if given in _OTHER:
        kind, combine, of = _OTHER[given]
        _require(type_.text == declared_type(of).text, given, type_, of)
        return kind(given, type_, combine)
    if given not in _SIMPLE:
        raise InvalidArgumentError(
            f"Invalid merge {given!r} of {name}.\nMerges: {', '.join(NAMES)}, or a function of two values."
        )
    if given == "sum":
        _require(_adds(type_.arrow.item_type if type_.is_map else type_.arrow), given, type_, "bigint")
    if given in ("min", "max"):
        _require(not pa.types.is_nested(type_.arrow.item_type if type_.is_map else type_.arrow), given, type_, "double")
    if type_.is_map:
        return _PerKey(given, type_, _last, _SIMPLE[given])
    return Merge(given, type_, _SIMPLE[given])


def _adds(arrow: pa.DataType) -> bool:
    if pa.types.is_struct(arrow):
        return all(_adds(field.type) for field in arrow)
    if pa.types.is_list(arrow):
        return _adds(arrow.value_type)
    return bool(pa.types.is_integer(arrow) or pa.types.is_floating(arrow) or pa.types.is_decimal(arrow))


def _require(fits: bool, merge: str, type_: DeclaredType, example: str) -> None:  # noqa: FBT001 (a condition)
    if not fits:
        raise InvalidArgumentError(
            f"The merge {merge!r} does not fit the type {type_.text}.\nIt needs a type such as {example}."
        )


def _checked(function: Callable[[Any, Any], Any], type_: DeclaredType, name: str) -> Merge:
    """Return a function of the user's as a merge, tried with values of the type."""
    random_, arrow = random.Random(0), type_.arrow  # noqa: S311 (values to try)
    what = f"the merge of {name} must return a {type_.text}"
    for _ in range(_TRIALS):
        a, b, c = (random_value(arrow, random_) for _ in range(3))
        try:
            ab, ba = (as_stored(function(*pair), arrow, what) for pair in ((a, b), (b, a)))
            left = as_stored(function(ab, c), arrow, what)
            right = as_stored(function(a, as_stored(function(b, c), arrow, what)), arrow, what)
        except InvalidArgumentError:
            raise
        except Exception as error:
            raise InvalidArgumentError(f"The merge of {name} fails for {a!r} and {b!r}: {error!r}.") from error
        if ab is None or left is None:
            raise InvalidArgumentError(f"Invalid result None of merge({a!r}, {b!r}): {what}.")
        if not equal_values(ab, ba):
            raise InvalidArgumentError(
                f"The merge of {name} is not commutative: merge({a!r}, {b!r}) is {ab!r}, the other way round {ba!r}.\n"
                "Contributions arrive in no particular order."
            )
        if not equal_values(left, right):
            raise InvalidArgumentError(
                f"The merge of {name} is not associative: for {a!r}, {b!r} and {c!r} it makes {left!r} or {right!r}.\n"
                "Contributions are merged in groups of any size."
            )
    return Merge(f"custom:{getattr(function, '__name__', 'merge')}", type_, function)


def equal_values(a: Any, b: Any) -> bool:
    """Return whether two values are equal, up to rounding of floating-point numbers."""
    if isinstance(a, float) and isinstance(b, float):
        return a == b or abs(a - b) <= 1e-9 * max(abs(a), abs(b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(equal_values(a[key], b[key]) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(equal_values, a, b))
    return bool(a == b)
