"""All that happened to one key: in one state table, or in all of a query's that share it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import duckdb
import pandas as pd
import pyarrow as pa

from streamstate.snapshots.change_log import listed, quoted
from streamstate.snapshots.errors import InvalidArgumentError, UnknownColumnError
from streamstate.snapshots.layout import TIME
from streamstate.snapshots.manifest import Entry
from streamstate.snapshots.names import unused
from streamstate.snapshots.operators import HASH
from streamstate.state_inspect.conditions.when import key_condition
from streamstate.state_inspect.differences.cause_rules import UNKNOWN
from streamstate.state_inspect.differences.causes import Caused, Causes, Keys
from streamstate.state_inspect.frames import to_pandas
from streamstate.state_inspect.state_table import bad_key

if TYPE_CHECKING:
    from streamstate.state_inspect.temporal_index.index import Index
    from streamstate.state_inspect.temporal_index.interval_table import IntervalTable

_FIXED = [
    pa.field("epoch", pa.int64()),
    pa.field("table", pa.string()),
    pa.field("change", pa.string()),
    pa.field("cause", pa.string()),
    pa.field("committed_at", TIME),
]


@dataclass(frozen=True)
class _Happened:
    """One change of one row, with what the row held."""

    epoch: int
    change: str
    cause: str
    keys: list[Any]
    values: list[Any]
    """Missing where the row was removed."""


class KeyLife:
    """Looks keys up.

    Args:
        index: where the interval tables are.
        causes: of the query's changes.
        entries: its manifest.
    """

    def __init__(self, index: Index, causes: Causes, entries: Sequence[Entry]) -> None:
        self._index = index
        self._causes = causes
        self._committed = {entry.epoch: entry.committed_at for entry in entries if entry.captured}

    def in_table(self, name: str, table: IntervalTable, key: Mapping[str, Any]) -> pd.DataFrame:
        """The changes of a whole key in one table: see :meth:`History.key_history`."""
        happened = list(self._happened(name, table, key))
        taken = ["epoch", "change", "committed_at", *table.value_columns]
        columns: list[tuple[pa.Field, list[Any]]] = [
            (pa.field("epoch", pa.int64()), [one.epoch for one in happened]),
            (pa.field("change", pa.string()), [one.change for one in happened]),
            (pa.field("committed_at", TIME), [self._committed[one.epoch] for one in happened]),
        ]
        for at, value in enumerate(table.value_columns):
            columns.append((table.schema.field(value).remove_metadata(), [one.values[at] for one in happened]))
        columns.append((pa.field(unused("cause", taken), pa.string()), [one.cause for one in happened]))
        return _frame(columns)

    def in_tables(self, tables: Mapping[str, IntervalTable], key: Mapping[str, Any]) -> pd.DataFrame:
        """The changes of a key in all tables whose key has its columns: see :meth:`History.life`."""
        sharing = sharing_tables(tables, key)
        found = [(name, one) for name in sharing for one in self._happened(name, tables[name], key)]
        found.sort(key=lambda one: one[1].epoch)
        columns: list[tuple[pa.Field, list[Any]]] = [
            (_FIXED[0], [one.epoch for _, one in found]),
            (_FIXED[1], [name for name, _ in found]),
            (_FIXED[2], [one.change for _, one in found]),
            (_FIXED[3], [one.cause for _, one in found]),
            (_FIXED[4], [self._committed[one.epoch] for _, one in found]),
        ]
        for field, places in _united({name: tables[name] for name in sharing}, key).items():
            cells = [_cell(one, places.get(name)) for name, one in found]
            columns.append((field, cells))
        return _frame(columns)

    def _happened(self, name: str, table: IntervalTable, key: Mapping[str, Any]) -> Iterator[_Happened]:
        caused = self._causes.of(self._keys(name, table, key), -1, table.high)
        rows = sorted(((one.epoch, row, one) for row, ones in caused.items() for one in ones), key=lambda one: one[:2])
        for epoch, _, one in rows:
            if epoch in self._committed:
                yield _as_happened(one, table)

    def _keys(self, name: str, table: IntervalTable, key: Mapping[str, Any]) -> Keys:
        """The keys that have some values; the versions' own columns come as ``k0``, … and ``v0``, …."""
        condition, parameters = key_condition(table, key)
        sql = f"SELECT DISTINCT {listed([HASH, *table.key_columns])} FROM {table.relation} WHERE {condition}"
        try:
            found = self._index.query(f"{sql} ORDER BY {listed(table.key_columns)}", parameters)
        except duckdb.Error as error:
            raise bad_key(key, table, error) from error
        own = [f"{quoted(column)} AS k{at}" for at, column in enumerate(table.key_columns)]
        own += [f"{quoted(column)} AS v{at}" for at, column in enumerate(table.value_columns)]
        rows = found.append_column("_row", pa.array(range(found.num_rows), pa.int64()))
        return Keys(name, table, rows, tuple(own))


