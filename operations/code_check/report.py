"""The report of a check, as data, text and HTML."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from streamstate.errors import worded
from streamstate.operations.report_html import ColumnPair, columns_html, report
from streamstate.snapshots.calls.html import Html, tag

Level = Literal["refused", "changed", "note"]

KINDS: Mapping[str, Level] = {
    "damaged": "refused",
    "mode_unsupported": "refused",
    "query_unsupported": "refused",
    "sources": "refused",
    "source_moved": "refused",
    "source_unreachable": "refused",
    "topics_missing": "refused",
    "topics_lost": "refused",
    "records_lost": "refused",
    "operators": "refused",
    "key_schema": "refused",
    "value_schema": "refused",
    "nullability": "refused",
    "variable_kind": "refused",
    "processor_setting": "refused",
    "refused_by_spark": "refused",
    "replay_failed": "refused",
    "key_names": "changed",
    "value_names": "changed",
    "key_expression": "changed",
    "value_expression": "changed",
    "condition": "changed",
    "watermark": "changed",
    "result": "changed",
    "mode": "changed",
    "topics": "changed",
    "records_skipped": "changed",
    "time_zone": "changed",
    "setting": "changed",
    "replay_differs": "changed",
    "damaged_unread": "note",
    "unfinished": "note",
    "names_only": "note",
    "variable_added": "note",
    "variable_removed": "note",
    "partitions_pinned": "note",
    "provider_pinned": "note",
    "setting_pinned": "note",
    "time_zone_unused": "note",
    "spark_version": "note",
    "python_code": "note",
    "no_recorded_plan": "note",
    "state_unchecked": "note",
    "replay_shorter": "note",
    "input_gone": "note",
    "input_uncertain": "note",
}
"""The level of each kind of finding."""

_MARKS = {"refused": "✗", "changed": "±", "note": "·"}


def migrate_call() -> str:
    """Return the name of :meth:`streamstate.Checkpoint.migrate` in the interface of the reader."""
    return worded("Checkpoint.migrate", magic="%stream migrate", command="streamstate migrate")


@dataclass(frozen=True)
class Finding:
    """One difference between the code and the checkpoint."""

    kind: str
    """A stable identifier; the guide lists all."""
    change: str
    """What is different, in a sentence."""
    effect: str
    """What that does to the state, or to the results."""
    advice: str
    """What to do."""

    @property
    def level(self) -> Level:
        """The severity.

        ``refused``: Spark will not start, or will fail. ``changed``: it starts, but the state or the results then mean
        something else. ``note``: no effect, worth knowing.
        """
        return KINDS[self.kind]

    def __str__(self) -> str:
        return f"{self.level} ({self.kind}): {self.change}\n    {self.effect}\n    {self.advice}"


@dataclass(frozen=True)
class CheckReport:
    """The findings of :meth:`streamstate.Checkpoint.check`; true if the code starts and means the same.

    Example:
        >>> report = checkpoint.check(build_fixed, store="store")
        >>> report.ok, [finding.kind for finding in report.findings]
        (False, ['condition'])
    """

    checkpoint: str
    """The query's checkpoint."""
    epoch: int
    """Its newest committed epoch, after which the code would continue."""
    findings: tuple[Finding, ...]
    """What is different, the most serious first."""
    replayed: tuple[int, ...] = ()
    """The epochs that were rehearsed."""
    seconds: float = 0.0
    """How long the check took."""
    columns: Mapping[str, tuple[ColumnPair, ...]] = field(default_factory=dict, hash=False, repr=False)
    """For each state whose columns differ, those of the checkpoint and those of the code, side by side."""

    @property
    def ok(self) -> bool:
        """True if no finding is of the levels ``refused`` and ``changed``."""
        return all(finding.level == "note" for finding in self.findings)

    def __bool__(self) -> bool:
        return self.ok

    def __repr__(self) -> str:
        lines = (f"  {_MARKS[finding.level]} {finding}" for finding in self.findings)
        return "\n".join([f"CheckReport: {self._headline}", *lines])

    def _repr_html_(self) -> str:
        items = [tag("ul", map(_item, self.findings))] if self.findings else []
        return report(tag("p", tag("strong", "Check"), f": {self._headline}"), *items, *self._schemas())

    def _schemas(self) -> Iterator[Html]:
        for state, pairs in self.columns.items():
            yield tag("h4", tag("code", state))
            yield columns_html(("checkpoint", "this code"), pairs)

    @property
    def _headline(self) -> str:
        levels = {finding.level for finding in self.findings}
        if "refused" in levels:
            verdict = "this code does not go on from"
        elif "changed" in levels:
            verdict = "this code starts, but does not mean the same, from"
        else:
            verdict = "this code goes on from"
        return f"{verdict} epoch {self.epoch} of {self.checkpoint}{''.join(self._rehearsed())}."

    def _rehearsed(self) -> Iterator[str]:
        if self.replayed:
            span = f"{self.replayed[0]} to {self.replayed[-1]}" if len(self.replayed) > 1 else f"{self.replayed[0]}"
            yield f"; rehearsed: {'epochs' if len(self.replayed) > 1 else 'epoch'} {span}"


def _item(finding: Finding) -> Html:
    title = f"{_MARKS[finding.level]} {finding.level} ({finding.kind})"
    return tag(
        "li",
        tag("strong", title),
        ": ",
        tag("span", finding.change),
        [tag("p", text) for text in (finding.effect, finding.advice)],
    )
