"""Fingerprints: a number for a whole state that is equal wherever the rows are equal.

It is a multiset hash (Clarke et al., "Incremental Multiset Hash Functions and Their Application to Memory Integrity
Checking", 2003): the sum of the rows' hashes modulo 2¹²⁸, which depends neither on the order of the rows nor on their
partitions. A row's hash is added at the epoch where it begins and subtracted where it ends, so one pass over the
versions of a state table gives its fingerprints at all epochs.

A row's hash is that of a text, computed in SQL and the same on every machine. docs/guides/branches.md specifies the
encoding, so that it can be computed without this package. Rows are equal as in :meth:`History.diff`: −0.0 equals 0.0,
all NaNs are equal, NULL is not empty. In addition, the order of a map's entries does not matter, and numbers compare by
value, not by the width of their column.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from operator import itemgetter
from typing import Any

import pandas as pd
import pyarrow as pa

from streamstate.errors import InvalidArgumentError
from streamstate.snapshots.store.duckdb_sql import quoted
from streamstate.state_inspect.branches.ancestors import by_owner
from streamstate.state_inspect.snapshot import Snapshot
from streamstate.state_inspect.temporal_index.interval_table import IntervalTable

_MODULUS = 2**128
_LOW = 2**64 - 1


@dataclass(frozen=True)
class Fingerprint:
    """The number of rows of a state table at an epoch, and the sum of their hashes."""

    rows: int
    digest: int

    def __str__(self) -> str:
        """Return the digest as 32 hexadecimal digits."""
        return f"{self.digest:032x}"


def fingerprint_frame(snapshots: Sequence[Snapshot], tables: Sequence[str]) -> pd.DataFrame:
    """Return one row per epoch and state table, ascending by epoch; see :meth:`History.fingerprints`."""
    found = [row for table in tables for row in _fingerprints(snapshots, table)]
    found.sort(key=itemgetter(0))
    frame = pd.DataFrame(found, columns=["epoch", "table", "rows", "fingerprint"])
    return frame.astype({"epoch": "int64", "rows": "int64"})


def _fingerprints(snapshots: Sequence[Snapshot], table: str) -> Iterator[tuple[int, str, int, str]]:
    having = [(snapshot.epoch, snapshot.history) for snapshot in snapshots if table in snapshot.tables()]
    for history, epochs in by_owner(having):
        intervals = history.recorded.interval_table(table, epochs[0], epochs[-1])
        types = {name: intervals.schema.field(name).type for name in intervals.columns}
        versions = versions_between(intervals, epochs[0], epochs[-1], types)
        sums = history.recorded.index.query(sums_by_epoch(versions)).to_pylist()
        for epoch, fingerprint in fingerprints_at(epochs, sums).items():
            yield epoch, table, fingerprint.rows, str(fingerprint)


def versions_between(
    table: IntervalTable, first: int, last: int, types: Mapping[str, pa.DataType], columns: Iterable[str] = ()
) -> str:
    """Return SQL for the versions that were valid at some epoch from ``first`` to ``last``.

    Columns: the given ones, ``_hash128`` of the columns of ``types``, and ``_begins`` and ``_ends``, the epochs from
    and to which the version was valid, clipped to that range.
    """
    return (
        f"SELECT {''.join(f'{column}, ' for column in columns)}{row_hash(types)} AS _hash128,"
        f" greatest(_valid_from, {first}) AS _begins, least(_valid_to, {last + 1}) AS _ends"
        f" FROM {table.relation} WHERE _valid_from <= {last} AND _valid_to > {first}"
    )


def sums_by_epoch(versions: str) -> str:
    """Return SQL for what begins minus what ends at each epoch: ``rows``, and the hashes' sum in two halves."""
    # Sum for each pair of beginning and end first, so that every row is hashed once.
    return (
        "WITH spans AS MATERIALIZED (SELECT _begins, _ends, count(*)::HUGEINT AS n,"
        f" sum((_hash128 >> 64)::UBIGINT) AS high, sum((_hash128 & {_LOW}::UHUGEINT)::UBIGINT) AS low"
        f" FROM ({versions}) GROUP BY ALL)"
        " SELECT epoch, sum(n)::BIGINT AS rows, sum(high)::VARCHAR AS high, sum(low)::VARCHAR AS low FROM"
        " (SELECT _begins AS epoch, n, high, low FROM spans UNION ALL SELECT _ends, -n, -high, -low FROM spans)"
        " GROUP BY epoch ORDER BY epoch"
    )


def fingerprints_at(epochs: Sequence[int], sums: Sequence[Mapping[str, Any]]) -> dict[int, Fingerprint]:
    """Return the fingerprints at ascending epochs, from the sums of what begins and ends."""
    found, rows, digest, at = {}, 0, 0, 0
    for epoch in epochs:
        while at < len(sums) and sums[at]["epoch"] <= epoch:
            rows += sums[at]["rows"]
            digest += (int(sums[at]["high"]) << 64) + int(sums[at]["low"])
            at += 1
        found[epoch] = Fingerprint(rows, digest % _MODULUS)
    return found


_NAN = "7FF8000000000000"


