"""Two branches compared epoch by epoch: whether they are the same, and where they first diverge."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd
import pyarrow as pa

from streamstate.errors import UnknownEpochError, choices
from streamstate.snapshots.calls.html import Html, joined, paragraphs, tag
from streamstate.state_inspect.branches.branch_diff import branch_diff, common_table
from streamstate.state_inspect.branches.compared_epochs import KINDS, ComparedEpochs, ComparedTable, compare_table
from streamstate.state_inspect.captured_query import QueryHistory
from streamstate.state_inspect.differences.diff import Diff
from streamstate.state_inspect.differences.diff_sql import ADDED, CHANGED, REMOVED
from streamstate.state_inspect.frames import to_pandas
from streamstate.state_inspect.keys.key_text import arguments, in_python
from streamstate.state_inspect.python_rows import row_tuples

_NAMED = {CHANGED: "differing", REMOVED: "only here", ADDED: "only there"}
_SHOWN = 20


@dataclass(frozen=True)
class BranchDivergence:
    """The first key in which two branches differ."""

    epoch: int
    table: str
    key: dict[str, Any]
    """The key columns with their values."""
    kind: str
    """``differing``, ``only here`` or ``only there``."""
    columns: dict[str, tuple[Any, Any]]
    """The value columns that differ, each with its values here and there; all columns if only one has the key."""

    def __str__(self) -> str:
        """Return the divergence in one line."""
        where = f"epoch {self.epoch}, {self.table}, {arguments(self.key)}"
        if self.kind != "differing":
            return f"{where}: {self.kind}"
        values = (f"{name} {in_python(a)} here, {in_python(b)} there" for name, (a, b) in self.columns.items())
        return f"{where}: {', '.join(values)}"


class Comparison:
    """Two histories side by side; :meth:`History.compare` returns it. ``here`` is the history it was called on.

    It covers the epochs captured when it was created. All epochs of a table are compared at once by the hashes of its
    rows (see :meth:`History.fingerprints`); the differing keys are read when needed.
    """

    def __init__(self, compared: ComparedEpochs) -> None:
        self._compared = compared
        self._by_table: dict[str, ComparedTable] = {table: compare_table(compared, table) for table in compared.tables}
        self.queries = compared.names
        """The names of the two."""
        self.tables = list(compared.tables)
        """The state tables that were compared."""
        columns = [f"{table}.{column}" for table, of in self._by_table.items() for column in of.columns.left_out]
        self.left_out = (*compared.left_out, *columns)
        """Tables and columns that are not compared, because one lacks them or has them with another type."""

    def epochs(self) -> pd.DataFrame:
        """Return one row per epoch and state table, ascending.

        Columns: ``epoch``, ``table``, ``rows`` and ``other_rows`` (here and there), ``differing`` (keys that both have
        with different values), ``only_here``, ``only_there``, ``fingerprint`` and ``other_fingerprint`` (of the
        columns that both have). A branch without the table at an epoch has 0 rows and no fingerprint.

        Example:
            >>> comparison.epochs()[["epoch", "differing", "only_here", "only_there"]].head(2)
               epoch  differing  only_here  only_there
            0     40          1          0           0
            1     41          1          0           0
        """
        columns = ["epoch", "table", "rows", "other_rows", *KINDS, "fingerprint", "other_fingerprint"]
        rows = []
        for epoch in self._compared.epochs:
            for name, table in self._by_table.items():
                sides = table.here.get(epoch), table.there.get(epoch)
                if sides == (None, None):
                    continue
                sizes = [0 if side is None else side.rows for side in sides]
                hashes = [None if side is None else str(side) for side in sides]
                rows.append([epoch, name, *sizes, *table.counts[epoch], *hashes])
        return pd.DataFrame(rows, columns=columns)

    @property
    def histories(self) -> tuple[QueryHistory, QueryHistory]:
        """The two histories, here and there.

        Example:
            >>> [history.name for history in comparison.histories]
            ['delays', 'what_if']
        """
        newest = self._compared.epochs[-1]
        return self._compared.here[newest].history, self._compared.there[newest].history

    @property
    def same(self) -> bool:
        """True if both have the same tables and columns, and the same rows at every epoch.

        Example:
            >>> history.compare(ss.open_store("elsewhere")["delays"]).same  # a copy of the store
            True
        """
        return self._first_place is None and not self.left_out

    @cached_property
    def first(self) -> BranchDivergence | None:
        """The first differing key at the first epoch at which keys differ; None if no key differs.

        Example:
            >>> comparison.first.epoch, comparison.first.key
            (40, {'carrier': 'HA', 'origin': 'JFK'})
        """
        if self._first_place is None:
            return None
        epoch, table = self._first_place
        diff = self.diff(epoch, table)
        [row] = row_tuples(diff.page_arrow(limit=1))
        kind = _NAMED[row[0]]
        columns = {name: (row[at], row[at + 1]) for name, at in _value_places(diff)}
        if kind == "differing":
            columns = {name: pair for name, pair in columns.items() if repr(pair[0]) != repr(pair[1])}
        key = {name: row[1 + at] for at, name in enumerate(diff.key_columns)}
        return BranchDivergence(epoch, table, key, kind, columns)

    def diff(self, epoch: int, table: str | None = None) -> Diff:
        """Compare an epoch from here to there: keys that are only there count as added.

        Args:
            epoch: one of the compared epochs.
            table: may be left out if there is only one.

        Raises:
            UnknownEpochError, UnknownTableError, InvalidArgumentError: an argument is invalid.

        Example:
            >>> comparison.diff(43).movers("max", n=3)[["carrier", "max_old", "max_new"]]
              carrier  max_old  max_new
            0      HA   1301.0     43.0
        """
        if epoch not in self._compared.here:
            raise UnknownEpochError(
                f"Epoch {epoch} was not compared.\nCompared epochs: {choices(map(str, self._compared.epochs))}."
            )
        chosen = common_table(table, self.tables, self.tables, self.queries)
        here, there = self._compared.here[epoch], self._compared.there[epoch]
        return branch_diff(here, there, chosen, history=here.history)

    def keys(self, epoch: int, table: str | None = None, *, offset: int = 0, limit: int = 100) -> pd.DataFrame:
        """Return the keys that differ at an epoch, sorted by key.

        Columns: ``_kind`` (``differing``, ``only here``, ``only there``), the key columns, then for each value column
        ``<column>_here`` and ``<column>_there``.

        Args:
            epoch: one of the compared epochs.
            table: may be left out if there is only one.
            offset: the number of rows to skip.
            limit: the maximum number of rows to return.

        Raises:
            UnknownEpochError, UnknownTableError, InvalidArgumentError: an argument is invalid.

        Example:
            >>> comparison.keys(43)[["_kind", "carrier", "max_here", "max_there"]]
                   _kind carrier  max_here  max_there
            0  differing      HA    1301.0       43.0
        """
        return to_pandas(self.keys_arrow(epoch, table, offset=offset, limit=limit))

    def keys_arrow(self, epoch: int, table: str | None = None, *, offset: int = 0, limit: int = 100) -> pa.Table:
        """As :meth:`keys`, as an Arrow table."""
        diff = self.diff(epoch, table)
        page = diff.page_arrow(offset, limit)
        places, names = [*range(1 + len(diff.key_columns))], ["_kind", *diff.key_columns]
        for name, at in _value_places(diff):
            places += [at, at + 1]
            names += [f"{name}_here", f"{name}_there"]
        kinds = pa.array([_NAMED[change] for change in page["_change"].to_pylist()], pa.string())
        return page.select(places).rename_columns(names).set_column(0, "_kind", kinds)

    @cached_property
    def _first_place(self) -> tuple[int, str] | None:
        places = ((epoch, table) for epoch in self._compared.epochs for table in self.tables)
        return next(((epoch, name) for epoch, name in places if any(self._by_table[name].counts[epoch])), None)

    def _summary(self) -> list[str]:
        """Return the comparison in a few lines."""
        epochs = self._compared.epochs
        span = f"epochs {epochs[0]} to {epochs[-1]}" if len(epochs) > 1 else f"epoch {epochs[0]}"
        tables = f"table{'s' * (len(self.tables) > 1)} {choices(self.tables)}"
        lines = [f"Comparison of {self.queries[0]} with {self.queries[1]}: {span}, {tables}"]
        if self.first is None:
            lines.append(f"No key differs at any of {len(epochs):,} epoch{'s' * (len(epochs) > 1)}.")
        else:
            differ = sum(any(any(table.counts[epoch]) for table in self._by_table.values()) for epoch in epochs)
            lines.append(f"First different: {self.first}.")
            lines.append(f"{differ:,} of {len(epochs):,} epoch{'s' * (len(epochs) > 1)} differ{'s' * (differ == 1)}.")
        if self.left_out:
            lines.append(f"Not compared: {', '.join(self.left_out)}.")
        return lines

    def __repr__(self) -> str:
        title, *rest = self._summary()
        return "\n".join([f"<{title}>", *rest])

    def _repr_html_(self) -> str:
        title, *rest = self._summary()
        frame = self.epochs()
        differing = frame[frame[[*KINDS]].sum(axis="columns") > 0]
        shown = differing.head(_SHOWN).drop(columns=["fingerprint", "other_fingerprint"])
        parts = [paragraphs([tag("strong", title), *rest])]
        if len(shown):
            numbers = {name: shown[name].map("{:,}".format) for name in ("rows", "other_rows", *KINDS)}
            parts.append(Html(shown.assign(**numbers).to_html(index=False)))
        if len(differing) > len(shown):
            more = f"The first {len(shown)} of {len(differing):,} rows that differ; epochs() returns all of them."
            parts.append(tag("p", more))
        return joined(parts)


def _value_places(diff: Diff) -> Iterator[tuple[str, int]]:
    """Yield each value column with the position of its old value on a page of the diff; the new value is next to it."""
    at = 1 + len(diff.key_columns)
    for name in diff.value_columns:
        yield name, at
        at += 3 if name in diff.delta_columns else 2