def sharing_tables(tables: Mapping[str, IntervalTable], key: Mapping[str, Any]) -> list[str]:
    """The tables whose keys have all of some columns.

    Raises:
        InvalidArgumentError: where no column is given.
        UnknownColumnError: where no table has all of them; names each table's key.
    """
    listing = "\n".join(f"  {name}: {', '.join(table.key_columns)}" for name, table in tables.items())
    if not key:
        raise InvalidArgumentError(f"Say which key: a value for some of the key columns.\nKeys by table:\n{listing}")
    found = [name for name, table in tables.items() if {*key} <= {*table.key_columns}]
    if found:
        return found
    known = {column for table in tables.values() for column in table.key_columns}
    wrong = [name for name in key if name not in known] or list(key)
    raise UnknownColumnError(
        f"No state table has the key column{'s' * (len(wrong) > 1)} {', '.join(wrong)}"
        f"{' together' if len(wrong) > 1 else ''}.\nKeys by table:\n{listing}"
    )


def _as_happened(one: Caused, table: IntervalTable) -> _Happened:
    keys = [one.version[f"k{at}"] for at in range(len(table.key_columns))]
    values = [None if one.removed else one.version[f"v{at}"] for at in range(len(table.value_columns))]
    if one.removed:
        return _Happened(one.epoch, "delete", one.cause, keys, values)
    anew = one.epoch in table.starts
    return _Happened(one.epoch, "keyframe" if anew else "put", UNKNOWN if anew else one.cause, keys, values)


_Place = Callable[[_Happened], Any]


def _united(tables: Mapping[str, IntervalTable], key: Mapping[str, Any]) -> dict[pa.Field, dict[str, _Place]]:
    """The columns of some tables beside the given key: for each table where it stands in what happened.

    Columns of one name and type are one; where only the name is the same, the later is called after its table.
    """
    columns: dict[pa.Field, dict[str, _Place]] = {}
    taken: dict[str, pa.Field] = {field.name: field for field in _FIXED}
    for name, table in tables.items():
        for column, place in _places(table, key):
            field = table.schema.field(column).remove_metadata()
            if taken.get(column, field) != field or column in {one.name for one in _FIXED}:
                field = field.with_name(unused(f"{name}.{column}", taken))
            taken[field.name] = field
            columns.setdefault(field, {})[name] = place
    return columns


def _places(table: IntervalTable, key: Mapping[str, Any]) -> Iterator[tuple[str, _Place]]:
    for at, column in enumerate(table.key_columns):
        if column not in key:
            yield column, lambda one, at=at: one.keys[at]  # type: ignore[misc]
    for at, column in enumerate(table.value_columns):
        yield column, lambda one, at=at: one.values[at]  # type: ignore[misc]


def _cell(one: _Happened, place: _Place | None) -> Any:
    return None if place is None else place(one)


def _frame(columns: Sequence[tuple[pa.Field, list[Any]]]) -> pd.DataFrame:
    arrays = [pa.array(cells, field.type) for field, cells in columns]
    return to_pandas(pa.table(arrays, schema=pa.schema([field.with_nullable(nullable=True) for field, _ in columns])))
