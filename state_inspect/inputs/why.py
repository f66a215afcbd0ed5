"""Why a key changed in an epoch: the input rows that fell on it, its values before and after, and the cause."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd

from streamstate.state_inspect.differences.cause_rules import WATERMARK
from streamstate.state_inspect.differences.key_history import key_life
from streamstate.state_inspect.frames import as_html
from streamstate.state_inspect.inputs.shown_rows import InputSides, operator_number, paragraph
from streamstate.state_inspect.keys import check_key, key_of, value_text
from streamstate.state_inspect.recorded_query import RecordedQuery
from streamstate.state_inspect.results.results import ShownColumns, shown_columns
from streamstate.state_inspect.snapshot import choose_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from streamstate.state_inspect.snapshot import Snapshot

_INDEX = "index"
"""The last key column of a join's state, which numbers the rows of a key."""


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
    _keep: object = None

    @property
    def cause(self) -> str | None:
        """The cause as in :meth:`History.key_history`, several separated by commas; None if the key did not change."""
        causes = list(dict.fromkeys(self.changes["cause"]))
        return ", ".join(causes) or None

    def __repr__(self) -> str:
        parts = [self._title(), f"before: {_text(self.before)}", self.rows.to_string(index=False)]
        parts += [self._left_out(), f"after:  {_text(self.after)}"]
        if self.is_join:
            parts = [parts[0], *parts[2:-1], "changes of the state:", self.changes.to_string(index=False)]
        return "\n".join(filter(None, parts))

    def _repr_html_(self) -> str:
        values = pd.DataFrame([self.before or {}, self.after or {}])
        values.insert(0, "", ["before", "after"])
        parts = [paragraph(self._title()), as_html(self.changes if self.is_join else values)]
        if len(self.rows):
            parts += [paragraph("The input:"), as_html(self.rows)]
        return "".join([*parts, paragraph(self._left_out())])

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

    name = table or choose_table(None, query.tables(), query.name)
    columns = shown_columns(query, name)
    is_join = columns.state.endswith(("_left", "_right"))
    key = key_of(given, columns.key_columns)
    if is_join:
        key.pop(_INDEX, None)
    check_key(key, [column for column in columns.key_columns if not (is_join and column == _INDEX)], name)
    came = EpochInput(query, epoch)
    number = operator_number(columns.state)
    life = key_life(query, _in_state(columns, key))
    life = life[life["table"].map(operator_number) == number]
    epochs = sorted({int(one) for one in life["epoch"]})
    earlier_change = max((one for one in epochs if one < epoch), default=None)
    next_change = min((one for one in epochs if one > epoch), default=None)
    changes = life[life["epoch"] == epoch].dropna(axis="columns", how="all")
    if "cause" not in changes:
        changes = changes.assign(cause=pd.Series(dtype=str))
    earlier = [one for one in query.captured() if one < epoch]
    before = _row(at(earlier[-1]), name, key) if earlier and not is_join else None
    after = None if is_join else _row(at(epoch), name, key)
    state_key = list(_in_state(columns, key, query.columns(columns.state).key_columns).values())
    session = (after or before or {}).get("session_window")
    sides = {
        side.came.side or "rows": came.matching(side, state_key[: len(side.came.keys)], session)
        for side in came.of(number)
    }
    moved = came.moved_by() if WATERMARK in changes["cause"].tolist() else None
    return Why(epoch, columns.state, key, before, after, changes, sides, (earlier_change, next_change), moved, came)


def _in_state(columns: ShownColumns, key: Mapping[str, Any], order: list[str] | None = None) -> dict[str, Any]:
    """A key by the state's own columns."""
    named = {own: key[shown] for shown, own in columns.state_keys.items() if shown in key}
    return {column: named[column] for column in order or named if column in named}


def _row(snapshot: Snapshot, table: str, key: Mapping[str, Any]) -> dict[str, Any] | None:
    return snapshot.table(table).lookup(key=dict(key))


def _text(row: Mapping[str, Any] | None) -> str:
    return "nothing" if row is None else ", ".join(f"{name}={value_text(value)}" for name, value in row.items())
