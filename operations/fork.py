"""A checkpoint that was made from another one."""

from __future__ import annotations

from collections.abc import Mapping

from streamstate.operations.checkpoint import Checkpoint
from streamstate.replay.forks.make_fork import NewFork


class Fork(Checkpoint, NewFork):
    """A checkpoint made from another one; :meth:`Checkpoint.fork` returns it.

    Attributes:
        epoch: the last epoch that both share; the fork runs the one after it next.
        seconds: how long it took to make.
        linked_bytes: bytes shared with the original's files on the local disk.
        new_bytes: bytes the fork takes up itself.
        edited_rows: how many rows of its state were changed, added or deleted.
    """

    def __init__(self, made: NewFork, *, storage_options: Mapping[str, str] | None = None) -> None:
        super().__init__(made.path, storage_options=storage_options)
        vars(self).update(vars(made))

    @property
    def original(self) -> Checkpoint:
        """The checkpoint that it was made from."""
        return Checkpoint(self.original_path, storage_options=self._storage_options)

    def __repr__(self) -> str:
        return f"<Fork {self.path} of {self.original_path} at epoch {self.epoch}>"
