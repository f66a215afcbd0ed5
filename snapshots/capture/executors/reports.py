"""Reports of the executors' tasks to the driver: the files that they wrote, and the changes of each epoch.

A report is rows of one schema. Spark gives the driver the rows of each successful task exactly once, even if tasks are
retried or run speculatively. Only files named in a report are committed, and only after the driver has checked them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.fs import LocalFileSystem

from streamstate.errors import CaptureError
from streamstate.snapshots.store.delta.data_files import DataFile, is_complete
from streamstate.snapshots.store.delta.place import Place

_SCHEMA = pa.schema(
    [
        ("problem", pa.string()),
        ("epoch", pa.int64()),
        ("changes", pa.int64()),
        ("live", pa.int64()),
        ("path", pa.string()),
        ("size", pa.int64()),
        ("rows", pa.int64()),
        ("modified", pa.int64()),
        ("statistics", pa.string()),
    ]
)

SPARK_SCHEMA = (
    "problem string, epoch bigint, changes bigint, live bigint, path string, size bigint, rows bigint,"
    " modified bigint, statistics string"
)
"""The same schema for Spark."""

_SHARED = "The store has to be where the driver and every executor reach it: a shared file system or an object store."


@dataclass(frozen=True)
class EpochReport:
    """The changes of one part of an epoch."""

    epoch: int
    changes: int
    """Rows of the change log."""
    live: int
    """Rows of the whole state if the task read it; otherwise keys that live of those that changed."""


@dataclass(frozen=True)
class Reports:
    """The reports of all tasks of one job."""

    files: list[DataFile]
    epochs: list[EpochReport]
    problems: list[str]


def problem(text: str) -> pa.RecordBatch:
    """Report why a task cannot do its work."""
    return _row(problem=text)


def file_written(file: DataFile) -> pa.RecordBatch:
    """Report a complete file."""
    return _row(**{field.name: getattr(file, field.name) for field in fields(file)})


def epoch_done(epoch: int, changes: int, *, live: int = 0) -> pa.RecordBatch:
    """Report that one part of an epoch is in the file."""
    return _row(epoch=epoch, changes=changes, live=live)


def parse_reports(table: pa.Table) -> Reports:
    """Return the reports of a job's tasks."""
    rows = table.to_pylist()
    names = [field.name for field in fields(DataFile)]
    return Reports(
        [DataFile(**{name: row[name] for name in names}) for row in rows if row["path"] is not None],
        [EpochReport(row["epoch"], row["changes"], row["live"]) for row in rows if row["epoch"] is not None],
        sorted({row["problem"] for row in rows if row["problem"] is not None}),
    )


def _row(**values: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([values], schema=_SCHEMA)


def require_valid(place: Place, schema: pa.Schema, reports: Reports) -> None:
    """Raise unless the reported files exist in the table's folder, are complete and have the table's columns.

    Delta checks none of this when it commits, and a wrong file makes a table unreadable.
    """
    if reports.problems:
        raise CaptureError("\n".join([*reports.problems, _SHARED]))
    _require_files(place, schema, reports.files)


def _require_files(place: Place, schema: pa.Schema, files: Sequence[DataFile]) -> None:
    local = place.folder is not None
    system, prefix = (LocalFileSystem(), f"{place.folder}/") if local else (place.filesystem(), "")
    for file in files:
        if not is_complete(file.path):
            raise CaptureError(
                f"A task reports that it wrote {file.path!r} into {place}, which is not the name of a data file."
            )
        try:
            with system.open_input_file(prefix + file.path) as opened:
                size, footer = opened.size(), pq.read_metadata(opened)
        except (OSError, pa.ArrowInvalid) as error:
            raise CaptureError(
                f"A task on an executor reports that it wrote {file.path} into {place}, but the driver cannot read it:"
                f" {str(error).splitlines()[0]}\n{_SHARED}"
            ) from error
        found = (size, footer.num_rows, footer.schema.to_arrow_schema().remove_metadata())
        if found != (file.size, file.rows, schema.remove_metadata()):
            raise CaptureError(
                f"The file {file.path} in {place} is not what its task wrote: it has {size} bytes and"
                f" {footer.num_rows} rows instead of {file.size} and {file.rows}, or other columns.\n{_SHARED}"
            )
