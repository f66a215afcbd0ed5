"""Whether a query is deterministic: replays compared with what was recorded, likely sources, and a certificate."""

from __future__ import annotations

from streamstate.debugger.audit.auditing import audit
from streamstate.debugger.audit.certificate import CertificateCheck, check_certificate
from streamstate.debugger.audit.report import Audit, AuditedReplay, Divergence
from streamstate.debugger.audit.suspects import Suspect

__all__ = ["Audit", "AuditedReplay", "CertificateCheck", "Divergence", "Suspect", "audit", "check_certificate"]
