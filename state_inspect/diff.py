"""What differs between two epochs of a state table."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import pandas as pd
import pyarrow as pa

from streamstate.snapshots.change_log import quoted, same
from streamstate.state_inspect.frames import to_pandas
from streamstate.state_inspect.interval_table import held_at

if TYPE_CHECKING:
    from streamstate.state_inspect.index import Index
    from streamstate.state_inspect.interval_table import IntervalTable


class Diff:
    """Keys added, removed and changed from epoch ``a`` to epoch ``b``.

    Only versions that hold at one of the two epochs and not at the other are looked at, so the work follows what
    changed, not the state.
    """

    def __init__(self, index: Index, table: IntervalTable, name: str, a: int, b: int) -> None:
        self._index = index
        self._table = table
        self.table = name
        """The state table."""
        self.a = a
        """The epoch compared from."""
        self.b = b
        """The epoch compared to."""

    @cached_property
    def added(self) -> pd.DataFrame:
        """Keys that are there at ``b`` only, with their values."""
        return to_pandas(self._one_sided("new", "old"))

    @cached_property
    def removed(self) -> pd.DataFrame:
        """Keys that are there at ``a`` only, with their values."""
        return to_pandas(self._one_sided("old", "new"))

    @cached_property
    def changed(self) -> pd.DataFrame:
        """Keys that are there at both with other values: ``<column>_old`` at ``a``, ``<column>_new`` at ``b``."""
        return to_pandas(self._both_sided())

    @property
    def counts(self) -> dict[str, int]:
        """How many keys were added, removed and changed."""
        return {"added": len(self.added), "removed": len(self.removed), "changed": len(self.changed)}

    def to_pandas(self) -> pd.DataFrame:
        """All three as one frame: ``_change`` (``added``, ``removed``, ``changed``), the key, old and new values."""
        values = self._table.value_columns
        added = self.added.rename(columns={name: f"{name}_new" for name in values})
        removed = self.removed.rename(columns={name: f"{name}_old" for name in values})
        parts = [("added", added), ("removed", removed), ("changed", self.changed)]
        columns = [
            "_change",
            *self._table.key_columns,
            *(f"{name}_{side}" for name in values for side in ("old", "new")),
        ]
        labelled = [part.assign(_change=change).reindex(columns=columns) for change, part in parts if len(part)]
        return pd.concat(labelled, ignore_index=True) if labelled else pd.DataFrame(columns=columns)

    def __repr__(self) -> str:
        counts = ", ".join(f"{count:,} {change}" for change, count in self.counts.items())
        return f"<Diff of {self.table} from epoch {self.a} to {self.b}: {counts}>"

    def _repr_html_(self) -> str:
        counts = " ".join(f"{sign}{count:,}" for sign, count in zip("+\u2212~", self.counts.values(), strict=True))
        title = f"{self.table}: epoch {self.a} → {self.b} ({counts}: added, removed, changed)"
        return f"<p>{title}</p>" + self.to_pandas().to_html(max_rows=20, index=False)

    def _sides(self) -> str:
        at_a, at_b = f"({held_at(self.a)})", f"({held_at(self.b)})"
        return (
            f"WITH old AS (SELECT * FROM {self._table.relation} WHERE {at_a} AND NOT {at_b}),"
            f" new AS (SELECT * FROM {self._table.relation} WHERE {at_b} AND NOT {at_a})"
        )

    def _one_sided(self, there: str, not_there: str) -> pa.Table:
        columns = ", ".join(f"{there}.{quoted(name)}" for name in self._table.columns)
        match = same(there, not_there, self._table.key_columns)
        order = ", ".join(f"{there}.{quoted(name)}" for name in self._table.key_columns)
        return self._index.query(
            f"{self._sides()} SELECT {columns} FROM {there} ANTI JOIN {not_there} ON {match} ORDER BY {order}"
        )

    def _both_sided(self) -> pa.Table:
        keys = [f"new.{quoted(name)}" for name in self._table.key_columns]
        values = self._table.value_columns
        pairs = [f"{side}.{quoted(name)} AS {quoted(f'{name}_{side}')}" for name in values for side in ("old", "new")]
        differs = " OR ".join(f"old.{quoted(name)} IS DISTINCT FROM new.{quoted(name)}" for name in values) or "false"
        return self._index.query(
            f"{self._sides()} SELECT {', '.join([*keys, *pairs])} FROM old"
            f" JOIN new ON {same('old', 'new', self._table.key_columns)} WHERE {differs} ORDER BY {', '.join(keys)}"
        )
