"""A query's policies, and every decision on it, as rows of the store: those of a policy, and those of supervision.

A row says what is intended; it is committed before anything is moved. So whoever continues after a kill finds in the
rows what should be in force.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import Any

from streamstate.snapshots.store.layout import CONTROL, Layout
from streamstate.snapshots.store.numbered_table import NumberedTable

POLICY, DECISION, ACTED, SUPERVISION = "policy", "decision", "acted", "supervision"
"""The kinds of rows; readers skip those that they do not know."""
SHEDDING, ADMISSION, RESCALE, NONE = "shedding", "admission", "rescale", "none"
"""The levers."""


@dataclass(frozen=True)
class ControlRow:
    """A row of the table.

    Attributes:
        kind: ``policy``: a policy was declared or ended; ``decision``: a lever is to be moved, or a fact was noted;
            ``acted``: the first epoch that a limit or a new number of partitions certainly applied to;
            ``supervision``: a failure or a stall, and what is done about it.
        epoch: the newest committed epoch then (−1: none); of ``policy``, the newest planned one, the last to which it
            did not apply; of ``acted``, the first epoch that it applied to.
        policy: the number of the row that declared the policy.
        lever, before, after, holds, reason, needs: as in a decision.
        inputs: the numbers that a decision follows from; the policy's text; the decision that ``acted``; or the
            ``event`` of supervision.
        number: the row's number, from 0 on.
        at: when it was written.
    """

    kind: str
    epoch: int
    policy: int | None = None
    lever: str | None = None
    before: float | None = None
    after: float | None = None
    holds: bool | None = None
    reason: str = ""
    needs: str = ""
    inputs: Mapping[str, float | str | None] = field(default_factory=dict)
    number: int = -1
    at: datetime | None = None

    @property
    def text(self) -> str:
        """The policy's text; empty if the row ends it, or declares none."""
        return str(self.inputs.get("policy") or "") if self.kind == POLICY else ""

    @property
    def of(self) -> int | None:
        """The number of the decision that acted."""
        found = self.inputs.get("decision") if self.kind == ACTED else None
        return None if found is None else int(found)

    @property
    def by(self) -> str:
        """The name of a decision, by which a version of a variable says where it comes from."""
        return f"decision {self.number}"


@dataclass(frozen=True)
class InForce:
    """What the rows of a query say should be in force.

    Attributes:
        policy: the row of the policy; None: there is none.
        decision: the newest decision under it.
        kept, rows: the levers' positions: the share that is kept, and the most rows of an epoch (None: no limit).
        kept_by, rows_by: the decisions that set them; None: they are as they were at first.
        rescale_by: the newest decision on the number of partitions.
        rows_acted: whether it is known from which epoch on the limit acted.
    """

    policy: ControlRow | None = None
    decision: ControlRow | None = None
    kept: float = 1.0
    rows: int | None = None
    kept_by: ControlRow | None = None
    rows_by: ControlRow | None = None
    rescale_by: ControlRow | None = None
    rows_acted: bool = True


def in_force(rows: Sequence[ControlRow], *, upto: int | None = None) -> InForce:
    """Return what was in force after some rows; ``upto``: only of those that were written by an epoch's commit."""
    found = InForce()
    for row in rows:
        if upto is not None and row.epoch > upto:
            continue
        if row.kind == POLICY:
            found = replace(found, policy=row if row.text else None, decision=None)
        elif row.kind == ACTED and found.rows_by is not None and row.of == found.rows_by.number:
            found = replace(found, rows_acted=True)
        elif row.kind == DECISION:
            found = replace(found, decision=row)
            if row.lever == SHEDDING:
                found = replace(found, kept=1.0 if row.after is None else row.after, kept_by=row)
            elif row.lever == ADMISSION:
                limit = None if row.after is None else int(row.after)
                found = replace(found, rows=limit, rows_by=row, rows_acted=False)
            elif row.lever == RESCALE:
                found = replace(found, rescale_by=row)
    return found


def policy_words(known: InForce) -> str | None:
    """Return in words if the policy in force holds; None if there is none."""
    if known.policy is None:
        return None
    if known.decision is None or known.decision.holds is not False:
        return "policy holds"
    needs = known.decision.needs.strip()
    return f"promise broken: {needs}" if needs else "promise broken"


class Control(NumberedTable[ControlRow]):
    """The rows of one query's table."""

    def __init__(self, layout: Layout, query: str) -> None:
        self.query = query
        description = f"streamstate: policies and decisions of {query}"
        super().__init__(layout.control(query), CONTROL, f"control/{query}", description)

    def _row_of(self, values: dict[str, Any]) -> ControlRow:
        return ControlRow(**values | {"inputs": json.loads(values["inputs"] or "{}")})

    def _values_of(self, row: ControlRow) -> Mapping[str, Any]:
        return asdict(row) | {"inputs": json.dumps(dict(row.inputs))}
