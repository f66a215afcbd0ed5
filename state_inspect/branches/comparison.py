"""Two branches, epoch by epoch: whether they are the same, and where they part first."""

from __future__ import annotations

import html
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pandas as pd

from streamstate.snapshots.errors import UnknownEpochError, choices
from streamstate.state_inspect.branches.common import shared_table
from streamstate.state_inspect.branches.difference import difference
from streamstate.state_inspect.branches.sweep import Swept, sweep
from streamstate.state_inspect.differences.diff_sql import ADDED, CHANGED, REMOVED

if TYPE_CHECKING:
    from streamstate.state_inspect.branches.timelines import Timelines
    from streamstate.state_inspect.differences.diff import Diff
    from streamstate.state_inspect.recorded import Recorded

__all__ = ["Comparison", "Divergence"]

_KINDS = {CHANGED: "differing", REMOVED: "only here", ADDED: "only there"}
_COUNTS = ["differing", "only_here", "only_there"]
_SHOWN = 20


@dataclass(frozen=True)
class Divergence:
    """The first key in which two branches differ."""

    epoch: int
    table: str
    key: dict[str, Any]
    """The key columns with their values."""
    kind: str
    """``differing``, ``only here`` or ``only there``."""
    columns: dict[str, tuple[Any, Any]]
    """The value columns that differ, each with its value here and there; all of them where only one has the key."""

    def __str__(self) -> str:
        """In one line."""
        key = ", ".join(f"{name}={value!r}" for name, value in self.key.items())
        where = f"epoch {self.epoch}, {self.table}, {key}"
        if self.kind != "differing":
            return f"{where}: {self.kind}"
        return f"{where}: {', '.join(f'{name} {a!r} here, {b!r} there' for name, (a, b) in self.columns.items())}"


