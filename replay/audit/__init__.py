"""Audits of determinism: replays compared with the recorded states, and likely causes of differences."""

from __future__ import annotations

from streamstate.replay.audit.auditing import audit
from streamstate.replay.audit.report import Audit, AuditDivergence, AuditedReplay
from streamstate.state_inspect.suspects.suspect import Suspect

__all__ = ["Audit", "AuditDivergence", "AuditedReplay", "Suspect", "audit"]
