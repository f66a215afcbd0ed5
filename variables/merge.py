"""A merge: what becomes of contributions to a shared variable.

A merge keeps a state, from which the value is computed: a mean is kept as a sum and a weight. What a task contributes
is a state too, so that states are all that is ever merged, in the order of epoch, operator and partition.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from streamstate.errors import InvalidArgumentError
from streamstate.variables.declared_types import DeclaredType, as_stored


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
        """Return the arguments of ``add(…)`` or ``set(…)`` as a state."""
        if len(given) != 1:
            raise InvalidArgumentError(f"Expected one value for {name}, not {len(given)}: it is a {self.type.text}.")
        return self.type.stored(given[0], name)

    def merged(self, state: Any, more: Any) -> Any:
        """Return two states as one; either may be None, which is no state."""
        if state is None or more is None:
            return more if state is None else state
        return self.combine(state, more)

    def collected(self, collected: Any, name: str, *given: Any) -> Any:
        """Return a task's contributions with one more."""
        return self.merged(collected, self.lifted(name, *given))

    def finished(self, collected: Any) -> Any:
        """Return a task's contributions as a state."""
        return collected

    def value(self, state: Any) -> Any:
        """Return the value of a state."""
        return self.type.shown(state)


def added(a: Any, b: Any) -> Any:
    """Add numbers, elements of lists or fields of structs; a missing value adds nothing."""
    if a is None or b is None:
        return b if a is None else a
    if isinstance(a, dict):
        return {key: added(a[key], b[key]) for key in a}
    if isinstance(a, list):
        if len(a) != len(b):
            raise InvalidArgumentError(f"Lists of {len(a)} and {len(b)} elements cannot be added up.")
        return [added(x, y) for x, y in zip(a, b, strict=True)]
    return a + b


def as_floats(name: str, *given: Any, count: int | None = None) -> list[float]:
    """Numbers as floats.

    Raises:
        InvalidArgumentError: they are not numbers, or not as many as expected.
    """
    found = [as_stored(value, pa.float64(), f"{name} takes numbers") for value in given]
    if (count is not None and len(found) != count) or any(value is None for value in found):
        raise InvalidArgumentError(f"{name} takes {count} numbers, not {len(given)} values: {given!r}.")
    return found
