"""What is checked of a store and a checkpoint before a query starts, so that a mistake leaves nothing behind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamstate.snapshots.checkpoint import Checkpoint
from streamstate.snapshots.errors import NameTakenError, NotACheckpointError, NotAStoreError, choices
from streamstate.snapshots.filesystem import local_path
from streamstate.snapshots.layout import Layout
from streamstate.snapshots.registry import registered

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["check_name_free", "check_store", "query_id_of"]


def check_store(store: str) -> None:
    """Raise where a path cannot become a store, or holds one that this version cannot write.

    Raises:
        NotAStoreError: the path is a file.
        NewerStoreError: a newer version wrote the store.
    """
    local = local_path(store)
    if local is not None and local.is_file():
        raise NotAStoreError(f"{store} is a file. A store is a folder: name a new one, or one that is a store already.")
    registered(Layout.at(store))


def query_id_of(checkpoint: str, spark: SparkSession) -> str | None:
    """The id of the query that owns a checkpoint; None where the path is free for a new one.

    Raises:
        NotACheckpointError: the folder holds something else.
    """
    try:
        return Checkpoint(checkpoint, spark).query_id
    except NotACheckpointError:
        local = local_path(checkpoint)
        if local is not None and local.exists() and (local.is_file() or any(local.iterdir())):
            raise NotACheckpointError(
                f"{checkpoint} is not empty, and it is not the checkpoint of a streaming query.\n"
                "Give --checkpoint a new folder, or that of a query to resume."
            ) from None
        return None


def check_name_free(store: str, name: str, query_id: str | None, checkpoint: str) -> None:
    """Raise where a name is another query's in the store.

    Raises:
        NameTakenError: naming the checkpoint that it belongs to.
    """
    known = registered(Layout.at(store))
    for other in known.values():
        if other.name.casefold() != name.casefold() or (other.name == name and other.query_id == query_id):
            continue
        whose = f"the one of {other.checkpoint}"
        if other.checkpoint == checkpoint:
            whose = f"one whose checkpoint, {checkpoint}, was deleted or replaced"
        raise NameTakenError(
            f"The name {other.name!r} belongs to another query in {store}: {whose}.\n"
            f"Use another name (taken: {choices(known)}), another --store, or resume that query with --checkpoint."
        )
