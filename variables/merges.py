"""How contributions become one value: merge functions, which are associative, and but for two commutative.

A merge keeps a state, from which the value is computed: a mean is kept as a sum and a weight. What a task contributes
is a state too, so that states are all that is ever merged, in the order of epoch, operator and partition.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from streamstate.errors import InvalidArgumentError
from streamstate.variables.declared_types import DeclaredType, as_stored, random_value

_TRIALS = 100


@dataclass(frozen=True)
class Merge:
    """A merge function, of which this class is the simplest: the state is the value.

    Attributes:
        name: as it was declared.
        type: the variable's type.
        combine: merges two states, neither None.
    """

    name: str
    type: DeclaredType
    combine: Callable[[Any, Any], Any]

    @property
    def state(self) -> pa.DataType:
        """The type of the state."""
        return self.type.arrow

    def lifted(self, name: str, *given: Any) -> Any:
        """What ``add(…)`` or ``set(…)`` was given, as a state."""
        if len(given) != 1:
            raise InvalidArgumentError(f"Expected one value for {name}, not {len(given)}: it is a {self.type.text}.")
        return self.type.stored(given[0], name)

    def merged(self, state: Any, more: Any) -> Any:
        """Two states as one; either may be None, which is no state."""
        if state is None or more is None:
            return more if state is None else state
        return self.combine(state, more)

    def collected(self, collected: Any, name: str, *given: Any) -> Any:
        """What a task has collected so far, with one more contribution."""
        return self.merged(collected, self.lifted(name, *given))

    def finished(self, collected: Any) -> Any:
        """What a task has collected, as a state."""
        return collected

    def value(self, state: Any) -> Any:
        """The value that a state stands for."""
        return self.type.shown(state)


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


@dataclass(frozen=True)
class _Average(Merge):
    """A mean, with weights: ``add(x, weight)``."""

    @property
    def state(self) -> pa.DataType:
        return pa.struct([("sum", pa.float64()), ("weight", pa.float64())])

    def lifted(self, name: str, *given: Any) -> Any:
        value, weight = as_floats(name, *given, *([1.0] if len(given) == 1 else []), count=2)
        return {"sum": value * weight, "weight": weight}

    def value(self, state: Any) -> Any:
        return None if state is None or not state["weight"] else state["sum"] / state["weight"]


@dataclass(frozen=True)
class _Moments(Merge):
    """Number, mean and variance, merged as in Chan, Golub and LeVeque, "Updating Formulae…" (1979)."""

    @property
    def state(self) -> pa.DataType:
        return pa.struct([("n", pa.int64()), ("mean", pa.float64()), ("m2", pa.float64())])

    def lifted(self, name: str, *given: Any) -> Any:
        [value] = as_floats(name, *given, count=1)
        return {"n": 1, "mean": value, "m2": 0.0}

    def value(self, state: Any) -> Any:
        if state is None:
            return None
        return {"n": state["n"], "mean": state["mean"], "variance": state["m2"] / state["n"]}


def _moments(a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
    n, gap = a["n"] + b["n"], b["mean"] - a["mean"]
    mean = a["mean"] + gap * b["n"] / n
    return {"n": n, "mean": mean, "m2": a["m2"] + b["m2"] + gap * gap * a["n"] * b["n"] / n}


@dataclass(frozen=True)
class _Regression(Merge):
    """A linear least-squares model: ``add([x1, x2], y)``; the value is the intercept and the coefficients.

    The state is the two sums of the normal equations, which tasks compute in parallel: the summation form of Chu et
    al., "Map-Reduce for Machine Learning on Multicore" (2006).
    """

    @property
    def state(self) -> pa.DataType:
        return pa.struct([("xtx", pa.list_(pa.float64())), ("xty", pa.list_(pa.float64()))])

    def lifted(self, name: str, *given: Any) -> Any:
        if len(given) != 2 or not hasattr(given[0], "__iter__"):  # noqa: PLR2004 (features and target)
            raise InvalidArgumentError(f"{name} is a regression: call add([x1, x2, …], y).")
        [target] = as_floats(name, given[1], count=1)
        row = [1.0, *as_floats(name, *given[0])]
        return {"xtx": [a * b for a in row for b in row], "xty": [a * target for a in row]}

    def value(self, state: Any) -> Any:
        import numpy as np

        if state is None:
            return None
        size = len(state["xty"])
        solved = np.linalg.lstsq(np.array(state["xtx"]).reshape(size, size), np.array(state["xty"]), rcond=None)
        return [float(value) for value in solved[0]]


@dataclass(frozen=True)
class _Sketch(Merge):
    """A sketch of Apache DataSketches, in the format that Spark's ``hll_…`` and ``kll_…`` functions use."""

    @property
    def state(self) -> pa.DataType:
        return pa.binary()

    @property
    def _is_hll(self) -> bool:
        return self.name == "hll"

    def lifted(self, name: str, *given: Any) -> Any:
        return self.finished(self.collected(None, name, *given))

    def collected(self, collected: Any, name: str, *given: Any) -> Any:
        sketches = datasketches()
        if len(given) != 1 or given[0] is None:
            raise InvalidArgumentError(f"{name} is a sketch: call add(x) with a number or, in HLL, a string.")
        if collected is None:
            collected = sketches.hll_sketch(12) if self._is_hll else sketches.kll_doubles_sketch(200)
        if self._is_hll:
            item = given[0]
            collected.update(item if isinstance(item, (int, float, str)) else str(item))
        else:
            collected.update(as_floats(name, *given, count=1)[0])
        return collected

    def finished(self, collected: Any) -> Any:
        if collected is None:
            return None
        return bytes(collected.serialize_compact() if self._is_hll else collected.serialize())

    def value(self, state: Any) -> Any:
        if state is None:
            return None
        sketches = datasketches()
        if self._is_hll:
            return sketches.hll_sketch.deserialize(state).get_estimate()
        sketch = sketches.kll_doubles_sketch.deserialize(state)
        quantiles = sketch.get_quantiles([0.5, 0.9, 0.99])
        return {"n": sketch.n, "min": sketch.get_min_value(), "max": sketch.get_max_value()} | dict(
            zip(("p50", "p90", "p99"), map(float, quantiles), strict=True)
        )


