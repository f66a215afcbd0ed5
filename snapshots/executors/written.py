"""The driver's look at what tasks say they wrote, before any of it is committed."""

from __future__ import annotations

from collections.abc import Sequence

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.fs import FileSystem, LocalFileSystem

from streamstate.snapshots.delta.data_files import DataFile, is_complete
from streamstate.snapshots.delta.place import Place
from streamstate.snapshots.errors import CaptureError
from streamstate.snapshots.executors.reports import Reports

_SHARED = "The store has to be where the driver and every executor reach it: a shared file system or an object store."


def require_good(place: Place, schema: pa.Schema, reports: Reports) -> None:
    """Raise unless the files that the tasks reported are there, in the table, whole, and of the table's columns.

    Delta's commit looks at none of this, and a wrong file makes a table unreadable.

    Raises:
        CaptureError: where a task could not write, a file is not as reported, or digests cannot be compared.
    """
    if reports.problems:
        raise CaptureError("\n".join([*reports.problems, _SHARED]))
    if reports.engines - {duckdb.__version__}:
        raise CaptureError(
            f"The executors run DuckDB {', '.join(sorted(reports.engines))} and the driver {duckdb.__version__}: what"
            " they count cannot be put together.\nInstall the same packages in both places."
        )
    _require_files(place, schema, reports.files)


def _require_files(place: Place, schema: pa.Schema, files: Sequence[DataFile]) -> None:
    system, prefix = _system(place)
    for file in files:
        if not is_complete(file.path):
            raise CaptureError(
                f"A task says that it wrote {file.path!r} into {place}, which is no name of a data file."
            )
        try:
            with system.open_input_file(prefix + file.path) as opened:
                size, footer = opened.size(), pq.read_metadata(opened)
        except (OSError, pa.ArrowInvalid) as error:
            raise CaptureError(
                f"A task on an executor says that it wrote {file.path} into {place}; the driver cannot read it:"
                f" {str(error).splitlines()[0]}\n{_SHARED}"
            ) from error
        found = (size, footer.num_rows, footer.schema.to_arrow_schema().remove_metadata())
        if found != (file.size, file.rows, schema.remove_metadata()):
            raise CaptureError(
                f"The file {file.path} in {place} is not what its task wrote: {size} bytes and {footer.num_rows} rows"
                f" instead of {file.size} and {file.rows}, or other columns.\n{_SHARED}"
            )


def _system(place: Place) -> tuple[FileSystem, str]:
    return (LocalFileSystem(), f"{place.folder}/") if place.folder is not None else (place.filesystem(), "")
