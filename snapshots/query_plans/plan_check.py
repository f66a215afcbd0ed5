"""Whether a plan is that of a captured query: the same operators, and the same state columns."""

from __future__ import annotations

from streamstate.errors import QueryError
from streamstate.snapshots.change_log import key_columns, value_columns
from streamstate.snapshots.changelog.arrow_types import arrow_type
from streamstate.snapshots.delta.commits import required
from streamstate.snapshots.delta.reading import TableVersion
from streamstate.snapshots.layout import Layout
from streamstate.snapshots.manifest import Manifest
from streamstate.snapshots.query_plans.plan_record import PlannedColumn, QueryPlan


def check_describes(layout: Layout, name: str, plan: QueryPlan, since: int) -> None:
    """Raise a QueryError unless a plan has the state tables of a query, and their columns."""
    manifest = Manifest(layout, name)
    manifest.refresh()
    captured = [epoch for epoch in manifest.entries.captured if epoch >= since]
    if not captured:
        return
    entry = manifest.entries.of(captured[-1])
    tables = [] if entry is None else list(entry.tables)
    lacking = [table for table in plan.tables if table not in tables]
    if lacking or (not plan.tables and tables):
        has = ", ".join(plan.tables) or "of no operator"
        captured_tables = ", ".join(tables)
        raise QueryError(
            f"build_query is not the query {name}: it has the state tables {has}, but {captured_tables} was captured.\n"
            "Return the DataFrame that the query was started from."
        )
    for table, planned in plan.tables.items():
        place = layout.change_log(name, table)
        schema = TableVersion(place, required(place)).schema
        for expected, columns in ((planned.keys, key_columns(schema)), (planned.values, value_columns(schema))):
            stored = [str(schema.field(column).type) for column in columns]
            wanted = [_stored_as(column) for column in expected or ()]
            if any(kind not in (None, found) for kind, found in zip(wanted, stored, strict=False)) or len(wanted) > len(
                stored
            ):
                raise QueryError(
                    f"build_query is not the query {name}: {table} has the columns {', '.join(columns)}, of the types "
                    f"{', '.join(stored)}; the DataFrame has {', '.join(map(str, wanted))}.\n"
                    "Return the DataFrame that the query was started from."
                )


def _stored_as(column: PlannedColumn) -> str | None:
    kind = column.type if isinstance(column.type, str) else None
    return None if kind is None else str(arrow_type(kind))
