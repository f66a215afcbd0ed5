"""Forks: new checkpoints that stand where a query stood at one of its epochs, with the same or an edited state."""

from __future__ import annotations

from streamstate.replay.forks.edits import Edit
from streamstate.replay.forks.fork import NewFork, fork
from streamstate.snapshots.checkpoint.fork_record import ForkRecord, forked_from

__all__ = ["Edit", "ForkRecord", "NewFork", "fork", "forked_from"]
