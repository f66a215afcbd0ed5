"""Checkups of a checkpoint: the epochs that can be captured, their cost, and settings to change."""

from __future__ import annotations

from streamstate.operations.checkup.examine import examine
from streamstate.operations.checkup.report import CheckupFinding, DoctorReport, StoreState
from streamstate.operations.checkup.state_tables import TableReading

__all__ = ["CheckupFinding", "DoctorReport", "StoreState", "TableReading", "examine"]
