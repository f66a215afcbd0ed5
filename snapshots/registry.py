"""The store's table of queries: which names exist and which query each belongs to."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake import DeltaTable

from streamstate.snapshots.delta import append_once, open_or_create, open_table
from streamstate.snapshots.delta.reading import TableVersion
from streamstate.snapshots.errors import NameTakenError, NewerStoreError, NotAStoreError, UnknownQueryError, choices
from streamstate.snapshots.filesystem import local_path
from streamstate.snapshots.layout import FORMAT, QUERIES, Layout

if TYPE_CHECKING:
    from streamstate.snapshots.forks.record import ForkRecord


@dataclass(frozen=True)
class RegisteredQuery:
    """A row of the table of queries."""

    name: str
    query_id: str
    checkpoint: str


def registered(layout: Layout) -> dict[str, RegisteredQuery]:
    """The store's queries by name; none where the store does not exist yet.

    Raises:
        NewerStoreError: where a newer version of streamstate wrote the store.
    """
    table = open_table(layout.queries)
    return {} if table is None else _read(table, layout)


def require_store(layout: Layout) -> None:
    """Raise unless there is a store.

    Raises:
        NotAStoreError: where the path holds none.
        NewerStoreError: where a newer version of streamstate wrote it.
    """
    table = open_table(layout.queries)
    if table is None:
        local = local_path(layout.root)
        found = "the path does not exist" if local is not None and not local.exists() else "it has no _queries table"
        raise NotAStoreError(
            f"{layout.root} is not a store: {found}.\n"
            "A store is the folder given to streamstate.capture, streamstate.follow or %%stream --store."
        )
    _read(table, layout)


def required_query(layout: Layout, name: str) -> RegisteredQuery:
    """A query that is to be in a store.

    Raises:
        NotAStoreError, NewerStoreError: as :func:`require_store`.
        UnknownQueryError: where the store has no query of that name.
    """
    require_store(layout)
    known = registered(layout)
    if name not in known:
        raise UnknownQueryError.among("query", name, known, where=f"in {layout.root}")
    return known[name]


def register(layout: Layout, name: str, query_id: str, checkpoint: str, forked_from: ForkRecord | None = None) -> None:
    """Take a name for a query; taking it again for the same query changes nothing.

    Args:
        layout: the store.
        name: the name.
        query_id: the query's id.
        checkpoint: where the query keeps its state.
        forked_from: which query it was forked from, and at which epoch; None where it is no fork.

    Raises:
        NameTakenError: where the name is another query's.
    """
    check_name_free(layout, name, query_id, checkpoint)
    open_or_create(layout.queries, QUERIES, "streamstate: the queries of this store")
    # Names that differ in case alone share one identifier: they would share a folder on some disks, and an SQL name.
    application = f"name/{name.casefold()}"
    append_once(layout.queries, application, 1, lambda _: _row(name, query_id, checkpoint, forked_from))
    check_name_free(layout, name, query_id, checkpoint)


def check_store(layout: Layout) -> dict[str, RegisteredQuery]:
    """The queries of what is a store, or can become one; nothing is written.

    Raises:
        NotAStoreError: where the path is a file.
        NewerStoreError: where a newer version of streamstate wrote the store.
    """
    local = local_path(layout.root)
    if local is not None and local.is_file():
        raise NotAStoreError(f"{layout.root} is a file. A store is a folder: name a new one, or one that is a store.")
    return registered(layout)


def check_name_free(layout: Layout, name: str, query_id: str | None, checkpoint: str) -> None:
    """Raise where a query cannot be registered under a name; nothing is written.

    Args:
        layout: the store, which need not exist yet.
        name: the name.
        query_id: the query's id, None for one that was never started.
        checkpoint: where the query keeps its state.

    Raises:
        NotAStoreError, NewerStoreError: as :func:`check_store`.
        NameTakenError: where the name is another query's.
    """
    known = check_store(layout)
    for other in known.values():
        if other.name.casefold() != name.casefold() or (other.name == name and other.query_id == query_id):
            continue
        whose = f"the one of {other.checkpoint}"
        if other.checkpoint == checkpoint:
            whose = f"one whose checkpoint, {checkpoint}, was deleted or replaced"
        raise NameTakenError(
            f"The name {other.name!r} belongs to another query in {layout.root}: {whose}.\n"
            f"Give this query another name (taken: {choices(known)}), or use another store."
        )


def name_of(layout: Layout, query_id: str) -> str | None:
    """The name under which a query is already in the store."""
    return next((one.name for one in registered(layout).values() if one.query_id == query_id), None)


def _row(name: str, query_id: str, checkpoint: str, forked_from: ForkRecord | None) -> pa.Table:
    return pa.Table.from_pylist(
        [
            {
                "name": name,
                "query_id": query_id,
                "checkpoint": checkpoint,
                "parent": forked_from.parent_id if forked_from else None,
                "parent_epoch": forked_from.epoch if forked_from else None,
                "created_at": datetime.now(UTC),
                "format": FORMAT,
            }
        ],
        schema=QUERIES,
    )


def _read(table: DeltaTable, layout: Layout) -> dict[str, RegisteredQuery]:
    columns = ["name", "query_id", "checkpoint", "format"]
    rows = TableVersion(layout.queries, table).read("format", columns=columns).to_pylist()
    newest = max((row["format"] for row in rows), default=FORMAT)
    if newest > FORMAT:
        raise NewerStoreError(
            f"{layout.root} was written by a newer version of streamstate (store format {newest}; this one reads up to "
            f"{FORMAT}).\nUpgrade with: pip install --upgrade streamstate"
        )
    return {row["name"]: RegisteredQuery(row["name"], row["query_id"], row["checkpoint"]) for row in rows}
