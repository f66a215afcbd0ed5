"""A fork from before the first epoch: a query of its own that begins from nothing, with the original's input."""

from __future__ import annotations

import json
import os
import time
import uuid
from typing import TYPE_CHECKING

from streamstate.snapshots.checkpoint import Checkpoint
from streamstate.snapshots.errors import EpochGoneError, ForkError
from streamstate.snapshots.filesystem import location
from streamstate.snapshots.forks import Fork, ForkRecord
from streamstate.snapshots.forks.record import FORK_FILE
from streamstate.snapshots.forks.source_log import source_batch
from streamstate.snapshots.forks.transfer import transfer_between

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["BEFORE_ALL", "from_nothing"]

BEFORE_ALL = -1
"""The epoch of a fork that shares none with its original."""


def from_nothing(
    checkpoint: str | os.PathLike[str], new_checkpoint: str | os.PathLike[str], spark: SparkSession
) -> Fork:
    """Make a checkpoint without any epoch, whose first is to read what the original's first read.

    Raises:
        EpochGoneError: the original has purged its first epoch.
        ForkError: the new checkpoint is there already.
    """
    began = time.monotonic()
    original, target = Checkpoint(checkpoint, spark), location(os.fspath(new_checkpoint))
    parent, planned = original.query_id, original.planned(0)
    if planned is None:
        begun = original.begun()
        oldest = f"; its oldest is {begun[0]}" if begun else ""
        raise EpochGoneError(
            f"{original.path} no longer has what describes its epoch 0{oldest}.\nReplay from a later epoch on."
        )
    transfer = transfer_between(original.path, target, spark)
    if not transfer.make_folder(target):
        raise ForkError(f"{target} is there already.\nName a folder that is not there yet, or delete this one first.")
    query_id = str(uuid.uuid4())
    for at, offset in enumerate(planned.offsets):
        # Where a source began, which Kafka's and some others write down once.
        if source_batch(offset) is None:
            transfer.copy_tree(f"{original.path}/sources/{at}", f"{target}/sources/{at}")
    transfer.write(f"{target}/{FORK_FILE}", ForkRecord.now(original.path, parent, BEFORE_ALL).text())
    transfer.write(f"{target}/metadata", json.dumps({"id": query_id}))
    return Fork(target, original.path, BEFORE_ALL, query_id, time.monotonic() - began)
