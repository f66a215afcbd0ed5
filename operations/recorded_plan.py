"""A query in a store, found by its id: its recorded plan and its history."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from streamstate.errors import UnknownQueryError
from streamstate.snapshots.store.layout import Layout
from streamstate.snapshots.store.query_plans.plan_table import Plans
from streamstate.snapshots.store.registry import name_of

if TYPE_CHECKING:
    from streamstate.snapshots.store.query_plans.query_plan import QueryPlan
    from streamstate.state_inspect import History, Store


def recorded_plan(store: Store | str | Path | None, query_id: str, epoch: int) -> QueryPlan | None:
    """Return the plan of a query at an epoch; None if it was not recorded, or without a store.

    Raises:
        UnknownQueryError: the store does not have the query.
    """
    if store is None:
        return None
    layout = Layout.at(store) if isinstance(store, str | os.PathLike) else store.layout
    return Plans(layout, _name(layout, query_id)).at(epoch)


def recorded_history(
    store: Store | str | Path, query_id: str, storage_options: Mapping[str, str] | None = None
) -> History:
    """Return the history of a query.

    Raises:
        UnknownQueryError: the store does not have the query.
    """
    if isinstance(store, str | os.PathLike):
        from streamstate.state_inspect import open_store

        store = open_store(store, storage_options=storage_options)
    return store[_name(store.layout, query_id)]


def _name(layout: Layout, query_id: str) -> str:
    name = name_of(layout, query_id)
    if name is None:
        raise UnknownQueryError(
            f"{layout.root} does not have the query with the id {query_id}.\n"
            "Pass the store that the query is captured into, or none."
        )
    return name
