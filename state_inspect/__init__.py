"""State as a database: snapshots at any epoch, diffs, a key's history and SQL, from the store alone.

This package knows neither Spark nor notebooks.
"""

from __future__ import annotations

from streamstate.state_inspect.analytics.untouched import Untouched
from streamstate.state_inspect.branches.comparison import Comparison, Divergence
from streamstate.state_inspect.conditions.watch import Watch, WatchEvent
from streamstate.state_inspect.cuts.cut import Cut, cut
from streamstate.state_inspect.differences.diff import Diff, DiffSummary
from streamstate.state_inspect.history import History
from streamstate.state_inspect.snapshot import Snapshot
from streamstate.state_inspect.sql import Result
from streamstate.state_inspect.state_table import StateTable
from streamstate.state_inspect.store import Store, open_store

__all__ = [
    "Comparison",
    "Cut",
    "Diff",
    "DiffSummary",
    "Divergence",
    "History",
    "Result",
    "Snapshot",
    "StateTable",
    "Store",
    "Untouched",
    "Watch",
    "WatchEvent",
    "cut",
    "open_store",
]
