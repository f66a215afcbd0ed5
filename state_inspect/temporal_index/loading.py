"""Reports the progress of loading state tables into an index: to a listener, or else to the call that loads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import pyarrow as pa

from streamstate.snapshots.calls.progress_callback import report_progress

LoadingProgress = Callable[[str, int, int], None]
"""Called with the relation's name, the changelog rows read so far, and roughly how many there are to read."""


def _report_to_call(name: str, read: int, expected: int) -> None:
    rows = f"{read:,} of {expected:,} rows" if read < expected else f"sorting {read:,} rows"
    report_progress(f"loading {name.replace('/', '.')}: {rows}", min(read / max(expected, 1), 1.0))


_listener: ContextVar[LoadingProgress] = ContextVar("streamstate_loading", default=_report_to_call)


@contextmanager
def loading_progress(listener: LoadingProgress) -> Iterator[None]:
    """Within the block, call a function for every batch of rows that this thread loads into an index.

    Args:
        listener: called often, so it must be fast. If it raises, loading ends and the index stays unchanged.

    Example:
        >>> with loading_progress(lambda name, read, expected: print(name, read, expected)):
        ...     store["delays"].live().table().count()
        delays/op0 5 5
        delays/op0 255 255
        ...
    """
    before = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(before)


@contextmanager
def loading_part(read: int, expected: int) -> Iterator[None]:
    """Within the block, report what is loaded as a part of more.

    ``read`` are the changes in the parts before; ``expected`` is roughly how many all parts have.
    """
    listener = _listener.get()
    with loading_progress(lambda name, more, _: listener(name, read + more, max(expected, read + more))):
        yield


def report_rows(name: str, read: int, expected: int) -> None:
    """Report how many rows were read, of about how many."""
    _listener.get()(name, read, max(expected, read))


def counted_rows(name: str, rows: pa.RecordBatchReader, expected: int) -> pa.RecordBatchReader:
    """Return the rows, reported as they are read."""
    return pa.RecordBatchReader.from_batches(rows.schema, _counted(name, rows, expected, _listener.get()))


def counted_files(
    name: str, schema: pa.Schema, files: Iterator[tuple[pa.Table, int]], expected: int
) -> pa.RecordBatchReader:
    """Return the rows found in files, each with its number of rows, all of which are reported."""
    return pa.RecordBatchReader.from_batches(schema, _counted_files(name, files, expected, _listener.get()))


def _counted_files(
    name: str, files: Iterator[tuple[pa.Table, int]], expected: int, listener: LoadingProgress
) -> Iterator[pa.RecordBatch]:
    read = 0
    for rows, size in files:
        read += size
        listener(name, min(read, expected), max(expected, read))
        yield from rows.to_batches()


def _counted(
    name: str, rows: pa.RecordBatchReader, expected: int, listener: LoadingProgress
) -> Iterator[pa.RecordBatch]:
    read = 0
    for batch in rows:
        read += batch.num_rows
        listener(name, read, max(expected, read))
        yield batch
