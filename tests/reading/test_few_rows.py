"""Small epochs are added to the index one at a time, and nothing accumulates in memory."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import duckdb
import pyarrow as pa
import pytest

from streamstate.state_inspect.temporal_index.small_append import FEW_ROWS, NEVER, few, patch

_LOG = pa.schema(
    [
        ("_epoch", pa.int64()),
        ("_change", pa.string()),
        ("_partition", pa.int32()),
        ("a key", pa.string()),
        ("other", pa.float64()),
        ("value", pa.int64()),
    ]
)
_KEYS = ["a key", "other"]
_PER_EPOCH = 3_500
"""Limit of the memory growth per epoch of 50 rows, in bytes: 1,700 measured; 5,700 with a join for the hashes."""

_GROWTH = """
import ctypes, duckdb, pyarrow as pa
from reading.test_few_rows import MallocInfo, _table, _KEYS, _LOG
from streamstate.state_inspect.temporal_index.small_append import patch
database = _table()
libc = ctypes.CDLL(None)
libc.mallinfo2.restype = MallocInfo
def epochs(first, last):
    for epoch in range(first, last):
        rows = [(epoch, "put", 0, f"key {(epoch * 7 + at) % 1000}", 1.0, epoch) for at in range(50)]
        columns = [pa.array(column, kind) for column, kind in zip(zip(*rows), _LOG.types)]
        database.execute("BEGIN")
        patch(database, "held", pa.table(columns, schema=_LOG), _KEYS, [*_KEYS, "value"], versions=1000)
        database.execute("COMMIT")
epochs(0, 100)
before = libc.mallinfo2().uordblks
epochs(100, 500)
print((libc.mallinfo2().uordblks - before) // 400)
"""


_PER_LOOK = 3_500
"""Limit of the memory growth per epoch read, in bytes: 1,800 measured; 4,300 with a join for the hashes."""

_LOOKS = """
import ctypes, pathlib, tempfile
from reading.test_few_rows import MallocInfo
from synthetic import write
import streamstate as ss
libc = ctypes.CDLL(None)
libc.mallinfo2.restype = MallocInfo
with tempfile.TemporaryDirectory() as folder:
    store = pathlib.Path(folder) / "store"
    state, states = {f"key {at:04}": 0 for at in range(1000)}, []
    for epoch in range(6):
        states.append(dict(state))
        state |= {f"key {(epoch * 50 + at) % 1000:04}": epoch + 1 for at in range(50)}
    write(store, states)
    history = ss.open_store(store)["q"]
    def look(times):
        for at in range(times):
            assert history.diff(at % 5, at % 5 + 1).counts["changed"] == 50
            rows = history.at(at % 6).table().lookup_many([{"key": f"key {number:04}"} for number in range(10)])
            assert len(rows) == 10
    look(50)
    before = libc.mallinfo2().uordblks
    look(300)
    print((libc.mallinfo2().uordblks - before) // 300)
"""


class MallocInfo(ctypes.Structure):
    """Memory statistics of glibc; ``uordblks`` is the memory in use."""

    _fields_ = [(f"other{at}", ctypes.c_size_t) for at in range(7)]
    _fields_ += [(name, ctypes.c_size_t) for name in ("uordblks", "fordblks", "keepcost")]


def _table() -> duckdb.DuckDBPyConnection:
    database = duckdb.connect()
    database.execute(
        "CREATE TABLE held (_hash UBIGINT, _valid_from BIGINT, _valid_to BIGINT, _partition INTEGER,"
        ' "a key" VARCHAR, other DOUBLE, value BIGINT)'
    )
    return database


def _apply(database: duckdb.DuckDBPyConnection, *rows: tuple[object, ...]) -> int:
    columns = [pa.array(list(column), kind) for column, kind in zip(zip(*rows, strict=True), _LOG.types, strict=True)]
    return patch(database, "held", pa.table(columns, schema=_LOG), _KEYS, [*_KEYS, "value"], versions=1000)


def _versions(database: duckdb.DuckDBPyConnection) -> list[tuple[object, ...]]:
    return database.execute('SELECT "a key", value, _valid_from, _valid_to FROM held ORDER BY ALL').fetchall()


def test_a_newer_row_of_a_key_ends_the_one_before() -> None:
    """Each version of a key starts where the one before ends, also within one update; a delete only ends one."""
    database = _table()
    assert _apply(database, (1, "put", 0, "x", 0.5, 1), (2, "put", 0, "x", 0.5, 2), (2, "put", 0, "y", 0.5, 3)) == 3
    assert _apply(database, (4, "delete", 0, "y", 0.5, None)) == 0
    assert _versions(database) == [("x", 1, 1, 2), ("x", 2, 2, NEVER), ("y", 3, 2, 4)]


def test_null_and_nan_are_keys_like_others() -> None:
    """NULL equals NULL in a key, and NaN equals NaN, as for the reader of the changelog."""
    database = _table()
    _apply(database, (1, "put", 0, None, float("nan"), 1), (1, "put", 0, None, None, 2))
    _apply(database, (2, "put", 0, None, float("nan"), 3))
    assert _versions(database) == [(None, 1, 1, 2), (None, 2, 1, NEVER), (None, 3, 2, NEVER)]


def test_many_rows_or_epochs_are_not_few() -> None:
    """Above a limit the rows are joined, which is faster then."""
    epoch_rows = pa.table({"_epoch": [1] * FEW_ROWS})
    assert few(epoch_rows)
    assert not few(pa.concat_tables([epoch_rows, epoch_rows]))
    assert not few(pa.table({"_epoch": list(range(30))}))


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="counts with glibc's own figures")
def test_adding_epochs_keeps_only_their_versions() -> None:
    """Joins and windows would leave block handles in DuckDB's queues; adding few rows does not use them."""
    ran = subprocess.run([sys.executable, "-c", _GROWTH], capture_output=True, text=True, cwd="tests", check=False)
    assert ran.returncode == 0, ran.stderr
    assert int(ran.stdout) < _PER_EPOCH


@pytest.mark.exhaustive
@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="counts with glibc's own figures")
def test_looking_at_few_rows_joins_nothing() -> None:
    """A view does this at each epoch: it counts the changes, and reads the rows that it shows."""
    ran = subprocess.run([sys.executable, "-c", _LOOKS], capture_output=True, text=True, cwd="tests", check=False)
    assert ran.returncode == 0, ran.stderr
    assert int(ran.stdout) < _PER_LOOK
