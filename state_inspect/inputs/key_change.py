"""Changes of a key's state in an epoch: its values before and after, and the cause."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd

from streamstate.snapshots.checkpoint.state_tables import NO_KEY, operator_number
from streamstate.state_inspect.captured_query import CapturedQuery
from streamstate.state_inspect.differences.key_history import changes_in_all_tables
from streamstate.state_inspect.expiry_times import expiry, expiry_columns
from streamstate.state_inspect.frames import as_text, to_pandas, with_values
from streamstate.state_inspect.keys.key_rows import given_key, row_number_column
from streamstate.state_inspect.keys.key_text import spelled
from streamstate.state_inspect.keys.table_key import TableKey
from streamstate.state_inspect.results.results import ShownColumns, shown_columns
from streamstate.state_inspect.snapshot import choose_table

if TYPE_CHECKING:
    from streamstate.state_inspect.snapshot import Snapshot


@dataclass(frozen=True, repr=False, kw_only=True)
class StateChange:
    """A change of a key's state in an epoch, as the store has it."""

    epoch: int
    table: str
    key: Mapping[str, Any]
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None
    changes: pd.DataFrame
    nearest: tuple[int | None, int | None] = (None, None)
    is_join: bool = False
    """True if rows of two sides fall on the key, so that it has no single row before and after."""
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

    def __repr__(self) -> str:
        values = [f"changes of the state:\n{as_text(self.changes)}"] if self.is_join else self._values()
        return "\n".join([self._title(), *values])

    def _title(self, came: str = "") -> str:
        said = f"{self.table}, {row_text(self.key)}, epoch {self.epoch}{came}; "
        if self.cause is not None:
            return f"{said}cause: {self.cause}"
        at = [
            f"{word} at epoch {epoch}"
            for word, epoch in zip(("before", "next"), self.nearest, strict=True)
            if epoch is not None
        ]
        return f"{said}its state did not change ({', '.join(at) or 'nor at any other epoch'})"

    def _values(self) -> tuple[str, str]:
        before, after = self.shown_values
        return f"before: {row_text(before)}", f"after:  {row_text(after)}"


@dataclass(frozen=True)
class AskedKey:
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

    @property
    def operator(self) -> int:
        """The number of the operator."""
        return operator_number(self.columns.state)


def key_change(query: CapturedQuery, at: Callable[[int], Snapshot], epoch: int, asked: AskedKey) -> StateChange:
    """Return what changed in the state of a key in an epoch; ``at`` returns an epoch's snapshot."""
    return StateChange(**change_facts(query, at, epoch, asked))


def change_facts(query: CapturedQuery, at: Callable[[int], Snapshot], epoch: int, asked: AskedKey) -> dict[str, Any]:
    """Return the fields of a :class:`StateChange`."""
    changes, nearest = _changes(query, asked, epoch)
    before = captured_before(query, epoch)
    return {
        "epoch": epoch,
        "table": asked.columns.state,
        "key": asked.key,
        "before": None if before is None else _row(at(before), asked),
        "after": _row(at(epoch), asked),
        "changes": changes,
        "nearest": nearest,
        "is_join": asked.is_join,
        "_expiring": expiry_columns(query, asked.table),
    }


def captured_before(query: CapturedQuery, epoch: int) -> int | None:
    """Return the captured epoch before another; None if there is none."""
    return max((earlier for earlier in query.captured() if earlier < epoch), default=None)


def asked_key(query: CapturedQuery, table: str | None, given: Mapping[str, Any]) -> AskedKey:
    """Return a key as it was asked for: by the names of a state table or of a result.

    Raises:
        UnknownTableError, UnknownColumnError, InvalidArgumentError: the table or the key is invalid.
    """
    name = table or choose_table(None, query.tables(), query.name)
    columns = shown_columns(query, name)
    of_state = query.columns(columns.state).key_columns
    row_number = row_number_column(columns.state, of_state)
    number = next((column for column, own in columns.state_keys.items() if own == row_number), None)
    if of_state == [NO_KEY] and not given:
        given = dict.fromkeys(columns.key_columns, 0)
    row_key = TableKey.of(query, name).given(given, without=number)
    row_key.pop(number or "", None)
    key = {column: row_key.get(column, value) for column, value in given_key(given, columns.key_columns).items()}
    key.pop(number or "", None)
    return AskedKey(name, columns, key, row_key, _in_state(columns, row_key, of_state), number is not None)


def _changes(query: CapturedQuery, asked: AskedKey, epoch: int) -> tuple[pd.DataFrame, tuple[int | None, int | None]]:
    """Return the changes in the epoch, and the epochs before and after with changes."""
    found = to_pandas(changes_in_all_tables(query, asked.state_key))
    found = found[found["table"].map(operator_number) == operator_number(asked.columns.state)]
    epochs = sorted({int(changed) for changed in found["epoch"]})
    before = max((changed for changed in epochs if changed < epoch), default=None)
    after = min((changed for changed in epochs if changed > epoch), default=None)
    changes = with_values(found[found["epoch"] == epoch])
    if "cause" not in changes:
        changes = changes.assign(cause=pd.Series(dtype=str))
    return changes, (before, after)


def _in_state(columns: ShownColumns, key: Mapping[str, Any], order: list[str]) -> dict[str, Any]:
    """Return a key by the state's own columns."""
    named = {own: key[shown] for shown, own in columns.state_keys.items() if shown in key}
    return {column: named[column] for column in order if column in named}


def _row(snapshot: Snapshot, asked: AskedKey) -> dict[str, Any] | None:
    return None if asked.is_join else snapshot.table(asked.table).lookup(key=dict(asked.row_key))


def _with_times(row: Mapping[str, Any] | None, expiring: frozenset[str]) -> Mapping[str, Any] | None:
    return row and {name: expiry(value) if name in expiring else value for name, value in row.items()}


def row_text(row: Mapping[str, Any] | None) -> str:
    """Return a row in words."""
    return "nothing" if row is None else ", ".join(f"{name}={spelled(value)}" for name, value in row.items())
