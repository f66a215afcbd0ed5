"""All state tables of a snapshot, one row each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

if TYPE_CHECKING:
    from streamstate.snapshots.manifest import Entry
    from streamstate.state_inspect.snapshot import Snapshot


def table_summary(snapshot: Snapshot, entry: Entry) -> pd.DataFrame:
    """One row per state table; see :meth:`Snapshot.summary`."""
    rows = []
    for name, facts in entry.tables.items():
        table = snapshot.table(name)
        skew = table.skew()
        rows.append(
            {
                "table": name,
                "rows": facts.rows,
                "changes": facts.changes,
                "key_columns": len(table.key_columns),
                "value_columns": len(table.value_columns),
                "partitions": len(skew),
                "bytes": int(skew["bytes"].sum()),
            }
        )
    names = ["table", "rows", "changes", "key_columns", "value_columns", "partitions", "bytes"]
    return pd.DataFrame(rows, columns=names).astype(dict.fromkeys(names[1:], "int64"))
