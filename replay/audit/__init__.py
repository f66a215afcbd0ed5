"""Audits of determinism: replays compared with the recorded states, likely causes, and a record that can be checked."""

from __future__ import annotations

from streamstate.replay.audit.auditing import audit
from streamstate.replay.audit.record_check import AuditRecordCheck, check_audit_record
from streamstate.replay.audit.report import Audit, AuditedReplay, Divergence
from streamstate.state_inspect.suspects.suspect import Suspect

__all__ = ["Audit", "AuditRecordCheck", "AuditedReplay", "Divergence", "Suspect", "audit", "check_audit_record"]
