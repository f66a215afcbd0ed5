"""Rows of a table from its verified files, as a stream."""

from __future__ import annotations

import contextlib
import functools
import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from streamstate.snapshots.delta.data_files import verified
from streamstate.snapshots.delta.place import Place
from streamstate.snapshots.errors import StoreError, StreamStateError

if TYPE_CHECKING:
    from deltalake import DeltaTable


@dataclass(frozen=True)
class Committed:
    """A data file of a table's version, with what the log says of it."""

    path: str
    size: int
    rows: int | None
    least: int | None
    """The smallest value of the column by which files are chosen; None where the log does not say."""
    most: int | None

    def may_hold(self, first: int | None, last: int | None) -> bool:
        """Whether it can hold a row between two values of that column, both included."""
        if self.least is None or self.most is None:
            return True
        return (first is None or self.most >= first) and (last is None or self.least <= last)


@contextlib.contextmanager
def cannot_read(place: Place) -> Iterator[None]:
    """Turn what Arrow raises while it reads a table's files into an error of ours.

    Raises:
        StoreError: as said.
    """
    try:
        yield
    except StreamStateError:
        raise
    except (OSError, pa.ArrowException) as error:
        raise StoreError(f"The files of {place} cannot be read: {error}") from error


@dataclass(frozen=True)
class TableVersion:
    """A table as of the version at which a handle stands."""

    place: Place
    table: DeltaTable

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        return pa.schema(self.table.schema().to_arrow())

    def files(self, by: str) -> list[Committed]:
        """The data files, by ascending values of a whole-number column."""
        actions = pa.table(self.table.get_add_actions(flatten=True))
        names = actions.schema.names

        def values(name: str) -> list[Any]:
            return actions[name].to_pylist() if name in names else [None] * actions.num_rows

        wanted = ("path", "size_bytes", "num_records", f"min.{by}", f"max.{by}")
        found = map(Committed, *map(values, wanted))
        return sorted(found, key=lambda one: (-1 if one.least is None else one.least, one.path))

    def scan(
        self,
        by: str,
        first: int | None = None,
        last: int | None = None,
        *,
        columns: Sequence[str] | None = None,
        where: pc.Expression | None = None,
    ) -> pa.RecordBatchReader:
        """The rows whose ``by`` lies between ``first`` and ``last`` (both included; None: no limit) and fit ``where``.

        Files are chosen by the log's statistics, verified, and streamed, so that memory stays bounded.

        Raises:
            DamagedStoreError: where a file is missing or its bytes changed.
        """
        chosen = [one for one in self.files(by) if one.may_hold(first, last)]
        bounds: list[pc.Expression] = [] if where is None else [where]
        if first is not None:
            bounds.append(pc.field(by) >= first)
        if last is not None:
            bounds.append(pc.field(by) <= last)
        condition = functools.reduce(operator.and_, bounds) if bounds else None
        return self.scan_files(chosen, columns=columns, where=condition)

    def read(self, by: str, first: int | None = None, *, columns: Sequence[str] | None = None) -> pa.Table:
        """The same as :meth:`scan`, as a table.

        Raises:
            DamagedStoreError: as :meth:`scan`.
            StoreError: where a file cannot be read.
        """
        with cannot_read(self.place):
            return self.scan(by, first, columns=columns).read_all()

    def scan_files(
        self, files: Sequence[Committed], *, columns: Sequence[str] | None = None, where: pc.Expression | None = None
    ) -> pa.RecordBatchReader:
        """The rows of some of the files, verified, in the files' order.

        Raises:
            DamagedStoreError: where a file is missing or its bytes changed.
        """
        schema = self.schema
        paths = [str(verified(self.place, one.path)) for one in files]
        wanted = list(columns) if columns is not None else schema.names
        if not paths:
            return pa.RecordBatchReader.from_batches(pa.schema([schema.field(name) for name in wanted]), [])
        return ds.dataset(paths, schema=schema).scanner(columns=wanted, filter=where).to_reader()
