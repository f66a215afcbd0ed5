"""Why a key changed in an epoch: the input rows that fell on it, its values before and after, and the cause."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pandas as pd

from streamstate.state_inspect.differences.cause_rules import WATERMARK
from streamstate.state_inspect.differences.key_history import key_life
from streamstate.state_inspect.frames import as_html, as_text, with_values
from streamstate.state_inspect.inputs.sessions import StateSessions
from streamstate.state_inspect.inputs.shown_rows import InputOfEpoch, InputSides, operator_number, paragraph
from streamstate.state_inspect.key_text import spelled
from streamstate.state_inspect.keys import key_of, row_number_column
from streamstate.state_inspect.recorded_query import RecordedQuery
from streamstate.state_inspect.results.results import ShownColumns, shown_columns
from streamstate.state_inspect.snapshot import choose_table
from streamstate.state_inspect.suspects.suspect import Suspect
from streamstate.state_inspect.table_key import TableKey

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

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
    nearest: tuple[int | None, int | None] = (None, None)
    moved: Mapping[str, Any] | None = None
    nondeterministic: tuple[Suspect, ...] = ()
    _keep: InputOfEpoch | None = None

    @property
    def cause(self) -> str | None:
        """The cause as in :meth:`History.key_history`, several separated by commas; None if the key did not change."""
        causes = list(dict.fromkeys(self.changes["cause"]))
        return ", ".join(causes) or None

    def __repr__(self) -> str:
        values = [f"before: {_text(self.before)}", f"after:  {_text(self.after)}"]
        if self.is_join:
            values = ["", f"changes of the state:\n{as_text(self.changes)}"]
        parts = [self._title(), values[0], as_text(self.rows), values[1], *self._notes()]
        return "\n".join(filter(None, parts))

    def _repr_html_(self) -> str:
        parts = [paragraph(self._title()), as_html(self.changes if self.is_join else self._values())]
        if len(self.rows):
            parts += [paragraph("The input:"), as_html(self.rows)]
        return "".join([*parts, *map(paragraph, self._notes())])

    def _values(self) -> pd.DataFrame:
        """The key's row before and after; empty where there was none."""
        columns = list(self.after or self.before or {})
        rows = [[row.get(name) if row else "" for name in columns] for row in (self.before, self.after)]
        named = [[name, *row] for name, row in zip(("before", "after"), rows, strict=True)]
        return pd.DataFrame(named, columns=pd.Index(["", *columns]), dtype=object)

    @property
    def is_join(self) -> bool:
        """Whether rows of two sides fell on the key, so that it has no single row before and after."""
        return len(self.sides) > 1

    def _title(self) -> str:
        counted = f"{self.count():,} input row{'s' * (self.count() != 1)}"
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
    key = list(asked.state_key.values())
    sides = {}
    number = operator_number(asked.columns.state)
    for side in came.of(number):
        rows = came.matching(side, key[: len(side.came.keys)])
        if side.came.session is not None:
            sessions = StateSessions(
                query,
                at,
                asked.columns.state,
                epoch=epoch,
                before=earlier[-1] if earlier else None,
                key=asked.state_key,
            )
            rows = came.within(side, rows, sessions.merged(partial(came.windows_of, side, rows)))
        sides[side.came.side or "rows"] = rows
    moved = came.moved_by() if WATERMARK in changes["cause"].tolist() else None
    after = _row(at(epoch), asked)
    suspects = came.nondeterministic(number)
    return Why(epoch, asked.columns.state, asked.key, before, after, changes, sides, nearest, moved, suspects, came)


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
    number = next((column for column, own in columns.state_keys.items() if own == row_number), None)
    row_key = TableKey.of(query, name).given(given, without=number)
    row_key.pop(number or "", None)
    key = {column: row_key.get(column, value) for column, value in key_of(given, columns.key_columns).items()}
    key.pop(number or "", None)
    return _Asked(name, columns, key, row_key, _in_state(columns, row_key, of_state), number is not None)


def _changes(query: RecordedQuery, asked: _Asked, epoch: int) -> tuple[pd.DataFrame, tuple[int | None, int | None]]:
    """What changed in the epoch, and the epochs before and after with changes."""
    life = key_life(query, asked.state_key)
    life = life[life["table"].map(operator_number) == operator_number(asked.columns.state)]
    epochs = sorted({int(one) for one in life["epoch"]})
    before = max((one for one in epochs if one < epoch), default=None)
    after = min((one for one in epochs if one > epoch), default=None)
    changes = with_values(life[life["epoch"] == epoch])
    if "cause" not in changes:
        changes = changes.assign(cause=pd.Series(dtype=str))
    return changes, (before, after)


def _in_state(columns: ShownColumns, key: Mapping[str, Any], order: list[str]) -> dict[str, Any]:
    """A key by the state's own columns."""
    named = {own: key[shown] for shown, own in columns.state_keys.items() if shown in key}
    return {column: named[column] for column in order if column in named}


def _row(snapshot: Snapshot, asked: _Asked) -> dict[str, Any] | None:
    return None if asked.is_join else snapshot.table(asked.table).lookup(key=dict(asked.row_key))


def _text(row: Mapping[str, Any] | None) -> str:
    return "nothing" if row is None else ", ".join(f"{name}={spelled(value)}" for name, value in row.items())
