"""Forks: new checkpoints that continue from an epoch of a query, with the same or an edited state."""

from __future__ import annotations

from streamstate.replay.forks.edits import Edit
from streamstate.replay.forks.make_fork import NewFork, fork
from streamstate.snapshots.checkpoint.fork_record import ForkRecord, forked_from

__all__ = ["Edit", "ForkRecord", "NewFork", "fork", "forked_from"]
