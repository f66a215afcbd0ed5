"""The level of a query's shedding: which share of the rows each interval of values keeps."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from streamstate.errors import InvalidArgumentError
from streamstate.snapshots.checkpoint.bindings import LEVEL

ALL = 10_000
"""The share that keeps every row: shares are in 1/10000."""
MOST = 5
"""The most intervals of a level."""
TYPE = "struct<bounds: array<double>, keep: array<int>, base: int>"
"""The type of the variable."""
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,57}")


def level_variable(query: str) -> str:
    """Return the name of the shared variable that holds the level of a query's shedding.

    Args:
        query: the query's name. One that is no variable's name, because it is long or has other characters than
            letters, digits and ``_``, is shortened and gets a digest.

    Example:
        >>> from streamstate.shedding import level_variable
        >>> level_variable("delays")
        'delays_shed'
    """
    if _NAME.fullmatch(query):
        return query + LEVEL
    plain = re.sub(r"[^A-Za-z0-9_]", "_", query)[:40]
    return f"q_{plain}_{hashlib.sha256(query.encode()).hexdigest()[:8]}{LEVEL}"


def is_level(variable: str) -> bool:
    """Return whether a shared variable of this name holds a level of shedding."""
    return variable.endswith(LEVEL)


@dataclass(frozen=True)
class Level:
    """A level: intervals of values, and the share of the rows that each keeps.

    Attributes:
        bounds: where one interval ends and the next begins, ascending. A value that is equal to a bound belongs to
            the interval above it.
        keep: the share of each interval, in 1/10000; one more than ``bounds``.
        base: the share of rows without a value, which is null or not a number, and of all rows if the query sheds
            without a column of values.
    """

    bounds: tuple[float, ...] = ()
    keep: tuple[int, ...] = (ALL,)
    base: int = ALL

    @classmethod
    def of(cls, value: Any) -> Level:
        """Return the level that a value of the variable describes.

        Raises:
            InvalidArgumentError: it describes none.
        """
        problem = _problem(value)
        if problem:
            raise InvalidArgumentError(
                f"Invalid level of shedding {value!r}: {problem}.\nA level has ascending bounds, at most {MOST}"
                f" intervals, and shares from 0 to {ALL}, one for each interval and one for rows without a value, such"
                " as {'bounds': [60.0], 'keep': [2500, 10000], 'base': 2500}. level_for makes one."
            )
        return cls(tuple(map(float, value["bounds"])), tuple(value["keep"]), value["base"])

    def value(self) -> dict[str, Any]:
        """Return the value of the variable."""
        return {"bounds": list(self.bounds), "keep": list(self.keep), "base": self.base}

    def interval(self, value: float | None) -> int:
        """Return the number of a value's interval, from 1; 0 for null and not a number."""
        if value is None or math.isnan(value):
            return 0
        return 1 + sum(value >= bound for bound in self.bounds)

    def share(self, value: float | None) -> int:
        """Return the share of the rows with a value that is kept, in 1/10000."""
        interval = self.interval(value)
        return self.keep[interval - 1] if interval else self.base


def _problem(value: Any) -> str:
    """Return what is wrong with a value of the variable; empty if nothing is."""
    if not isinstance(value, Mapping) or value.keys() != {"bounds", "keep", "base"}:
        return "it does not have the fields bounds, keep and base"
    bounds, keep = value["bounds"], value["keep"]
    if not isinstance(bounds, Sequence) or not isinstance(keep, Sequence):
        return "bounds and keep are not lists"
    if len(keep) != len(bounds) + 1 or len(keep) > MOST:
        return f"{len(bounds)} bounds and {len(keep)} shares"
    if not all(is_number(bound) for bound in bounds) or any(a >= b for a, b in pairwise(bounds)):
        return "the bounds are not ascending numbers"
    shares = [*keep, value["base"]]
    if not all(isinstance(share, int) and not isinstance(share, bool) and 0 <= share <= ALL for share in shares):
        return "not all shares are whole numbers in the range"
    return ""


def is_number(value: Any) -> bool:
    """Return whether a value is a number, which not-a-number is not."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and not math.isnan(value)
