"""Recovery drills: kill a query on purpose, time its recovery, and compare its state with an undisturbed run."""

from __future__ import annotations

from streamstate.operations.drill.report import AvailabilityReport, DrillReport
from streamstate.operations.drill.run import drill

__all__ = ["AvailabilityReport", "DrillReport", "drill"]
