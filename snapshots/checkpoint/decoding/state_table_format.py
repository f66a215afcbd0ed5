"""On-disk format of a state table."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeAlias

SparkType: TypeAlias = str | dict[str, Any]
"""A type as Spark writes it in JSON: ``"long"``, ``"decimal(10,2)"``, ``{"type": "struct", "fields": […]}``."""


class KeyEncoding(Enum):
    """The encodings of a key's columns as bytes."""

    ROW = "one row"
    PREFIX = "a row of the first columns, then a row of the others"
    RANGE = "the first columns as bytes that sort like their values, then a row of the others"
    TIME_FIRST = "an event time in eight bytes, then a row"
    TIME_LAST = "a row, then an event time in eight bytes"


@dataclass(frozen=True)
class Part:
    """A column of Spark's state reader, such as ``key``, ``value``, ``user_map_key``, and the fields that it holds."""

    name: str
    of_key: bool
    """True if it comes from the key; otherwise it comes from the value."""
    path: tuple[int, ...] = ()
    """Positions of nested fields; empty: the whole struct."""


@dataclass(frozen=True)
class TableFormat:
    """The place and the encoding of a state table's changes."""

    operator: int
    store: str
    """The store's folder in a partition's; empty for the operator's only store."""
    store_index: int
    """The store's place in the commit log's ``stateUniqueIds[operator][partition]``."""
    provider: str
    """``RocksDB`` or ``HDFS``."""
    key: dict[str, Any]
    """The struct type of the encoded key."""
    value: dict[str, Any]
    """The struct type of the encoded value."""
    parts: tuple[Part, ...]
    """The columns that Spark's state reader returns, in its order."""
    key_encoding: KeyEncoding = KeyEncoding.ROW
    prefix: int = 0
    """The number of columns in the first part of a key that has two."""
    family: str | None = None
    """The table's column family; None if the store has no virtual column families."""
    family_id: int | None = None
    """The family's number, which precedes each key."""
    several: bool = False
    """True if a value is a sequence of rows, such as a list's elements."""
    delimited: bool = True
    """True if one byte separates those rows: so before ``mergeOperatorVersion`` 2."""
    row_checksums: bool = False
