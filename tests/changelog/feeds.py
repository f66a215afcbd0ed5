"""The oracle of the changelog reader: what Spark reads, row by row, bit by bit.

Changes are compared in Spark's order. Whole states have no order but that of the elements of a list.
"""

from __future__ import annotations

import struct
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from streamstate.snapshots.capture.change_rows import with_positions
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.checkpoint.decoding.reader import changes, columns_of
from streamstate.snapshots.checkpoint.decoding.state_schema import table_formats
from streamstate.snapshots.checkpoint.decoding.state_table_format import TableFormat
from streamstate.snapshots.checkpoint.decoding.whole_state import whole_state
from streamstate.snapshots.checkpoint.state_tables import StateSource
from streamstate.snapshots.spark.state_reader import StateReader, StateRows


def tables(reader: StateReader, epoch: int) -> list[tuple[StateSource, Any]]:
    """The state tables of an epoch as Spark knows them, each with its format or why it has none."""
    return list(zip(reader.sources(epoch), table_formats(CheckpointFiles(reader.checkpoint.path), epoch), strict=True))


def compare_all(spark: SparkSession, path: Path) -> int:
    """Compare every table at every epoch with Spark's feed; return the number of comparisons."""
    reader, checkpoint = StateReader(spark, CheckpointFiles(path, spark)), CheckpointFiles(path)
    compared = 0
    epochs = checkpoint.committed()
    for epoch in epochs:
        for source, table in tables(reader, epoch):
            if reader.has_feed(source, [epoch]):
                assert isinstance(table, TableFormat), f"{source.table} at epoch {epoch}: {table}"
                compare(reader, source, table, epoch, epoch)
                compared += 1
    for source, table in tables(reader, epochs[-1]):
        together = reader.together(epochs)
        if reader.has_feed(source, together) and together[-1] == epochs[-1]:
            compare(reader, source, table, together[0], together[-1])
            compared += 1
    return compared


def compare_runs(spark: SparkSession, path: Path) -> int:
    """Compare as many epochs at once as Spark's feed covers; return the number of tables times epochs."""
    reader = StateReader(spark, CheckpointFiles(path, spark))
    compared, rest = 0, CheckpointFiles(path).committed()
    while rest:
        together = reader.together(rest)
        for source, table in tables(reader, together[-1]):
            if reader.has_feed(source, together):
                assert isinstance(table, TableFormat), f"{source.table} at epoch {together[-1]}: {table}"
                compare(reader, source, table, together[0], together[-1])
                compared += len(together)
        rest = rest[len(together) :]
    return compared


def compare(reader: StateReader, source: StateSource, table: TableFormat, first: int, last: int) -> None:
    """Compare a table's changes in some epochs with Spark's feed."""
    expected = reader.changes(source, first, last)
    found = changes(CheckpointFiles(reader.checkpoint.path), table, first, last)
    found.validate(full=True)
    what = f"{source.table} at epochs {first} to {last}"
    named = columns_of(table)
    assert (named.keys, named.values) == (expected.columns.keys, expected.columns.values), what
    assert found.schema == expected.rows.schema, what
    assert same_bits(found, expected.rows), f"{what}: {found.to_pylist()} instead of {expected.rows.to_pylist()}"


def compare_states(spark: SparkSession, path: Path) -> int:
    """Compare every table's whole state at every epoch with Spark's; return the number of comparisons."""
    reader, checkpoint = StateReader(spark, CheckpointFiles(path, spark)), CheckpointFiles(path)
    compared = 0
    for epoch in checkpoint.committed():
        for source, table in tables(reader, epoch):
            assert isinstance(table, TableFormat), f"{source.table} at epoch {epoch}: {table}"
            found = whole_state(checkpoint, table, [epoch])
            found.validate(full=True)
            expected = reader.whole(source, [epoch])
            what = f"{source.table} at epoch {epoch}"
            named = columns_of(table)
            assert (named.keys, named.values) == (expected.columns.keys, expected.columns.values), what
            assert found.schema == expected.rows.schema, what
            ours, theirs = state_rows(StateRows(named, found)), state_rows(expected)
            assert ours == theirs, f"{what}: {ours - theirs} instead of {theirs - ours}"
            compared += 1
    return compared


def state_rows(state: StateRows) -> Counter[str]:
    """The rows of a whole state, with the positions of list elements, and how often each occurs."""
    return Counter(repr(_of_value(row)) for row in with_positions(state.rows, state.columns).to_pylist())


def same_bits(found: pa.Table, expected: pa.Table) -> bool:
    """Return whether two tables have the same values; NaNs and signed zeros are compared by their bits."""
    return found.num_rows == expected.num_rows and all(
        _bits(column) == _bits(other) for column, other in zip(found.columns, expected.columns, strict=True)
    )


def _bits(column: pa.ChunkedArray) -> list[Any]:
    return [_of_value(value) for value in column.to_pylist()]


def _of_value(value: Any) -> Any:
    if isinstance(value, float):
        return struct.pack("<d", value)
    if isinstance(value, dict):
        return [(name, _of_value(member)) for name, member in value.items()]
    if isinstance(value, list | tuple):
        return [_of_value(member) for member in value]
    return value
