"""What a checkpoint says about its capture: what can be captured, at what cost, and which settings to change."""

from __future__ import annotations

from streamstate.operations.checkup.examine import examine
from streamstate.operations.checkup.report import DoctorReport, Finding, StoreState
from streamstate.operations.checkup.state_tables import TableReading

__all__ = ["DoctorReport", "Finding", "StoreState", "TableReading", "examine"]
