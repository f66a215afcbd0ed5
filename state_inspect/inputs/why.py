"""Why a key changed in an epoch: the input rows that fell on it, its values before and after, and the cause."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import pandas as pd

from streamstate.snapshots.operators import NO_KEY, operator_number
from streamstate.state_inspect.differences.cause_rules import WATERMARK
from streamstate.state_inspect.differences.key_history import key_life
from streamstate.state_inspect.expiry_times import expiry, expiry_columns
from streamstate.state_inspect.frames import as_html
from streamstate.state_inspect.inputs.sessions import StateSessions
from streamstate.state_inspect.inputs.shown_rows import InputOfEpoch, InputSides, LateSides, paragraph
from streamstate.state_inspect.keys import (
    SESSION_START,
    check_key,
    key_of,
    row_number_column,
    session_column,
    value_text,
)
from streamstate.state_inspect.recorded_query import RecordedQuery
from streamstate.state_inspect.results.results import ShownColumns, shown_columns
from streamstate.state_inspect.snapshot import choose_table
from streamstate.state_inspect.suspects.suspect import Suspect

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from streamstate.state_inspect.inputs.epoch_input import EpochInput
    from streamstate.state_inspect.snapshot import Snapshot


@dataclass(frozen=True, repr=False)
class Why(InputSides):
    """Why a key changed in an epoch; a notebook shows it as before → rows → after.

    Attributes:
        epoch: the epoch.
        table: the state table.
        key: the key, by the names that it was asked with.
        before: the key's row at the captured epoch before; None if it had none, and for a join, whose keys have many.
        after: the key's row at the epoch; None likewise.
        changes: what changed in the state of the key, in all tables of the operator, with causes; as
            :meth:`History.life`.
        sides: the input rows that fell on the key, by side: ``left`` and ``right`` of a join, otherwise one with the
            name ``rows``. They are DataFrames of Spark: the rows that came into the operator, and the sources' whole
            rows in ``_source0``, ….
        late: the rows that would have fallen on the key, had the watermark not passed them, likewise; ``_late_by`` says
            how far it was past each. For a session, those whose windows overlap with it.
        nearest: the epochs before and after at which the key changed; None where there is none.
        nondeterministic: what below the operator may be nondeterministic, such as ``rand()``, each with ``what``,
            ``where`` and ``why``, as :func:`streamstate.audit` has it: other rows may have come in then.
        moved: for a change that the watermark made, the row of the epoch before that moved it there; otherwise None.
    """

    epoch: int
    table: str
    key: Mapping[str, Any]
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None
    changes: pd.DataFrame
    sides: Mapping[str, DataFrame]
    late: Mapping[str, DataFrame] = field(default_factory=dict)
    nearest: tuple[int | None, int | None] = (None, None)
    moved: Mapping[str, Any] | None = None
    nondeterministic: tuple[Suspect, ...] = ()
    _keep: InputOfEpoch | None = None
    _expiring: frozenset[str] = frozenset()

    @property
    def cause(self) -> str | None:
        """The cause as in :meth:`History.key_history`, several separated by commas; None if the key did not change."""
        causes = list(dict.fromkeys(self.changes["cause"]))
        return ", ".join(causes) or None

    @property
    def shown_values(self) -> tuple[Mapping[str, Any] | None, Mapping[str, Any] | None]:
        """The key's row before and after, as they are shown: with times at which it expires."""
        return _with_times(self.before, self._expiring), _with_times(self.after, self._expiring)

    @property
    def dropped(self) -> int:
        """How many rows were dropped as late."""
        return self.late_rows.count()

    @cached_property
    def late_rows(self) -> LateSides:
        """The late rows, as they are shown."""
        return _LateRows(self.late, self.nondeterministic, self._keep)

    def __repr__(self) -> str:
        before, after = self.shown_values
        values = [f"before: {_text(before)}", f"after:  {_text(after)}"]
        if self.is_join:
            values = ["", f"changes of the state:\n{self.changes.to_string(index=False)}"]
        parts = [self._title(), values[0], self.rows.to_string(index=False), values[1], *self._notes()]
        if self.dropped:
            parts.append(f"The late rows:\n{self.late_rows.rows.to_string(index=False)}")
        return "\n".join(filter(None, parts))

    def _repr_html_(self) -> str:
        values = pd.DataFrame([row or {} for row in self.shown_values])
        values.insert(0, "", ["before", "after"])
        parts = [paragraph(self._title()), as_html(self.changes if self.is_join else values)]
        if len(self.rows):
            parts += [paragraph("The input:"), as_html(self.rows)]
        if self.dropped:
            parts += [paragraph("The late rows:"), as_html(self.late_rows.rows)]
        return "".join([*parts, *map(paragraph, self._notes())])

    @property
    def is_join(self) -> bool:
        """Whether rows of two sides fell on the key, so that it has no single row before and after."""
        return len(self.sides) > 1

    def _title(self) -> str:
        counted = f"{self.count():,} input row{'s' * (self.count() != 1)}"
        if self.dropped:
            counted += f", {self.dropped:,} row{'s' * (self.dropped != 1)} dropped as late"
        said = f"{self.table}, {_text(self.key)}, epoch {self.epoch}: {counted}"
        if self.cause is not None:
            said += f"; cause: {self.cause}"
        else:
            at = [
                f"{word} at epoch {epoch}"
                for word, epoch in zip(("before", "next"), self.nearest, strict=True)
                if epoch is not None
            ]
            said += f"; its state did not change ({', '.join(at) or 'nor at any other epoch'})"
        if self.moved is not None:
            said += f". The watermark was moved by the row {_text(self.moved)} of epoch {self.epoch - 1}"
        return said


