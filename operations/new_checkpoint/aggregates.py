"""The buffers of an aggregation's state, by function, according to the plan of its query.

The state names a buffer after its function, and numbers those of one name: ``count``, ``count_2``. Names alone do not
say which function a buffer belongs to, or what it was computed from.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from streamstate.operations.new_checkpoint.target import TargetTable
    from streamstate.snapshots.store.query_plans.query_plan import StateInput

_MOMENTS = {"n": "0", "avg": "0", "m2": "0"}
_DECIMAL = {"sum": "0", "isEmpty": "TRUE"}
_BUFFERS: Mapping[str, tuple[Mapping[str, str], ...]] = {
    "avg": ({"sum": "0", "count": "0"},),
    "count": ({"count": "0"},),
    "sum": (_DECIMAL, {"sum": "NULL"}),
    "try_sum": (_DECIMAL,),
    "min": ({"min": "NULL"},),
    "max": ({"max": "NULL"},),
    "first": ({"first": "NULL", "valueSet": "FALSE"},),
    "last": ({"last": "NULL", "valueSet": "FALSE"},),
    **dict.fromkeys(("stddev_samp", "stddev_pop", "stddev", "var_samp", "var_pop", "variance"), (_MOMENTS,)),
}
"""Spark's names of the buffers of a function, and what it begins with."""
_NUMBERED = re.compile(r"(.+)_\d+")


@dataclass(frozen=True)
class Aggregates:
    """The functions of an aggregation."""

    columns: Mapping[str, tuple[str, ...]]
    """By the function's SQL over the sources' columns: its value columns."""
    initial: Mapping[str, str]
    """The initial value of each value column."""
    keys: Mapping[str, str]
    """The expression of each key column; empty if it is not known."""

    @classmethod
    def of(cls, table: TargetTable, said: StateInput | None) -> Aggregates | None:
        """Match the functions of a plan with the columns of a state table; None if they do not match."""
        if said is None or said.operator != "Aggregate":
            return None
        values = [name for name in table.types if name not in table.keys]
        columns, initial, at = dict[str, tuple[str, ...]](), dict[str, str](), 0
        for text in said.values:
            found = next(_buffers_at(values[at:], text), None)
            if found is None:
                return None
            columns[text], at = tuple(found), at + len(found)
            initial |= found
        if at < len(values):
            return None
        known = len(said.keys) == len(table.keys)
        return cls(columns, initial, dict(zip(table.keys, said.keys, strict=True)) if known else {})

    def from_before(self, before: Aggregates) -> tuple[dict[str, str], list[str]]:
        """Match the value columns with those of the aggregation before.

        Returns:
            For each of these columns the old one, and in sentences what they are computed from now.

        Raises:
            ValueError: a function is computed from something else, and nothing says which of the old ones it was.
        """
        pairs = {text: text for text in self.columns if self._fits(text, before, text)}
        could_be = {text: self._alike(text, before, pairs) for text in self.columns if text not in pairs}
        for text, olds in could_be.items():
            if len(olds) > 1 or any(olds == others for other, others in could_be.items() if olds and other != text):
                raise ValueError(f"nothing says whether {text} was {' or '.join(olds)}")
        changed = {text: olds[0] for text, olds in could_be.items() if olds}
        notes = [f"{self.columns[text][0]} was {old} and is {text}." for text, old in changed.items()]
        notes += [
            f"{name} was {before.keys[name]} and is {text}."
            for name, text in self.keys.items()
            if before.keys.get(name, text) != text
        ]
        both = [(self.columns[text], before.columns[old]) for text, old in (pairs | changed).items()]
        return {name: old for new, olds in both for name, old in zip(new, olds, strict=True)}, notes

    def _alike(self, text: str, before: Aggregates, pairs: Mapping[str, str]) -> list[str]:
        """Return the old functions that are of the same name and kind, and that no function still is."""
        left = (old for old in before.columns if old not in pairs and _function(old) == _function(text))
        return [old for old in left if self._fits(text, before, old)]

    def _fits(self, text: str, before: Aggregates, old: str) -> bool:
        """Check that a function's buffers are those of an old one."""
        return [*map(base_name, self.columns[text])] == [*map(base_name, before.columns.get(old, ()))]


def base_name(column: str) -> str:
    """Return a column's name without the number that tells it from others of the same name."""
    found = _NUMBERED.fullmatch(column)
    return found[1] if found else column


def _buffers_at(values: Sequence[str], text: str) -> Iterator[dict[str, str]]:
    """Yield the first columns, with their initial values, if they can be a function's buffers."""
    for buffers in _BUFFERS.get(_function(text), ()):
        columns = values[: len(buffers)]
        if [*map(base_name, columns)] == [*buffers]:
            yield dict(zip(columns, buffers.values(), strict=True))


def _function(text: str) -> str:
    return text.partition("(")[0].lower()
