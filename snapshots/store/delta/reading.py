"""Reading a table's rows from its verified files, as a stream."""

from __future__ import annotations

import contextlib
import functools
import operator
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from streamstate.errors import StoreError, StreamStateError, UntrustedStoreError
from streamstate.snapshots.checkpoint.state_tables import CHANGE
from streamstate.snapshots.store.delta.data_files import fitted, verified
from streamstate.snapshots.store.delta.place import Place
from streamstate.snapshots.store.names import is_base_name

if TYPE_CHECKING:
    from deltalake import DeltaTable

# Small files of which so many are read, so many at a time.
_MANY, _FILES_AT_ONCE = 8, 4


@dataclass(frozen=True)
class Committed:
    """A data file of a table's version, as described in the log."""

    path: str
    size: int
    rows: int | None
    least: int | None
    """The smallest value of the column by which files are selected; None if the log does not have it."""
    most: int | None
    only_change: str | None = None
    """The value that a change log's column of changes has in all rows, if the log says so."""

    def may_hold(self, first: int | None, last: int | None) -> bool:
        """Return whether it can have a row between two values of that column, both included."""
        if self.least is None or self.most is None:
            return True
        return (first is None or self.most >= first) and (last is None or self.least <= last)


@contextlib.contextmanager
def cannot_read(place: Place) -> Iterator[None]:
    """Turn what Arrow raises while it reads a table's files into a StoreError.

    Raises:
        StoreError: a file cannot be read.
    """
    try:
        yield
    except StreamStateError:
        raise
    except (OSError, pa.ArrowException) as error:
        raise StoreError(f"The files of {place} cannot be read: {error}") from error


@dataclass(frozen=True)
class TableVersion:
    """A table at a handle's version."""

    place: Place
    table: DeltaTable

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        return pa.schema(self.table.schema().to_arrow())

    def files(self, by: str) -> list[Committed]:
        """Return the data files, ordered by an integer column.

        Raises:
            UntrustedStoreError: the log names a file outside the table's folder. Delta allows absolute paths (shallow
                clones have them); streamstate never writes one.
        """
        actions = pa.table(self.table.get_add_actions(flatten=True))
        names = actions.schema.names

        def values(name: str) -> list[Any]:
            return actions[name].to_pylist() if name in names else [None] * actions.num_rows

        fields = ("path", "size_bytes", "num_records", f"min.{by}", f"max.{by}")
        kinds = zip(values(f"min.{CHANGE}"), values(f"max.{CHANGE}"), strict=True)
        for path in values("path"):
            # Delta's paths are URIs, which may be percent-encoded.
            if not is_base_name(path) or not is_base_name(unquote(path)):
                raise UntrustedStoreError.path(self.place, path)
        found = map(Committed, *map(values, fields), (least if least == most else None for least, most in kinds))
        return sorted(found, key=lambda file: (-1 if file.least is None else file.least, file.path))

    def scan(
        self,
        by: str,
        first: int | None = None,
        last: int | None = None,
        *,
        columns: Sequence[str] | None = None,
        where: pc.Expression | None = None,
    ) -> pa.RecordBatchReader:
        """Return the rows with ``by`` from ``first`` to ``last`` (included; None: no limit) that satisfy ``where``.

        Files are selected by the log's statistics, verified and streamed, so memory is bounded.

        Raises:
            DamagedStoreError: a file is missing or its bytes have changed.
        """
        chosen = [file for file in self.files(by) if file.may_hold(first, last)]
        bounds: list[pc.Expression] = [] if where is None else [where]
        if first is not None:
            bounds.append(pc.field(by) >= first)
        if last is not None:
            bounds.append(pc.field(by) <= last)
        condition = functools.reduce(operator.and_, bounds) if bounds else None
        return self.scan_files(chosen, columns=columns, where=condition)

    def read(self, by: str, first: int | None = None, *, columns: Sequence[str] | None = None) -> pa.Table:
        """As :meth:`scan`, but returns a table.

        Raises:
            DamagedStoreError: as :meth:`scan`.
            StoreError: a file cannot be read.
        """
        with cannot_read(self.place):
            schema = self.schema
            wanted = schema if columns is None else pa.schema([schema.field(name) for name in columns])
            chosen = [file for file in self.files(by) if file.may_hold(first, None)]
            if len(chosen) < _MANY:
                pieces = [self._rows(file, by, first, wanted) for file in chosen]
            else:
                with ThreadPoolExecutor(_FILES_AT_ONCE) as pool:
                    pieces = list(pool.map(lambda file: self._rows(file, by, first, wanted), chosen))
            return pa.concat_tables([wanted.empty_table(), *pieces])

    def _rows(self, file: Committed, by: str, first: int | None, wanted: pa.Schema) -> pa.Table:
        """Return a file's rows from a value on; without a dataset, which takes longer to load than a small file."""
        with pq.ParquetFile(verified(self.place, file.path, file.size)) as opened:
            needed = [name for name in opened.schema_arrow.names if name in wanted.names or name == by]
            rows = opened.read(needed, use_threads=False)
        if first is not None and (file.least is None or file.least < first):
            rows = rows.filter(pc.greater_equal(rows[by], first))
        return fitted(rows, wanted)

    def scan_files(
        self, files: Sequence[Committed], *, columns: Sequence[str] | None = None, where: pc.Expression | None = None
    ) -> pa.RecordBatchReader:
        """Return the rows of some of the files, verified, in the files' order.

        Raises:
            DamagedStoreError: a file is missing or its bytes have changed.
        """
        schema = self.schema
        paths = [str(verified(self.place, file.path, file.size)) for file in files]
        names = list(columns) if columns is not None else schema.names
        if not paths:
            return pa.RecordBatchReader.from_batches(pa.schema([schema.field(name) for name in names]), [])
        import pyarrow.dataset as ds  # takes 50 ms, and a capture does not need it

        return ds.dataset(paths, schema=schema).scanner(columns=names, filter=where).to_reader()
