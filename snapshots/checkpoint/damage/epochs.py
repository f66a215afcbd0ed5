"""Damage that keeps epochs from being captured."""

from __future__ import annotations

from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.checkpoint.damage.damage import Damage
from streamstate.snapshots.checkpoint.damage.logs import LogDamage
from streamstate.snapshots.checkpoint.damage.state import StateDamage, stopping


class EpochDamage:
    """The damage that keeps committed epochs from being captured; each file of the checkpoint is read once.

    Args:
        checkpoint: the checkpoint.
        read: whether to read state files; otherwise only missing ones are found.

    Attributes:
        logs: damage of the logs.
        state: damage of the state files.
    """

    def __init__(self, checkpoint: CheckpointFiles, *, read: bool = True) -> None:
        self._checkpoint = checkpoint
        self.logs = LogDamage(checkpoint)
        self.state = StateDamage(checkpoint, read=read)

    def of_changes(self, epoch: int) -> Damage | None:
        """Return the damage that keeps an epoch from being read after the one before; None if none is known."""
        commit = self.logs.of_commit(epoch)
        # Of older commits, only those of format 2 matter: they name the state files.
        if (found := self.logs.of_plan(epoch) or (commit if epoch == self.logs.committed else None)) is not None:
            return found
        # A whole state replaces changes that are damaged.
        files = stopping(self.state.within(epoch)) and stopping(self.state.at(epoch))
        return (commit or files[0]) if files else None

    def of_state(self, epoch: int) -> Damage | None:
        """Return the damage that keeps the whole state at an epoch from being read; None if none is known."""
        found = self.of_changes(epoch)
        return found or next(iter(stopping(self.state.at(epoch))), None)

    def purged(self, epoch: int) -> bool:
        """Return whether an epoch's state is missing because Spark has purged it, rather than damaged.

        Spark purges from the oldest epoch on: those before are gone, too, and a later one is whole.
        """
        found = self.of_state(epoch)
        if found is None or not found.missing:
            return False
        committed = self._checkpoint.committed()
        before = any(self.of_state(number) is None for number in committed if number < epoch)
        return not before and any(self.of_state(number) is None for number in reversed(committed) if number > epoch)

    def newest_whole(self) -> int | None:
        """Return the newest committed epoch whose plan, commit and state are whole; None if there is none."""
        return next((epoch for epoch in reversed(self._checkpoint.committed()) if self.of_state(epoch) is None), None)
