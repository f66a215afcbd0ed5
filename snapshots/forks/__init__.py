"""Forks: a checkpoint that stands where another stood at one of its epochs."""

from __future__ import annotations

from streamstate.snapshots.forks.edits import Edit
from streamstate.snapshots.forks.making import Fork, fork
from streamstate.snapshots.forks.record import ForkRecord, forked_from

__all__ = ["Edit", "Fork", "ForkRecord", "fork", "forked_from"]
