"""Before a deploy: whether changed code starts from a checkpoint, and means the same."""

from __future__ import annotations

from streamstate.operations.code_check.check import check
from streamstate.operations.code_check.report import KINDS, CheckReport, Finding

__all__ = ["KINDS", "CheckReport", "Finding", "check"]
