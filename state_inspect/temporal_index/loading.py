"""Telling whoever wants to know how far the loading of the index is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import pyarrow as pa

__all__ = ["Told", "loading_told", "told"]

Told = Callable[[str, int, int], None]
"""Called with the relation's name, the rows of its log that were read, and about how many there are to read."""

_listener: ContextVar[Told | None] = ContextVar("streamstate_loading", default=None)


@contextmanager
def loading_told(to: Told) -> Iterator[None]:
    """Within the block, a function is told of every batch of rows that this thread loads into an index.

    Args:
        to: called often, so it has to be quick; what it raises ends the loading and leaves the index as it was.

    Example:
        >>> with loading_told(lambda name, read, expected: print(name, read, expected)):  # doctest: +SKIP
        ...     store["delays"].live().table().count()
        delays/op0 120000 400000
    """
    before = _listener.set(to)
    try:
        yield
    finally:
        _listener.reset(before)


def told(name: str, rows: pa.RecordBatchReader, expected: int) -> pa.RecordBatchReader:
    """The rows, counted for the one who wants to know as they are read; as they are where nobody does."""
    listener = _listener.get()
    if listener is None:
        return rows
    return pa.RecordBatchReader.from_batches(rows.schema, _counted(name, rows, expected, listener))


def _counted(name: str, rows: pa.RecordBatchReader, expected: int, listener: Told) -> Iterator[pa.RecordBatch]:
    read = 0
    for batch in rows:
        read += batch.num_rows
        listener(name, read, max(expected, read))
        yield batch
