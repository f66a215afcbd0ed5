"""A query's policies, and every decision that followed from them, as rows of the store.

A row says what is intended; it is committed before anything is moved. So whoever continues after a kill finds in the
rows what should be in force.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import partial

import pyarrow as pa

from streamstate.errors import DamagedStoreError
from streamstate.snapshots.store.consistent_read import read_once
from streamstate.snapshots.store.delta import append_once, open_or_create
from streamstate.snapshots.store.delta.commits import Handle
from streamstate.snapshots.store.delta.maintenance import merge_small_files
from streamstate.snapshots.store.delta.reading import TableVersion
from streamstate.snapshots.store.layout import CONTROL, Layout

POLICY, DECISION, ACTED = "policy", "decision", "acted"
"""The kinds of rows; readers skip those that they do not know."""
SHEDDING, ADMISSION, RESCALE, NONE = "shedding", "admission", "rescale", "none"
"""The levers."""


@dataclass(frozen=True)
class ControlRow:
    """A row of the table.

    Attributes:
        kind: ``policy``: a policy was declared or ended; ``decision``: a lever is to be moved, or a fact was noted;
            ``acted``: the first epoch that a limit or a new number of partitions certainly applied to.
        epoch: the newest committed epoch then (−1: none); of ``policy``, the newest planned one, the last to which it
            did not apply; of ``acted``, the first epoch that it applied to.
        policy: the number of the row that declared the policy.
        lever, before, after, holds, reason, needs: as in a decision.
        inputs: the numbers that a decision follows from; the policy's text; or the decision that ``acted``.
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


class Control:
    """The rows of one query's table; read again when there are new ones. Safe from any thread."""

    def __init__(self, layout: Layout, query: str) -> None:
        self.query = query
        self._place = layout.control(query)
        self._handle = Handle(self._place)
        self._version = -1
        self._known: tuple[ControlRow, ...] = ()
        self._made = False
        self._lock = threading.RLock()

    def rows(self) -> tuple[ControlRow, ...]:
        """Return all rows, ascending by number.

        Raises:
            DamagedStoreError: a row has no number, or its inputs are no JSON.
            StoreError: the table cannot be read.
        """
        return read_once(self, self._read)

    @property
    def known(self) -> tuple[ControlRow, ...]:
        """The rows as of the last look."""
        return self._known

    def append(self, made: Callable[[tuple[ControlRow, ...]], ControlRow | None]) -> ControlRow | None:
        """Append a row under the next number; of two writers, the second looks at the first one's row and tries again.

        Args:
            made: returns the row, given those that the table has; None: no row is needed any more.

        Returns:
            The row as it was committed; None if none was needed.

        Raises:
            StoreError: the row could not be committed.
        """
        with self._lock:
            if not self._made:
                open_or_create(self._handle, CONTROL, f"streamstate: policies and decisions of {self.query}")
                self._made = True
            while True:
                known = self._read()
                row = made(known)
                if row is None:
                    return None
                row = replace(row, number=known[-1].number + 1 if known else 0, at=datetime.now(UTC))
                table = pa.Table.from_pylist([asdict(row) | {"inputs": json.dumps(dict(row.inputs))}], schema=CONTROL)
                if append_once(self._handle, f"control/{self.query}", row.number, partial(_as_is, table)) < row.number:
                    # Another commit in between has made the version another one, and all is read again.
                    self._known, self._version = (*known, row), self._version + 1
                    return row

    def merge_files(self) -> None:
        """Merge the files of many rows."""
        merge_small_files(self._place, "number")

    def _read(self) -> tuple[ControlRow, ...]:
        with self._lock:
            table = self._handle.if_exists()
            if table is None or table.version() == self._version:
                return self._known
            found = TableVersion(self._place, table).read("number", columns=CONTROL.names).to_pylist()
            try:
                rows = (ControlRow(**row | {"inputs": json.loads(row["inputs"] or "{}")}) for row in found)
                self._known = tuple(sorted(rows, key=lambda row: row.number))
            except (TypeError, ValueError) as error:
                raise DamagedStoreError(
                    f"{self._place} has a row that is none of streamstate's: {error}\nRestore the table from a backup."
                ) from error
            self._version = table.version()
            return self._known


def _as_is(table: pa.Table, _committed: int) -> pa.Table:
    return table
