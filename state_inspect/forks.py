"""Which queries of a store were forked from which, and at which epoch."""

from __future__ import annotations

from dataclasses import dataclass

from streamstate.snapshots.delta import open_table
from streamstate.snapshots.delta.reading import TableVersion
from streamstate.snapshots.layout import Layout

__all__ = ["Forked", "forks"]


@dataclass(frozen=True)
class Forked:
    """A query that began as another at one of its epochs.

    Attributes:
        name: the query.
        parent: the name of the one it was forked from.
        epoch: the last epoch that both share.
    """

    name: str
    parent: str
    epoch: int


def forks(layout: Layout) -> list[Forked]:
    """The forks among a store's queries, by name; a parent that the store does not have is named as it was recorded.

    Args:
        layout: the store.

    Example:
        >>> forks(Layout.at("store"))  # doctest: +SKIP
        [Forked(name='what_if', parent='delays', epoch=12)]
    """
    table = open_table(layout.queries)
    if table is None:
        return []
    columns = ["name", "query_id", "parent", "parent_epoch"]
    rows = TableVersion(layout.queries, table).read("format", columns=columns).to_pylist()
    names = {row["query_id"]: row["name"] for row in rows}
    found = [
        Forked(row["name"], names.get(row["parent"], row["parent"]), row["parent_epoch"])
        for row in rows
        if row["parent"] is not None and row["parent_epoch"] is not None
    ]
    return sorted(found, key=lambda one: one.name)
