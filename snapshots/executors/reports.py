"""What a task on an executor tells the driver: the files it wrote, and what each epoch changed.

A task's answer is rows of one schema; Spark hands the driver those of the tasks that succeeded, each once, whatever
was retried or run twice for speed. Only files that are named in them are committed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamstate.snapshots.delta.data_files import DataFile

Digests = npt.NDArray[np.uint64]

_SCHEMA = pa.schema(
    [
        ("problem", pa.string()),
        ("engine", pa.string()),
        ("epoch", pa.int64()),
        ("changes", pa.int64()),
        ("live", pa.int64()),
        ("puts", pa.binary()),
        ("deletes", pa.binary()),
        ("path", pa.string()),
        ("size", pa.int64()),
        ("rows", pa.int64()),
        ("modified", pa.int64()),
        ("statistics", pa.string()),
    ]
)

SPARK_SCHEMA = (
    "problem string, engine string, epoch bigint, changes bigint, live bigint, puts binary, deletes binary,"
    " path string, size bigint, rows bigint, modified bigint, statistics string"
)
"""The same for Spark."""


@dataclass(frozen=True)
class EpochReport:
    """What a piece of one epoch changed."""

    epoch: int
    changes: int
    """Rows of the change log."""
    live: int
    """Rows of the whole state, where the task saw it; otherwise 0, and the digests tell."""
    puts: Digests
    """Digests of the keys that live after the epoch."""
    deletes: Digests
    """Digests of the keys that it removed."""


@dataclass(frozen=True)
class Reports:
    """All that the tasks of one job told."""

    files: list[DataFile]
    epochs: list[EpochReport]
    problems: list[str]
    engines: set[str]
    """The versions of DuckDB that made digests."""


def problem(text: str) -> pa.RecordBatch:
    """A task cannot do its work, and the driver is to say why."""
    return _row(problem=text)


def file_written(file: DataFile) -> pa.RecordBatch:
    """A file stands complete."""
    return _row(**{one.name: getattr(file, one.name) for one in fields(file)})


def epoch_done(
    epoch: int, changes: int, *, live: int = 0, puts: Digests | None = None, deletes: Digests | None = None
) -> pa.RecordBatch:
    """A piece of an epoch is in the file."""
    made = puts is not None or deletes is not None
    return _row(
        engine=duckdb.__version__ if made else None,
        epoch=epoch,
        changes=changes,
        live=live,
        puts=b"" if puts is None else puts.tobytes(),
        deletes=b"" if deletes is None else deletes.tobytes(),
    )


def read(told: pa.Table) -> Reports:
    """The answers of a job's tasks."""
    rows = [row for batch in told.to_batches() for row in _rows(batch)]
    return Reports(
        [DataFile(**{one.name: row[one.name] for one in fields(DataFile)}) for row in rows if row["path"] is not None],
        [_epoch(row) for row in rows if row["epoch"] is not None],
        sorted({row["problem"] for row in rows if row["problem"] is not None}),
        {row["engine"] for row in rows if row["engine"] is not None},
    )


def _rows(batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    columns = {name: batch[name] for name in _SCHEMA.names}
    for at in range(batch.num_rows):
        # Digests stay where they are: as_py() of megabytes would copy them.
        yield {
            name: column[at].as_buffer() if name in ("puts", "deletes") else column[at].as_py()
            for name, column in columns.items()
        }


def _epoch(row: dict[str, Any]) -> EpochReport:
    puts, deletes = (np.frombuffer(row[name] or b"", np.uint64) for name in ("puts", "deletes"))
    return EpochReport(row["epoch"], row["changes"], row["live"], puts, deletes)


def _row(**values: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([values], schema=_SCHEMA)