def _hll(a: bytes, b: bytes) -> bytes:
    sketches = datasketches()
    union = sketches.hll_union(12)
    for data in (a, b):
        union.update(sketches.hll_sketch.deserialize(data))
    return bytes(union.get_result().serialize_compact())


def _kll(a: bytes, b: bytes) -> bytes:
    sketches = datasketches()
    merged = sketches.kll_doubles_sketch.deserialize(a)
    merged.merge(sketches.kll_doubles_sketch.deserialize(b))
    return bytes(merged.serialize())


def datasketches() -> Any:
    """The package of Apache DataSketches.

    Raises:
        MissingDependencyError: it is not installed.
    """
    from streamstate.errors import require_extra

    require_extra("variables")
    import datasketches as package

    return package


def as_floats(name: str, *given: Any, count: int | None = None) -> list[float]:
    """Numbers as floats.

    Raises:
        InvalidArgumentError: they are not numbers, or not as many as expected.
    """
    found = [as_stored(value, pa.float64(), f"{name} takes numbers") for value in given]
    if (count is not None and len(found) != count) or any(value is None for value in found):
        raise InvalidArgumentError(f"{name} takes {count} numbers, not {len(given)} values: {given!r}.")
    return found


def _last(_a: Any, b: Any) -> Any:
    return b


def _min(a: Any, b: Any) -> Any:
    """The smaller one; nothing is smaller than what is there."""
    return b if a is None else a if b is None else min(a, b)


def _max(a: Any, b: Any) -> Any:
    """The larger one; nothing is larger than what is there."""
    return b if a is None else a if b is None else max(a, b)


def _sum(a: Any, b: Any) -> Any:
    """Numbers, or the elements of lists and the fields of structs one by one; what is missing adds nothing."""
    if a is None or b is None:
        return b if a is None else a
    if isinstance(a, dict):
        return {key: _sum(a[key], b[key]) for key in a}
    if isinstance(a, list):
        if len(a) != len(b):
            raise InvalidArgumentError(f"Lists of {len(a)} and {len(b)} elements cannot be added up.")
        return [_sum(x, y) for x, y in zip(a, b, strict=True)]
    return a + b


_SIMPLE: dict[str, Callable[[Any, Any], Any]] = {"last": _last, "sum": _sum, "min": _min, "max": _max}
_OTHER: dict[str, tuple[type[Merge], Callable[[Any, Any], Any], str]] = {
    "average": (_Average, _sum, "double"),
    "moments": (_Moments, _moments, "struct<n: bigint, mean: double, variance: double>"),
    "regression": (_Regression, _sum, "list<double>"),
    "hll": (_Sketch, _hll, "double"),
    "kll": (
        _Sketch,
        _kll,
        "struct<n: bigint, min: double, max: double, p50: double, p90: double, p99: double>",
    ),
}
NAMES = (*_SIMPLE, "union", "append", "append(N)", *_OTHER)
"""How merges are spelled."""


def merge_of(given: Any, type_: DeclaredType, name: str) -> Merge:
    """The merge for a name, or for a function of two values of the type.

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
        from streamstate.variables.declared_types import declared_type

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
    """A function of the user's as a merge, tried with values of the type."""
    random_, arrow = random.Random(0), type_.arrow
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
        if not same(ab, ba):
            raise InvalidArgumentError(
                f"The merge of {name} is not commutative: merge({a!r}, {b!r}) is {ab!r}, the other way round {ba!r}.\n"
                "Contributions arrive in no particular order."
            )
        if not same(left, right):
            raise InvalidArgumentError(
                f"The merge of {name} is not associative: for {a!r}, {b!r} and {c!r} it makes {left!r} or {right!r}.\n"
                "Contributions are merged in groups of any size."
            )
    return Merge(f"custom:{getattr(function, '__name__', 'merge')}", type_, function)


def same(a: Any, b: Any) -> bool:
    """Whether two values are equal, floating-point numbers but for rounding."""
    if isinstance(a, float) and isinstance(b, float):
        return a == b or abs(a - b) <= 1e-9 * max(abs(a), abs(b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(a == b)
