"""Formats of a state table that Spark has confirmed, recorded in the table's change log for later captures."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version

from streamstate.snapshots.checkpoint.decoding.table_format import TableFormat
from streamstate.snapshots.store.delta.commits import Handle, version_of


@dataclass
class VerifiedFormats:
    """Records whether rows decoded in a format were what Spark reads, once and for all captures.

    A record is a transaction identifier of the change log, named after the query, what was compared, the versions of
    Spark and streamstate, and the format. So it is found without a scan, a newer version of either compares again, and
    no other query's store has it. A difference outlives any confirmation, also that of a capture at the same time.
    """

    handle: Handle
    application: str
    """The transaction identifier of the table's captures, which begins with the query's id."""
    pending: dict[str, int] = field(default_factory=dict)
    """Identifiers and versions that the next commit of rows records (see ``marks`` of :func:`commit_once`)."""

    def has(self, what: str, layout: TableFormat, spark: str) -> bool:
        """Return whether a version of Spark has confirmed ``what``, such as ``changes``, and never differed."""
        table = self.handle.if_exists()
        if table is None:
            return False
        confirmed, differs = (version_of(table, self._name(what, layout, spark, verdict)) for verdict in _VERDICTS)
        return confirmed > -1 and differs == -1

    def note(self, what: str, layout: TableFormat, spark: str, *, equal: bool) -> None:
        """Write the result of a comparison with the next commit."""
        self.pending[self._name(what, layout, spark, _VERDICTS[0 if equal else 1])] = 1

    def _name(self, what: str, layout: TableFormat, spark: str, verdict: str) -> str:
        digest = hashlib.sha256(repr(layout).encode()).hexdigest()[:16]
        return f"{self.application}/{verdict}/{what}/spark-{spark}/streamstate-{_own_version()}/{digest}"


_VERDICTS = ("verified", "differs")


@cache
def _own_version() -> str:
    return version("streamstate")
