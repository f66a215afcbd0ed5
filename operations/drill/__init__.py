"""Recovery drills: kill a query on purpose, time its recovery, and compare its state with an undisturbed run."""

from __future__ import annotations

from streamstate.operations.drill.run import DrillReport, drill

__all__ = ["DrillReport", "drill"]
