"""State as a database: snapshots at any epoch, diffs, a key's history and SQL, from the store alone.

Nothing here needs notebooks, and only ``engine="spark"`` needs Spark.
"""

from __future__ import annotations

from streamstate.state_inspect.advice import Advice
from streamstate.state_inspect.analytics.growth import StaleKeys
from streamstate.state_inspect.branches.comparison import BranchDivergence, Comparison
from streamstate.state_inspect.conditions.watch import Watch, WatchEvent
from streamstate.state_inspect.cuts.cut import Cut, cut
from streamstate.state_inspect.differences.diff import Diff, DiffSummary
from streamstate.state_inspect.history import History
from streamstate.state_inspect.inputs.late import Late
from streamstate.state_inspect.inputs.why import Why
from streamstate.state_inspect.load.forecast import Forecast
from streamstate.state_inspect.load.load import Load
from streamstate.state_inspect.snapshot import Snapshot
from streamstate.state_inspect.sql.result import Result
from streamstate.state_inspect.state_table import StateTable
from streamstate.state_inspect.store import Store, open_store

__all__ = [
    "Advice",
    "BranchDivergence",
    "Comparison",
    "Cut",
    "Diff",
    "DiffSummary",
    "Forecast",
    "History",
    "Late",
    "Load",
    "Result",
    "Snapshot",
    "StaleKeys",
    "StateTable",
    "Store",
    "Watch",
    "WatchEvent",
    "Why",
    "cut",
    "open_store",
]