def row_hash(columns: Mapping[str, pa.DataType]) -> str:
    """Return SQL for the hash of a row: the first 128 bits of the SHA-256 of its encoding, as an unsigned number."""
    return f"('0x' || left(sha256({encoded_row(columns)}), 32))::UHUGEINT"


def encoded_row(columns: Mapping[str, pa.DataType]) -> str:
    r"""Return SQL for the encoding of a row: that of a struct of its columns.

    Example:
        >>> print(encoded_row({"n": pa.int64()}))
        concat('{', 'S1:n' || 'I' || "n"::VARCHAR || ';', '}')
    """
    return _fields({name: (quoted(name), kind) for name, kind in columns.items()}, count())


def encoded_value(value: str, kind: pa.DataType) -> str:
    """Return SQL for the encoding of a value; NULL if the value is NULL."""
    return _encoded(value, kind, count())


def _encoded(value: str, kind: pa.DataType, numbers: count[int]) -> str:
    if pa.types.is_struct(kind):
        fields = {field.name: (f"struct_extract({value}, {_text(field.name)})", field.type) for field in kind}
        return f"CASE WHEN {value} IS NOT NULL THEN {_fields(fields, numbers)} END"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        element = f"e{next(numbers)}"
        item = f"coalesce({_encoded(element, kind.value_type, numbers)}, 'N')"
        return f"'[' || array_to_string(list_transform({value}, lambda {element}: {item}), '') || ']'"
    if pa.types.is_map(kind):
        return f"CASE WHEN {value} IS NOT NULL THEN {_map(value, kind, numbers)} END"
    return _plain(value, kind)


def _map(value: str, kind: pa.MapType, numbers: count[int]) -> str:
    entry = f"e{next(numbers)}"
    key = _encoded(f"struct_extract({entry}, 'key')", kind.key_type, numbers)
    item = _encoded(f"struct_extract({entry}, 'value')", kind.item_type, numbers)
    entries = f"list_transform(map_entries({value}), lambda {entry}: {key} || coalesce({item}, 'N'))"
    return f"'<' || array_to_string(list_sort({entries}), '') || '>'"


def _fields(fields: Mapping[str, tuple[str, pa.DataType]], numbers: count[int]) -> str:
    """Return a row or a struct. NULLs are left out, so that a new column does not change earlier fingerprints."""
    in_order = sorted(fields.items(), key=lambda field: field[0].encode())
    parts = [f"{_text(_named(name))} || {_encoded(value, kind, numbers)}" for name, (value, kind) in in_order]
    return f"concat('{{', {''.join(f'{part}, ' for part in parts)}'}}')"


def _named(name: str) -> str:
    return f"S{len(name.encode())}:{name}"


def _text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _plain(value: str, kind: pa.DataType) -> str:
    found = next((text for is_kind, text in _PLAIN if is_kind(kind)), None)
    if found is None:
        raise InvalidArgumentError(
            f"Columns of type {kind} have no fingerprint.\n"
            "Cast the column in the query, or pass tables= without this table."
        )
    return found(value, kind)


def _bits(value: str) -> str:
    """Return the IEEE 754 bits in hexadecimal digits, with one zero and one NaN."""
    return f"CASE WHEN {value} = 0 THEN '0' WHEN isnan({value}) THEN '{_NAN}' ELSE hex({value}::BIT::UBIGINT) END"


def _digits(value: str, kind: pa.DataType) -> str:
    """Return a decimal's value without trailing zeros, and with a digit before the point."""
    if kind.scale <= 0:
        return f"{value}::VARCHAR"
    short = f"rtrim(rtrim({value}::VARCHAR, '0'), '.')"
    return rf"regexp_replace({short}, '^(-?)(\.|$)', '\10\2')" if kind.scale == kind.precision else short


def _timestamp(value: str, kind: pa.DataType) -> str:
    return f"'{'l' if kind.tz is None else 't'}' || epoch_us({value})::VARCHAR || ';'"


_PLAIN: Sequence[tuple[Callable[[pa.DataType], bool], Callable[[str, pa.DataType], str]]] = [
    (pa.types.is_boolean, lambda value, _: f"CASE WHEN {value} THEN 'T' WHEN NOT {value} THEN 'F' END"),
    (pa.types.is_integer, lambda value, _: f"'I' || {value}::VARCHAR || ';'"),
    (pa.types.is_floating, lambda value, _: f"'D' || {_bits(f'{value}::DOUBLE')} || ';'"),
    (pa.types.is_decimal, lambda value, kind: f"'M' || {_digits(value, kind)} || ';'"),
    (pa.types.is_string, lambda value, _: f"'S' || strlen({value})::VARCHAR || ':' || {value}"),
    (pa.types.is_large_string, lambda value, _: f"'S' || strlen({value})::VARCHAR || ':' || {value}"),
    (pa.types.is_binary, lambda value, _: f"'B' || hex({value}) || ';'"),
    (pa.types.is_large_binary, lambda value, _: f"'B' || hex({value}) || ';'"),
    (pa.types.is_date, lambda value, _: f"'d' || ({value}::DATE - DATE '1970-01-01')::VARCHAR || ';'"),
    (pa.types.is_timestamp, _timestamp),
    (pa.types.is_null, lambda _, __: "NULL::VARCHAR"),
]
"""The encoding of values that are not nested, by type."""
