"""Explanations of a key's change in an epoch: its input rows, its values before and after, and the cause."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import pandas as pd

from streamstate.snapshots.calls.html import joined, paragraphs, tag
from streamstate.state_inspect.captured_query import CapturedQuery
from streamstate.state_inspect.causes.cause_rules import WATERMARK
from streamstate.state_inspect.frames import as_html, as_text
from streamstate.state_inspect.inputs.key_change import (
    AskedKey,
    StateChange,
    asked_key,
    captured_before,
    change_facts,
    row_text,
)
from streamstate.state_inspect.inputs.sessions import StateSessions
from streamstate.state_inspect.inputs.shown_rows import InputOfEpoch, InputSides, LateSides
from streamstate.state_inspect.suspects.suspect import Suspect

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from streamstate.state_inspect.inputs.epoch_input import EpochInput
    from streamstate.state_inspect.snapshot import Snapshot


@dataclass(frozen=True, repr=False, kw_only=True)
class Why(StateChange, InputSides):
    """An explanation of a key's change in an epoch; a notebook shows it as before → rows → after.

    Attributes:
        epoch: the epoch.
        table: the state table.
        key: the key, by the names that it was asked with.
        before: the key's row at the captured epoch before; None if it had none, and for a join, whose keys have many.
        after: the key's row at the epoch; None likewise.
        changes: what changed in the state of the key, in all tables of the operator, with causes; as
            :meth:`History.key_history`.
        sides: the input rows that fell on the key, by side: ``left`` and ``right`` of a join, otherwise one with the
            name ``rows``. They are DataFrames of Spark: the rows that came into the operator, and the sources' whole
            rows in ``_source0``, ….
        nearest: the epochs before and after at which the key changed; None where there is none.
        nondeterministic: what below the operator may be nondeterministic, such as ``rand()``, each with ``what``,
            ``where`` and ``why``, as :meth:`streamstate.Checkpoint.audit` has it: other rows may have come in then.
        moved: for a change that the watermark made, the row of the epoch before that moved it there; otherwise None.
    """

    sides: Mapping[str, DataFrame]
    moved: Mapping[str, Any] | None = None
    nondeterministic: tuple[Suspect, ...] = ()
    _late: Mapping[str, DataFrame] = field(default_factory=dict)
    _keep: InputOfEpoch | None = None

    @property
    def dropped(self) -> int:
        """The number of rows that were dropped as late."""
        return self.late_rows.count()

    @cached_property
    def late_rows(self) -> LateSides:
        """The rows that would have fallen on the key, had the watermark not passed them; ``_late_by`` says how far.

        ``.sides`` has DataFrames of Spark as :attr:`sides`, ``.rows`` a pandas frame. For a session, those whose
        windows overlap with it.
        """
        return _LateRows(self._late, self.nondeterministic, self._keep)

    def __repr__(self) -> str:
        values = ("", f"changes of the state:\n{as_text(self.changes)}")
        if not self.is_join:
            values = self._values()
        parts = [self._title(), values[0], as_text(self.rows), values[1], *self._notes()]
        if self.dropped:
            parts.append(f"The late rows:\n{as_text(self.late_rows.rows)}")
        return "\n".join(filter(None, parts))

    def _repr_html_(self) -> str:
        values = self.changes if self.is_join else self._values_frame()
        parts = [tag("p", self._title()), as_html(values)]
        if len(self.rows):
            parts += [tag("p", "The input:"), as_html(self.rows)]
        if self.dropped:
            parts += [tag("p", "The late rows:"), as_html(self.late_rows.rows)]
        return joined(parts, paragraphs(self._notes()))

    def _values_frame(self) -> pd.DataFrame:
        """Return the key's row before and after; empty where there was none."""
        shown = self.shown_values
        columns = list(shown[1] or shown[0] or {})
        rows = [[row.get(name) if row else "" for name in columns] for row in shown]
        named = [[name, *row] for name, row in zip(("before", "after"), rows, strict=True)]
        return pd.DataFrame(named, columns=pd.Index(["", *columns]), dtype=object)

    def _title(self, came: str = "") -> str:
        came += f": {self.count():,} input row{'s' * (self.count() != 1)}"
        if self.dropped:
            came += f", {self.dropped:,} row{'s' * (self.dropped != 1)} dropped as late"
        said = super()._title(came)
        if self.moved is not None:
            said += f". The watermark was moved by the row {row_text(self.moved)} of epoch {self.epoch - 1}"
        return said


def explained(
    query: CapturedQuery, at: Callable[[int], Snapshot], epoch: int, table: str | None, given: Mapping[str, Any]
) -> Why:
    """Explain a key's change, as :meth:`streamstate.History.why`; ``at`` returns an epoch's snapshot."""
    from streamstate.state_inspect.inputs.epoch_input import EpochInput

    asked = asked_key(query, table, given)
    came = EpochInput(query, epoch)
    change = change_facts(query, at, epoch, asked)
    rows, late = _rows_of_key(query, at, asked, came)
    return Why(
        **change,
        sides=rows,
        moved=came.moved_by() if WATERMARK in change["changes"]["cause"].tolist() else None,
        nondeterministic=came.nondeterministic(asked.operator),
        _late=late,
        _keep=came,
    )


def _rows_of_key(
    query: CapturedQuery, at: Callable[[int], Snapshot], asked: AskedKey, came: EpochInput
) -> tuple[dict[str, DataFrame], dict[str, DataFrame]]:
    """Return the rows that fell on a key, and those that were late, by side."""
    key, found, dropped = list(asked.state_key.values()), {}, {}
    for side in came.of(asked.operator):
        own = key[: len(side.came.keys)]
        rows, late = (came.matching(side, part, own) for part in (came.on_time(side), came.late(side)))
        if side.came.session is not None:
            before = captured_before(query, came.epoch)
            sessions = StateSessions(
                query, at, asked.columns.state, epoch=came.epoch, before=before, key=asked.state_key
            )
            session = sessions.merged(partial(came.windows_of, side, rows))
            rows, late = came.within(side, rows, session), came.beside(side, late, session or sessions.last_known())
        name = side.came.side or "rows"
        found[name] = rows
        # Where nothing can be late, nothing is read for it.
        if side.came.watermark is not None:
            dropped[name] = late
    return found, dropped


@dataclass(frozen=True)
class _LateRows(LateSides):
    """The late rows of a key."""

    sides: Mapping[str, DataFrame]
    nondeterministic: tuple[Suspect, ...]
    _keep: InputOfEpoch | None
