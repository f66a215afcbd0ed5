"""Recovery drills: kill a query on purpose, time its recovery, and compare its state with a run that never failed."""

from __future__ import annotations

from streamstate.recovery.drill.report import DrillReport
from streamstate.recovery.drill.run import drill

__all__ = ["DrillReport", "drill"]
