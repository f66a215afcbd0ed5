"""A shared variable as a store has it: what was declared, and its versions."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from streamstate.errors import InvalidArgumentError, UnknownVariableError
from streamstate.snapshots.checkpoint.bindings import SHARED
from streamstate.snapshots.store.declared_variables import DeclaredVariables
from streamstate.snapshots.store.duckdb_sql import quoted
from streamstate.state_inspect.analytics.columns import is_number
from streamstate.state_inspect.cell_text import cell
from streamstate.variables.declaration import Declaration
from streamstate.variables.recorded_versions import KEY, VALUE
from streamstate.widgets.number_text import amount

if TYPE_CHECKING:
    from streamstate.snapshots.store.entries import Entries
    from streamstate.state_inspect.captured_query import CapturedQuery

INIT, SET, MERGE = "init", "set", "merge"


@dataclass(frozen=True)
class RecordedVersion:
    """A version of a variable.

    Attributes:
        number: its number.
        kind: ``init``, ``set`` or ``merge``.
        by: who set it, or the id of the query.
        epoch: the epoch whose contributions it merges; None if it was set.
        contributions: from how many tasks these are.
        at: when it came about.
        value: its value; None also if it was not read.
    """

    number: int
    kind: str
    by: str
    epoch: int | None
    contributions: int
    at: datetime | None
    value: Any = None


class RecordedVariable:
    """Reads the newest versions of one variable from its store.

    Args:
        recorded: what the store holds of it, of ``store["shared.limit"]``.

    Raises:
        InvalidArgumentError: it is no variable.
        UnknownVariableError: the store does not have its declaration.
    """

    def __init__(self, recorded: CapturedQuery) -> None:
        kind, dot, self.name = recorded.name.partition(".")
        if not dot or kind != SHARED:
            raise InvalidArgumentError(
                f"{recorded.name} is a query.\nExpected a shared variable, such as store['shared.limit']."
            )
        self._recorded = recorded
        self._looked_at: Entries | None = None
        self._set_numbers: list[int] = []
        known = DeclaredVariables(recorded.layout).all()
        if self.name not in known:
            where = f"in {recorded.layout.root}"
            raise UnknownVariableError.among("shared variable", self.name, known, where=where)
        self.declaration = Declaration.from_text(known[self.name].declaration)

    @property
    def is_list(self) -> bool:
        """True if its value is a list to which items are appended."""
        return self.declaration.merge.startswith("append")

    @property
    def has_numbers(self) -> bool:
        """True if its values can be drawn."""
        arrow = self.declaration.type.arrow
        parts = [part.type for part in arrow] if pa.types.is_struct(arrow) else [arrow]
        return self.declaration.merge == "regression" or any(map(is_number, parts))

    def state(self) -> object:
        """Return a value that stays equal until there is a new version."""
        entries = self._recorded.entries()
        return (entries[0].epoch, entries[-1].epoch, entries.generation) if entries else None

    def newest(self, count: int) -> list[RecordedVersion]:
        """Return the newest versions, ascending; with their values if these can be drawn or listed."""
        found = list(self._versions(self._recorded.entries()[-count:]))
        if not found or not (self.is_list or self.has_numbers):
            return found
        known = self._values(found[0].number)
        return [replace(version, value=known.get(version.number)) for version in found]

    @property
    def recorded_up_to(self) -> int:
        """The newest version that the store has; −1 if it has none."""
        newest = self._recorded.entries().newest
        return -1 if newest is None else newest.epoch

    def newest_set(self, after: int, upto: int) -> int | None:
        """Return the newest version after one, up to another, that was set rather than merged; None if there is none.

        Only versions count that the store had at the last look, such as of :attr:`recorded_up_to`.
        """
        entries = self._recorded.known_entries
        if entries is not self._looked_at:
            made = zip(entries.epochs.tolist(), entries.values("run_id"), strict=True)
            self._looked_at = entries
            self._set_numbers = [number for number, by in made if (by or "").startswith(f"{SET} ")]
        at = bisect_right(self._set_numbers, upto)
        return self._set_numbers[at - 1] if at and self._set_numbers[at - 1] > after else None

    def text(self, number: int) -> str:
        """Format a version's value; of a map or a long list, its size."""
        if self.declaration.type.is_map:
            return amount(self._recorded.entry(number).rows or 0, "entry", "entries")
        last = None if number == self.recorded_up_to else number
        value = self._values(number, last).get(number)
        if self.is_list:
            return amount(len(value or ()), "item")
        whole = isinstance(value, int) and not isinstance(value, bool)
        return f"{value:,}" if whole else cell(_rounded(value)).text

    def map_entries(self, number: int, most: int) -> list[tuple[Any, Any]]:
        """Return some entries of a map at a version, sorted by key; empty for what is no map."""
        if not self.declaration.type.is_map:
            return []
        held = self._recorded.interval_table(VALUE, number)
        sql = f"SELECT * FROM ({held.at(number)}) ORDER BY {quoted(KEY)} LIMIT {most}"
        return [(row[KEY], row[VALUE]) for row in self._recorded.index.query(sql).to_pylist()]

    def _versions(self, entries: Sequence[Any]) -> Iterator[RecordedVersion]:
        for entry in entries:
            kind, _, by = (entry.run_id or "").partition(" ")
            epoch = json.loads(entry.offsets or "{}").get("epoch")
            yield RecordedVersion(entry.epoch, kind, by, epoch, entry.input_rows or 0, entry.committed_at)

    def _values(self, first: int, last: int | None = None) -> dict[int, Any]:
        """Return the values of some versions, by number; ``last`` is None for the newest."""
        held = self._recorded.interval_table(VALUE, first, last)
        sql = f"SELECT _valid_from AS number, {quoted(VALUE)} AS value FROM {held.relation} WHERE _valid_from >= ?"
        rows = self._recorded.index.query(sql, [first]).to_pylist()
        return {row["number"]: row["value"] for row in rows}


def _rounded(value: Any) -> Any:
    """Return a value whose parts are floating-point numbers, with as many digits as a cell shows of one."""
    if isinstance(value, dict):
        return {name: _rounded(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_rounded(part) for part in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value