class Comparison:
    """Two histories side by side; :meth:`History.compare` gives it. ``here`` is the one that was asked.

    What was captured when it was made is what it tells. The epochs of each table are compared at once by the hashes of
    its rows (see :meth:`History.fingerprints`); single keys are looked at when they are asked for.
    """

    def __init__(self, lines: Timelines) -> None:
        self._lines = lines
        self._swept: dict[str, Swept] = {table: sweep(lines, table) for table in lines.tables}
        self.queries = lines.names
        """What the two are called."""
        self.tables = list(lines.tables)
        """The state tables that were compared."""
        columns = [f"{table}.{one}" for table, swept in self._swept.items() for one in swept.columns.left_out]
        self.left_out = (*lines.left_out, *columns)
        """Tables and columns that only one of them has, or that have another type: they are not compared."""

    def epochs(self) -> pd.DataFrame:
        """One row per epoch and state table, ascending.

        Columns: ``epoch``, ``table``, ``rows`` and ``other_rows`` (here and there), ``differing`` (keys that both have,
        with other values), ``only_here``, ``only_there``, ``fingerprint`` and ``other_fingerprint`` (of the
        columns that both have). Where a branch has no such table at an epoch, it has no rows there and no fingerprint.

        Example:
            >>> comparison.epochs()[["epoch", "differing", "only_here", "only_there"]]  # doctest: +SKIP
        """
        columns = ["epoch", "table", "rows", "other_rows", *_COUNTS, "fingerprint", "other_fingerprint"]
        rows = []
        for epoch in self._lines.epochs:
            for table, swept in self._swept.items():
                here, there = swept.here.get(epoch), swept.there.get(epoch)
                if here is None and there is None:
                    continue
                counts = swept.counts[epoch]
                told = [0 if one is None else one.rows for one in (here, there)]
                hashes = [None if one is None else str(one) for one in (here, there)]
                rows.append([epoch, table, *told, counts.differing, counts.only_here, counts.only_there, *hashes])
        return pd.DataFrame(rows, columns=columns)

    @property
    def histories(self) -> tuple[Recorded, Recorded]:
        """The two: here and there.

        Example:
            >>> [history.name for history in comparison.histories]  # doctest: +SKIP
            ['delays', 'what_if']
        """
        newest = self._lines.epochs[-1]
        return self._lines.here[newest].history, self._lines.there[newest].history

    @property
    def same(self) -> bool:
        """Whether both hold the same rows at every epoch, and the same tables and columns.

        Example:
            >>> history.compare(replay).same  # doctest: +SKIP
            True
        """
        return self._first_place is None and not self.left_out

    @cached_property
    def first(self) -> Divergence | None:
        """The first key that differs, at the first epoch at which one does; None where none does.

        Example:
            >>> comparison.first.epoch, comparison.first.key  # doctest: +SKIP
            (43, {'carrier': 'UA'})
        """
        if self._first_place is None:
            return None
        epoch, table = self._first_place
        diff = self.diff(epoch, table)
        row = next(diff.page(limit=1).astype(object).itertuples(index=False))
        keys, values = len(diff.key_columns), list(diff.value_columns.items())
        kind, at, columns = _KINDS[row[0]], 1 + keys, {}
        for name, moves in values:
            columns[name] = (_plain(row[at]), _plain(row[at + 1]))
            at += 3 if moves else 2
        if kind == "differing":
            columns = {name: pair for name, pair in columns.items() if repr(pair[0]) != repr(pair[1])}
        key = {name: _plain(row[1 + at]) for at, name in enumerate(diff.key_columns)}
        return Divergence(epoch, table, key, kind, columns)

    def diff(self, epoch: int, table: str | None = None) -> Diff:
        """What differs at an epoch: from here to there, so that what is only there counts as added.

        Args:
            epoch: one of those that were compared.
            table: may be left out where there is one.

        Raises:
            UnknownEpochError, UnknownTableError, InvalidArgumentError: where an argument cannot be meant.

        Example:
            >>> comparison.diff(43).movers("count", n=3)  # doctest: +SKIP
        """
        if epoch not in self._lines.here:
            raise UnknownEpochError(
                f"Epoch {epoch} was not compared.\nThose that were: {choices(map(str, self._lines.epochs))}."
            )
        chosen = shared_table(table, self.tables, self.tables, self.queries)
        here, there = self._lines.here[epoch], self._lines.there[epoch]
        return difference(here, there, chosen, asked=here.history)

    def keys(self, epoch: int, table: str | None = None, *, offset: int = 0, limit: int = 100) -> pd.DataFrame:
        """The keys that differ at an epoch, in their order.

        Columns: ``_kind`` (``differing``, ``only here``, ``only there``), the key columns, then for each value column
        ``<column>_here`` and ``<column>_there``.

        Args:
            epoch: one of those that were compared.
            table: may be left out where there is one.
            offset: rows to pass over.
            limit: rows to give at most.

        Raises:
            UnknownEpochError, UnknownTableError, InvalidArgumentError: where an argument cannot be meant.

        Example:
            >>> comparison.keys(43, limit=5)  # doctest: +SKIP
        """
        diff = self.diff(epoch, table)
        page = diff.page(offset, limit)
        places, names = [*range(1 + len(diff.key_columns))], ["_kind", *diff.key_columns]
        at = len(places)
        for name, moves in diff.value_columns.items():
            places += [at, at + 1]
            names += [f"{name}_here", f"{name}_there"]
            at += 3 if moves else 2
        found = page.iloc[:, places].set_axis(names, axis="columns")
        return found.assign(_kind=found["_kind"].map(_KINDS).astype(object))

    @cached_property
    def _first_place(self) -> tuple[int, str] | None:
        places = ((epoch, table) for epoch in self._lines.epochs for table in self.tables)
        return next((one for one in places if self._swept[one[1]].counts[one[0]].total), None)

    def _told(self) -> list[str]:
        """The comparison in a few lines."""
        epochs = self._lines.epochs
        span = f"epochs {epochs[0]} to {epochs[-1]}" if len(epochs) > 1 else f"epoch {epochs[0]}"
        tables = f"table{'s' * (len(self.tables) > 1)} {choices(self.tables)}"
        lines = [f"Comparison of {self.queries[0]} with {self.queries[1]}: {span}, {tables}"]
        if self.first is None:
            lines.append(f"No key differs at any of {len(epochs):,} epoch{'s' * (len(epochs) > 1)}.")
        else:
            differ = sum(any(one.counts[epoch].total for one in self._swept.values()) for epoch in epochs)
            lines.append(f"First different: {self.first}.")
            lines.append(f"{differ:,} of {len(epochs):,} epoch{'s' * (len(epochs) > 1)} differ{'s' * (differ == 1)}.")
        if self.left_out:
            lines.append(f"Not compared: {', '.join(self.left_out)}.")
        return lines

    def __repr__(self) -> str:
        title, *rest = self._told()
        return "\n".join([f"<{title}>", *rest])

    def _repr_html_(self) -> str:
        title, *rest = (html.escape(line) for line in self._told())
        frame = self.epochs()
        odd = frame[frame[_COUNTS].sum(axis="columns") > 0]
        shown = odd.head(_SHOWN).drop(columns=["fingerprint", "other_fingerprint"])
        parts = [f"<p><strong>{title}</strong></p>", *(f"<p>{line}</p>" for line in rest)]
        if len(shown):
            numbers = {name: shown[name].map("{:,}".format) for name in ("rows", "other_rows", *_COUNTS)}
            parts.append(str(shown.assign(**numbers).to_html(index=False)))
        if len(odd) > len(shown):
            parts.append(f"<p>The first {len(shown)} of {len(odd):,} rows that differ; epochs() has them all.</p>")
        return "".join(parts)


def _plain(value: Any) -> Any:
    """A cell as Python has it, None where it is missing."""
    if isinstance(value, (Mapping, list, tuple)) or hasattr(value, "__len__"):
        return value.tolist() if hasattr(value, "tolist") else value
    return None if pd.isna(value) and not isinstance(value, float) else getattr(value, "item", lambda: value)()
