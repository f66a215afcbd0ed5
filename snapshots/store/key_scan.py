"""The rows of some keys in a change log, from the files and row groups that may have them.

Merged files are sorted by key (see ``merging``), so that the statistics of a row group tell whether it can have a
key. In other files the key columns are read, and the other columns only of the row groups in which a key is found.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from streamstate.snapshots.checkpoint.state_tables import CHANGE, EPOCH
from streamstate.snapshots.store.changelog import KEYFRAME
from streamstate.snapshots.store.delta.data_files import fitted, verified
from streamstate.snapshots.store.delta.reading import Committed, TableVersion, cannot_read

# Arrow uses several threads for the columns of a file, but a key seldom has more than two.
_FILES_AT_ONCE = 2


class KeyScan:
    """A reader of some keys' rows.

    Args:
        version: the change log.
        keys: values of some of its key columns, a row per key.
        keyframe: the keyframe to start from; None for changes alone.
        last: the last epoch.
        after: for changes alone, the epoch after which they were made; None for all.
    """

    def __init__(
        self, version: TableVersion, keys: pa.Table, keyframe: int | None, last: int, after: int | None = None
    ) -> None:
        self._version = version
        self._schema = version.schema
        self._keyframe = keyframe
        self._first = keyframe if after is None else after + 1
        self._last = last
        self._wanted = {path: (values, _range(values)) for path, values in leaves(keys).items()}

    def rows(self) -> Iterator[tuple[pa.Table, int]]:
        """For each file the rows of the keys, perhaps with some of other keys, and how many rows the file has.

        Raises:
            DamagedStoreError: a file is missing or its bytes have changed.
            StoreError: a file cannot be read.
        """
        files = [file for file in self._version.files(EPOCH) if self._may_hold(file)]
        pool = ThreadPoolExecutor(_FILES_AT_ONCE)
        try:
            yield from zip(pool.map(self._of_file, files), (file.rows or 0 for file in files), strict=True)
        finally:
            pool.shutdown(cancel_futures=True)

    def _may_hold(self, file: Committed) -> bool:
        if file.only_change == KEYFRAME:
            return self._keyframe is not None and file.may_hold(self._keyframe, self._keyframe)
        return file.may_hold(self._first, self._last)

    def _of_file(self, file: Committed) -> pa.Table:
        place = self._version.place
        with cannot_read(place), pq.ParquetFile(verified(place, file.path, file.size)) as opened:
            metadata = opened.metadata
            numbers = {metadata.schema.column(at).path: at for at in range(metadata.num_columns)}
            ranges = {numbers[path]: limits for path, (_, limits) in self._wanted.items() if path in numbers}
            groups = [
                group
                for group in range(opened.num_row_groups)
                if all(_may_have(metadata.row_group(group).column(at), limits) for at, limits in ranges.items())
            ]
            found = [rows for group in groups if (rows := self._of_group(opened, group)) is not None]
        return pa.concat_tables([self._schema.empty_table(), *(fitted(rows, self._schema) for rows in found)])

    def _of_group(self, opened: pq.ParquetFile, group: int) -> pa.Table | None:
        """Return the rows of a row group; None if it has none."""
        names = [name for name in opened.schema_arrow.names if name in self._schema.names]
        first = {EPOCH, CHANGE, *(path.split(".")[0] for path in self._wanted)}

        def read(columns: list[str]) -> pa.Table:
            return opened.read_row_group(group, columns=columns, use_threads=False)

        rows = read([name for name in names if name in first])
        kept = self._has_epoch(rows)
        for path, (values, _) in self._wanted.items():
            kept = pc.and_(kept, pc.is_in(_leaf(rows, path), value_set=values))
        places = pc.indices_nonzero(kept)
        if not len(places):
            return None
        found, rest = rows.take(places), [name for name in names if name not in first]
        others = read(rest).take(places) if rest else pa.table({})
        return pa.table([*found.columns, *others.columns], names=[*found.column_names, *rest])

    def _has_epoch(self, rows: pa.Table) -> pa.ChunkedArray:
        epochs, of_keyframe = rows[EPOCH], pc.equal(rows[CHANGE], KEYFRAME)
        kept = pc.and_(pc.invert(of_keyframe), pc.less_equal(epochs, self._last))
        if self._keyframe is not None:
            begins = pc.and_(of_keyframe, pc.equal(epochs, self._keyframe))
            return pc.or_(begins, pc.and_(kept, pc.greater(epochs, self._keyframe)))
        return kept if self._first is None else pc.and_(kept, pc.greater_equal(epochs, self._first))


def leaves(keys: pa.Table) -> dict[str, pa.ChunkedArray]:
    """Return the values of columns and structs' fields that can be compared alone, by their paths in Parquet."""
    found: dict[str, pa.ChunkedArray] = {}

    def add(path: str, values: pa.ChunkedArray) -> None:
        if pa.types.is_struct(values.type):
            for field in values.type:
                add(f"{path}.{field.name}", pc.struct_field(values, field.name))
        elif not (
            pa.types.is_nested(values.type) or pa.types.is_floating(values.type) or pa.types.is_null(values.type)
        ):
            found[path] = values

    for name in keys.column_names:
        if "." not in name and not any("." in field for field in _fields(keys[name].type)):
            add(name, keys[name])
    return found


def _fields(kind: pa.DataType) -> list[str]:
    """Return the names of a struct's fields, and of those within them."""
    if not pa.types.is_struct(kind):
        return []
    return [name for field in kind for name in (field.name, *_fields(field.type))]


def _leaf(rows: pa.Table, path: str) -> pa.ChunkedArray:
    name, *fields = path.split(".")
    return pc.struct_field(rows[name], fields) if fields else rows[name]


def _range(values: pa.ChunkedArray) -> tuple[Any, Any] | None:
    """Return the smallest and the largest value; None if one is missing, or they have no order."""
    if values.null_count or not len(values):
        return None
    try:
        limits = pc.min_max(values).as_py()
    except pa.ArrowNotImplementedError:
        return None
    return limits["min"], limits["max"]


def _may_have(column: pq.ColumnChunkMetaData, limits: tuple[Any, Any] | None) -> bool:
    """Return whether a row group's column may have a value within some limits."""
    statistics = column.statistics
    if limits is None or statistics is None or not statistics.has_min_max:
        return True
    try:
        return bool(statistics.min <= limits[1] and statistics.max >= limits[0])
    except TypeError:  # values of different kinds, such as times with and without a zone
        return True