def explained(
    query: RecordedQuery, at: Callable[[int], Snapshot], epoch: int, table: str | None, given: Mapping[str, Any]
) -> Why:
    """The input rows behind a key's change, as :meth:`streamstate.History.why`; ``at`` returns an epoch's snapshot."""
    from streamstate.state_inspect.inputs.epoch_input import EpochInput

    asked = _asked(query, table, given)
    came = EpochInput(query, epoch)
    changes, nearest = _changes(query, asked, epoch)
    earlier = [one for one in query.captured() if one < epoch]
    before = _row(at(earlier[-1]), asked) if earlier else None
    rows, late = _rows_of_key(query, at, asked, came, earlier[-1] if earlier else None)
    moved = came.moved_by() if WATERMARK in changes["cause"].tolist() else None
    after = _row(at(epoch), asked)
    suspects = came.nondeterministic(operator_number(asked.columns.state))
    table, key = asked.columns.state, asked.key
    expiring = expiry_columns(query, asked.table)
    return Why(epoch, table, key, before, after, changes, rows, late, nearest, moved, suspects, came, expiring)


def _rows_of_key(
    query: RecordedQuery, at: Callable[[int], Snapshot], asked: _Asked, came: EpochInput, before: int | None
) -> tuple[dict[str, DataFrame], dict[str, DataFrame]]:
    """The rows that fell on a key, and those that were late, by side."""
    key, found, dropped = list(asked.state_key.values()), {}, {}
    for side in came.of(operator_number(asked.columns.state)):
        own = key[: len(side.came.keys)]
        rows, late = (came.matching(side, part, own) for part in (came.on_time(side), came.late(side)))
        if side.came.session is not None:
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


@dataclass(frozen=True)
class _Asked:
    """A key that was asked about."""

    table: str
    columns: ShownColumns
    key: Mapping[str, Any]
    """By the names that it was asked with."""
    row_key: Mapping[str, Any]
    """By the table's key columns."""
    state_key: Mapping[str, Any]
    """By the state's, in the order on disk."""
    is_join: bool


def _asked(query: RecordedQuery, table: str | None, given: Mapping[str, Any]) -> _Asked:
    name = table or choose_table(None, query.tables(), query.name)
    columns = shown_columns(query, name)
    of_state = query.columns(columns.state).key_columns
    row_number = row_number_column(columns.state, of_state)
    key = key_of(given, columns.key_columns)
    if of_state == [NO_KEY] and not key:
        key = dict.fromkeys(columns.key_columns, 0)
    row_key = _by_start(columns, key)
    needed = [column for column, own in columns.state_keys.items() if own != row_number]
    if row_number is not None:
        key = row_key = {column: value for column, value in key.items() if columns.state_keys.get(column) != row_number}
    check_key(row_key, needed, name)
    return _Asked(name, columns, key, row_key, _in_state(columns, row_key, of_state), row_number is not None)


def _by_start(columns: ShownColumns, key: Mapping[str, Any]) -> dict[str, Any]:
    """A key with a session's window, which the result shows, by the state's own: the session's start."""
    window = session_column(columns.key_columns, columns.schema)
    if window is None or SESSION_START in key or not isinstance(key.get(window), Mapping) or "start" not in key[window]:
        return dict(key)
    return {column: value for column, value in key.items() if column != window} | {SESSION_START: key[window]["start"]}


def _changes(query: RecordedQuery, asked: _Asked, epoch: int) -> tuple[pd.DataFrame, tuple[int | None, int | None]]:
    """What changed in the epoch, and the epochs before and after with changes."""
    life = key_life(query, asked.state_key)
    life = life[life["table"].map(operator_number) == operator_number(asked.columns.state)]
    epochs = sorted({int(one) for one in life["epoch"]})
    before = max((one for one in epochs if one < epoch), default=None)
    after = min((one for one in epochs if one > epoch), default=None)
    changes = life[life["epoch"] == epoch].dropna(axis="columns", how="all")
    if "cause" not in changes:
        changes = changes.assign(cause=pd.Series(dtype=str))
    return changes, (before, after)


def _in_state(columns: ShownColumns, key: Mapping[str, Any], order: list[str]) -> dict[str, Any]:
    """A key by the state's own columns."""
    named = {own: key[shown] for shown, own in columns.state_keys.items() if shown in key}
    return {column: named[column] for column in order if column in named}


def _row(snapshot: Snapshot, asked: _Asked) -> dict[str, Any] | None:
    return None if asked.is_join else snapshot.table(asked.table).lookup(key=dict(asked.row_key))


def _with_times(row: Mapping[str, Any] | None, expiring: frozenset[str]) -> Mapping[str, Any] | None:
    return row and {name: expiry(value) if name in expiring else value for name, value in row.items()}


def _text(row: Mapping[str, Any] | None) -> str:
    return "nothing" if row is None else ", ".join(f"{name}={value_text(value)}" for name, value in row.items())
