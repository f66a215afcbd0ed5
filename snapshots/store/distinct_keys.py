"""The last row of each key, found without a database where no key occurs twice."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streamstate.snapshots.store.duckdb_sql import embedded, listed

_MOST_CODES = 2**62


def last_rows(keys: pa.Table) -> npt.NDArray[np.bool_] | None:
    """For each row of key columns, whether its key does not come again; None if no key does.

    NULL equals NULL, NaN equals NaN, and the two zeros of a floating-point number are equal, as in DuckDB.
    """
    if _are_distinct(keys):
        return None
    database = embedded()
    database.register("keys", keys.append_column("_row", pa.array(np.arange(keys.num_rows))))
    grouped = database.sql(f"SELECT max(_row) AS _row FROM keys GROUP BY {listed(keys.column_names)}")
    last = np.zeros(keys.num_rows, np.bool_)
    last[grouped.fetchnumpy()["_row"]] = True
    return last


def _are_distinct(keys: pa.Table) -> bool:
    """Return whether no two rows are equal; False, too, where only DuckDB can compare them."""
    codes, bound = np.zeros(keys.num_rows, np.int64), 1
    for column in _flat(keys):
        if column is None:
            return False
        encoded = pc.dictionary_encode(column, null_encoding="encode")
        size = max(len(encoded.dictionary), 1)
        if size == keys.num_rows:
            return True
        bound *= size
        if bound > _MOST_CODES:
            return False
        codes = codes * size + encoded.indices.to_numpy()
    codes.sort()
    return not (codes[1:] == codes[:-1]).any()


def _flat(keys: pa.Table) -> Iterator[pa.Array | None]:
    """Return the columns, those of structs too; None for one that Arrow does not compare as DuckDB does."""
    for column in keys.columns:
        array = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
        yield from _fields(array)


def _fields(array: pa.Array) -> Iterator[pa.Array | None]:
    if pa.types.is_struct(array.type):
        for field in array.flatten():  # a null struct becomes one of nulls, so that both count as equal
            yield from _fields(field)
    elif pa.types.is_nested(array.type) or pa.types.is_floating(array.type):
        yield None
    else:
        yield array
