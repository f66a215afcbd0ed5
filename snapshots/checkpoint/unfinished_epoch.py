"""An epoch whose state is written, but not its commit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamstate.snapshots.checkpoint.state_stores import state_stores

if TYPE_CHECKING:
    from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles

WHAT = "Epoch {epoch} has written its state and is not committed."
EFFECT = (
    "Unless the query runs now, it runs that epoch again. If its sink is Delta's and has the epoch, the sink skips it,"
    " Spark computes no state, and each start fails with 'CheckpointInfo length: 0'."
)
ADVICE = (
    "Then fork the checkpoint, step the fork once with the query's code, and promote it over the checkpoint with"
    " sink='delta:PATH'."
)


def unfinished_epoch(checkpoint: CheckpointFiles) -> int | None:
    """Return the epoch after the last committed one if all its state is written; None otherwise, and in format 1.

    In checkpoint format 2 only the commit says which of a version's state files count, so Spark cannot use them.
    """
    committed = checkpoint.committed()
    if not committed or checkpoint.begun()[-1:] != [committed[-1] + 1]:
        return None
    newest = committed[-1]
    if checkpoint.format_version(newest) != "2":
        return None
    stores = [*state_stores(checkpoint.path, checkpoint.files, checkpoint, newest)]
    written = [any(file.version == newest + 2 for file in store.listed.files) for store in stores]
    return newest + 1 if written and all(written) else None
