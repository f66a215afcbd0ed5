"""A query that an operation acts on: whether it is stopped, its newest epoch, and what its store has of it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from streamstate.errors import CheckpointError, QueryError, StreamStateError, UnknownQueryError
from streamstate.snapshots.store.layout import Layout
from streamstate.snapshots.store.query_plans.plan_table import Plans
from streamstate.snapshots.store.registry import name_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
    from streamstate.snapshots.store.query_plans.query_plan import QueryPlan
    from streamstate.state_inspect import History, Store


def check_stopped(checkpoints: Iterable[CheckpointFiles], spark: SparkSession, done: str, magic: str) -> None:
    """Raise if a query runs in this Spark application; other applications cannot be seen.

    Args:
        checkpoints: those of the queries.
        spark: the session.
        done: the end of "only a stopped query can be".
        magic: the magic that stops the query itself.
    """
    from streamstate.replay.stepping.run_batch import active_queries

    active = active_queries(spark)
    for checkpoint in checkpoints:
        if checkpoint.query_id in active:
            raise QueryError(
                f"The query of {checkpoint.path} is running, and only a stopped query can be {done}.\n"
                f"Stop it first with query.stop(). In a notebook, {magic} does so itself."
            )


def newest_epoch(checkpoint: CheckpointFiles) -> int:
    """Return the newest committed epoch of a query.

    Raises:
        CheckpointError: no epoch is committed.
    """
    if not (committed := checkpoint.committed()):
        raise CheckpointError(
            f"{checkpoint.path} has no committed epoch.\nRun the query until it commits one, then stop it."
        )
    return committed[-1]


def settled_epoch(checkpoint: CheckpointFiles, verb: str, error: type[StreamStateError] = CheckpointError) -> int:
    """Return the newest epoch of a stopped query, unless a later epoch was begun.

    Args:
        checkpoint: the query's.
        verb: the operation, as the end of "then".
        error: raised if a later epoch was begun: the sink may have some of its results.
    """
    epoch, begun = newest_epoch(checkpoint), checkpoint.begun()
    if begun[-1:] != [epoch]:
        raise error(
            f"Epoch {begun[-1] if begun else epoch} of {checkpoint.path} was begun but not committed; its results may"
            f" be in the sink. The last committed epoch is {epoch}.\n"
            f"Start the query with the same sink until that epoch is committed (step a fork), stop it, then {verb}."
        )
    return epoch


def recorded_plan(store: Store | str | Path | None, query_id: str, epoch: int) -> QueryPlan | None:
    """Return the plan of a query at an epoch; None if it was not recorded, or without a store.

    Raises:
        UnknownQueryError: the store does not have the query.
    """
    if store is None:
        return None
    layout = layout_of(store)
    return Plans(layout, _name(layout, query_id)).at(epoch)


def layout_of(store: Store | str | Path) -> Layout:
    """Return the tables of a store, given as an object or by its path."""
    return Layout.at(store) if isinstance(store, str | os.PathLike) else store.layout


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
