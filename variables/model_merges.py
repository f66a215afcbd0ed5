"""Merges whose state is not the value, for collective models: averages, moments, linear models and sketches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from streamstate.errors import InvalidArgumentError
from streamstate.variables.merge import Merge, as_floats
from streamstate.variables.sketch_bytes import LG_K, K, checked


@dataclass(frozen=True)
class Average(Merge):
    """A mean, with weights: ``add(x, weight)``."""

    @property
    def state(self) -> pa.DataType:
        """The type of the state."""
        return pa.struct([("sum", pa.float64()), ("weight", pa.float64())])

    def lifted(self, name: str, *given: Any) -> Any:
        """Return the arguments as a state."""
        value, weight = as_floats(name, *given, *([1.0] if len(given) == 1 else []), count=2)
        return {"sum": value * weight, "weight": weight}

    def value(self, state: Any) -> Any:
        """Return the value of a state."""
        return None if state is None or not state["weight"] else state["sum"] / state["weight"]


@dataclass(frozen=True)
class Moments(Merge):
    """Number, mean and variance, merged as in Chan, Golub and LeVeque, "Updating Formulae…" (1979)."""

    @property
    def state(self) -> pa.DataType:
        """The type of the state."""
        return pa.struct([("n", pa.int64()), ("mean", pa.float64()), ("m2", pa.float64())])

    def lifted(self, name: str, *given: Any) -> Any:
        """Return the arguments as a state."""
        [value] = as_floats(name, *given, count=1)
        return {"n": 1, "mean": value, "m2": 0.0}

    def value(self, state: Any) -> Any:
        """Return the value of a state."""
        if state is None:
            return None
        return {"n": state["n"], "mean": state["mean"], "variance": state["m2"] / state["n"]}


def moments(a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
    """Return two states of :class:`Moments` as one."""
    n, gap = a["n"] + b["n"], b["mean"] - a["mean"]
    mean = a["mean"] + gap * b["n"] / n
    return {"n": n, "mean": mean, "m2": a["m2"] + b["m2"] + gap * gap * a["n"] * b["n"] / n}


@dataclass(frozen=True)
class Regression(Merge):
    """A linear least-squares model: ``add([x1, x2], y)``; the value is the intercept and the coefficients.

    The state is the two sums of the normal equations, which tasks compute in parallel: the summation form of Chu et
    al., "Map-Reduce for Machine Learning on Multicore" (2006).
    """

    @property
    def state(self) -> pa.DataType:
        """The type of the state."""
        return pa.struct([("xtx", pa.list_(pa.float64())), ("xty", pa.list_(pa.float64()))])

    def lifted(self, name: str, *given: Any) -> Any:
        """Return the arguments as a state."""
        if len(given) != 2 or not hasattr(given[0], "__iter__"):
            raise InvalidArgumentError(f"{name} is a regression: call add([x1, x2, …], y).")
        [target] = as_floats(name, given[1], count=1)
        row = [1.0, *as_floats(name, *given[0])]
        return {"xtx": [a * b for a in row for b in row], "xty": [a * target for a in row]}

    def value(self, state: Any) -> Any:
        """Return the value of a state."""
        import numpy as np

        if state is None:
            return None
        size = len(state["xty"])
        solved = np.linalg.lstsq(np.array(state["xtx"]).reshape(size, size), np.array(state["xty"]), rcond=None)
        return [float(value) for value in solved[0]]


@dataclass(frozen=True)
class Sketch(Merge):
    """A sketch of Apache DataSketches, in the format that Spark's ``hll_…`` and ``kll_…`` functions use."""

    @property
    def state(self) -> pa.DataType:
        """The type of the state."""
        return pa.binary()

    @property
    def _is_hll(self) -> bool:
        return self.name == "hll"

    def lifted(self, name: str, *given: Any) -> Any:
        """Return the arguments as a state."""
        return self.finished(self.collected(None, name, *given))

    def collected(self, collected: Any, name: str, *given: Any) -> Any:
        """Return a sketch, with one more item."""
        sketches = datasketches()
        if len(given) != 1 or given[0] is None:
            raise InvalidArgumentError(f"{name} is a sketch: call add(x) with a number or, in HLL, a string.")
        if collected is None:
            collected = sketches.hll_sketch(LG_K) if self._is_hll else sketches.kll_doubles_sketch(K)
        if self._is_hll:
            item = given[0]
            collected.update(item if isinstance(item, (int, float, str)) else str(item))
        else:
            collected.update(as_floats(name, *given, count=1)[0])
        return collected

    def finished(self, collected: Any) -> Any:
        """Return a sketch as bytes."""
        if collected is None:
            return None
        return bytes(collected.serialize_compact() if self._is_hll else collected.serialize())

    def value(self, state: Any) -> Any:
        """Return the value of a state."""
        if state is None:
            return None
        if self._is_hll:
            return _hll_sketch(state).get_estimate()
        sketch = _kll_sketch(state)
        quantiles = sketch.get_quantiles([0.5, 0.9, 0.99])
        return {"n": sketch.n, "min": sketch.get_min_value(), "max": sketch.get_max_value()} | dict(
            zip(("p50", "p90", "p99"), map(float, quantiles), strict=True)
        )


def hll(a: bytes, b: bytes) -> bytes:
    """Return two HyperLogLog sketches as one."""
    sketches = datasketches()
    union = sketches.hll_union(LG_K)
    for data in (a, b):
        union.update(_hll_sketch(data))
    return bytes(union.get_result(sketches.tgt_hll_type.HLL_8).serialize_compact())


def kll(a: bytes, b: bytes) -> bytes:
    """Return two KLL sketches as one."""
    merged = _kll_sketch(a)
    merged.merge(_kll_sketch(b))
    return bytes(merged.serialize())


def _hll_sketch(data: bytes) -> Any:
    return datasketches().hll_sketch.deserialize(checked(data, is_hll=True))


def _kll_sketch(data: bytes) -> Any:
    return datasketches().kll_doubles_sketch.deserialize(checked(data, is_hll=False))


def datasketches() -> Any:
    """Return the package of Apache DataSketches.

    Raises:
        MissingDependencyError: it is not installed.
    """
    from streamstate.errors import require_extra

    require_extra("variables")
    import datasketches as package

    return package
