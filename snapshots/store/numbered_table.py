"""Tables of numbered rows to which several processes append: what was decided, agreed on, or measured, in order."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

import pyarrow as pa

from streamstate.errors import DamagedStoreError
from streamstate.snapshots.store.consistent_read import read_once
from streamstate.snapshots.store.delta import append_once, open_or_create
from streamstate.snapshots.store.delta.commits import Handle
from streamstate.snapshots.store.delta.maintenance import merge_small_files
from streamstate.snapshots.store.delta.place import Place
from streamstate.snapshots.store.delta.reading import TableVersion


class Numbered(Protocol):
    """A row, a data class with its number and the time at which it was written."""

    @property
    def number(self) -> int:
        """The row's number, from 0 on."""

    @property
    def at(self) -> datetime | None:
        """The time at which it was written."""


Row = TypeVar("Row", bound=Numbered)


class NumberedTable(Generic[Row]):
    """The rows of one table; read again when there are new ones. Safe from any thread.

    Args:
        place: the table.
        schema: its columns, ``number`` and ``at`` among them.
        application: the transaction identifier of its writers.
        description: the description of the Delta table.
    """

    def __init__(self, place: Place, schema: pa.Schema, application: str, description: str) -> None:
        self._place, self._schema = place, schema
        self._application, self._description = application, description
        self._handle = Handle(place)
        self._version = -1
        self._known: tuple[Row, ...] = ()
        self._made = False
        self._lock = threading.RLock()

    def _row_of(self, values: dict[str, Any]) -> Row:
        """Return the row with the columns' values."""
        raise NotImplementedError

    def _values_of(self, row: Row) -> Mapping[str, Any]:
        """Return the columns' values of a row."""
        raise NotImplementedError

    def rows(self) -> tuple[Row, ...]:
        """Return all rows, ascending by number.

        Raises:
            DamagedStoreError: a row is none of streamstate's.
            StoreError: the table cannot be read.
        """
        return read_once(self, self._read)

    @property
    def known(self) -> tuple[Row, ...]:
        """The rows as of the last look."""
        return self._known

    def append(self, made: Callable[[tuple[Row, ...]], Row | None]) -> Row | None:
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
                open_or_create(self._handle, self._schema, self._description)
                self._made = True
            while True:
                known = self._read()
                row = made(known)
                if row is None:
                    return None
                number = known[-1].number + 1 if known else 0
                row = replace(row, number=number, at=datetime.now(UTC))  # type: ignore[type-var]
                table = pa.Table.from_pylist([dict(self._values_of(row))], schema=self._schema)
                if append_once(self._handle, self._application, number, partial(as_is, table)) < number:
                    # Another commit in between has made the version another one, and all is read again.
                    self._known, self._version = (*known, row), self._version + 1
                    return row

    def merge_files(self) -> None:
        """Merge the files of many rows."""
        merge_small_files(self._place, "number")

    def _read(self) -> tuple[Row, ...]:
        with self._lock:
            table = self._handle.if_exists()
            if table is None or table.version() == self._version:
                return self._known
            found: Sequence[dict[str, Any]]
            found = TableVersion(self._place, table).read("number", columns=self._schema.names).to_pylist()
            try:
                self._known = tuple(sorted(map(self._row_of, found), key=lambda row: row.number))
            except (TypeError, ValueError, KeyError) as error:
                raise DamagedStoreError(
                    f"{self._place} has a row that is none of streamstate's: {error}\nRestore the table from a backup."
                ) from error
            self._version = table.version()
            return self._known


def as_is(table: pa.Table, _committed: int) -> pa.Table:
    """Return the rows to append, whatever was committed before."""
    return table
