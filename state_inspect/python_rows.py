"""Rows of Arrow tables as Python objects, in which nothing is lost: the way of every value to where it is shown.

Missing values are None at any depth, apart from NaN. Integers stay integers, and times keep their zone. Arrow's own
``to_pylist`` returns the same, one scalar at a time, which takes ten times as long.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pyarrow as pa

_AS_OBJECTS = {"integer_object_nulls": True, "date_as_object": True, "timestamp_as_object": True}


def row_tuples(table: pa.Table) -> list[tuple[Any, ...]]:
    """Return the rows by position, because column names of the state are arbitrary and may repeat."""
    return list(zip(*map(python_values, table.columns), strict=True))


def records(table: pa.Table) -> list[dict[str, Any]]:
    """Return the rows, each as a dictionary."""
    return [dict(zip(table.column_names, row, strict=True)) for row in row_tuples(table)]


def python_values(column: pa.ChunkedArray | pa.Array) -> list[Any]:
    """Return the values of a column. Structs and maps are dicts; a map with nested keys is a list of pairs.

    Example:
        >>> python_values(pa.array([[1, None], None]))
        [[1, None], None]
        >>> python_values(pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())))
        [{'a': 1}]
    """
    if isinstance(column, pa.ChunkedArray):
        return [value for chunk in column.chunks for value in python_values(chunk)]
    kind = column.type
    if pa.types.is_struct(kind):
        names = [field.name for field in kind]
        found = [dict(zip(names, row, strict=True)) for row in zip(*map(python_values, column.flatten()), strict=True)]
    elif pa.types.is_map(kind):
        keys, items = (python_values(part) for part in _items(column).flatten())
        found = _split(list(zip(keys, items, strict=True)), column)
        found = found if pa.types.is_nested(kind.key_type) else list(map(dict, found))
    elif pa.types.is_list(kind):
        found = _split(python_values(_items(column)), column)
    elif pa.types.is_floating(kind):
        found = column.to_numpy(zero_copy_only=False).tolist()
    else:
        return _objects(column)
    return found if not column.null_count else _with_nulls(found, column)


def _objects(column: pa.Array) -> list[Any]:
    """Return the values of a column that pandas keeps as they are."""
    if pa.types.is_duration(column.type) or pa.types.is_dictionary(column.type):
        return list(column.to_pylist())
    return list(column.to_pandas(**_AS_OBJECTS).tolist())


def _items(column: pa.ListArray) -> pa.Array:
    """Return the items of all lists. Those of a slice are a slice of the items."""
    return column.values[column.offsets[0].as_py() : column.offsets[-1].as_py()]


def _split(items: list[Any], column: pa.ListArray) -> list[Any]:
    """Return the items, list by list."""
    ends = column.offsets.to_numpy().tolist()
    return [items[start - ends[0] : end - ends[0]] for start, end in pairwise(ends)]


def _with_nulls(values: list[Any], column: pa.Array) -> list[Any]:
    return [value if valid else None for value, valid in zip(values, column.is_valid().to_pylist(), strict=True)]
