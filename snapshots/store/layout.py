"""The tables of a store, and the columns of the table of queries and the manifest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from streamstate.errors import UntrustedStoreError
from streamstate.snapshots.checkpoint.bindings import SHARED
from streamstate.snapshots.checkpoint.filesystem import local_path, location
from streamstate.snapshots.store.delta.place import LOG, Place

FORMAT = 1
"""The version of the layout; a store with a higher one is refused."""

TIME = pa.timestamp("us", tz="UTC")
_PER_TABLE = pa.map_(pa.string(), pa.int64())

QUERIES = pa.schema(
    [
        ("name", pa.string()),
        ("query_id", pa.string()),
        ("checkpoint", pa.string()),
        ("parent", pa.string()),
        ("parent_epoch", pa.int64()),
        ("created_at", TIME),
        ("format", pa.int64()),
    ]
)

CONTROL = pa.schema(
    [
        ("number", pa.int64()),
        ("kind", pa.string()),
        ("epoch", pa.int64()),
        ("policy", pa.int64()),
        ("lever", pa.string()),
        ("before", pa.float64()),
        ("after", pa.float64()),
        ("holds", pa.bool_()),
        ("reason", pa.string()),
        ("needs", pa.string()),
        ("inputs", pa.string()),
        ("at", TIME),
    ]
)

PLANS = pa.schema([("since", pa.int64()), ("recorded_at", TIME), ("plan", pa.string())])

CAPTURED, GAP = "captured", "gap"

RETENTION = "streamstate/retention"
"""The transaction identifier whose version counts the runs of retention that a manifest or a log has been through."""

MANIFEST = pa.schema(
    [
        ("epoch", pa.int64()),
        ("status", pa.string()),
        ("run_id", pa.string()),
        ("committed_at", TIME),
        ("captured_at", TIME),
        ("offsets", pa.string()),
        ("watermark", TIME),
        ("input_rows", pa.int64()),
        ("rows", _PER_TABLE),
        ("changes", _PER_TABLE),
        ("keyframes", _PER_TABLE),
        ("sources", pa.string()),
        ("began_at", TIME),
        ("time_source", pa.string()),
        ("mode", pa.string()),
        ("next_watermark", TIME),
        ("load", pa.string()),
    ]
)


def _folder(query: str) -> str:
    """Return the folder of a query, or of a shared variable. No query's name has a dot."""
    kind, dot, name = query.partition(".")
    return f"_variables/{name}" if dot and kind == SHARED else query


@dataclass(frozen=True)
class Layout:
    """The tables of one store."""

    root: str
    options: Mapping[str, str] | None = field(default=None, hash=False, compare=False, repr=False)

    @classmethod
    def at(cls, store: object, storage_options: Mapping[str, str] | None = None) -> Layout:
        """Return the layout of the store at a path or URI, with deltalake's options for object stores."""
        return cls(location(str(store)), storage_options)

    @property
    def queries(self) -> Place:
        """The table of queries."""
        return self._place("_queries")

    @property
    def variables(self) -> Place:
        """The table of shared variables."""
        return self._place("_variables/_declarations")

    def manifest(self, query: str) -> Place:
        """Return the table of a query's epochs, or of the versions of ``shared.<variable>``."""
        return self._place(f"{_folder(query)}/_epochs")

    def plans(self, query: str) -> Place:
        """Return the table of a query's plans."""
        return self._place(f"{_folder(query)}/_plans")

    def control(self, query: str) -> Place:
        """Return the table of a query's policies, and of the decisions that follow from them."""
        return self._place(f"{_folder(query)}/_control")

    def sharing(self, table: str) -> Place:
        """Return a table of what the store shares: ``contracts``, ``recipients`` or ``usage``."""
        return self._place(f"_sharing/{table}")

    def lease(self, query: str) -> str:
        """Return the folder of the lease on a query, whose files are no table."""
        return self._place(f"{query}/_lease").uri

    def recording(self, query: str, source: int) -> Place:
        """Return the recorded input of one of a query's sources, which are numbered from 0."""
        return self._place(f"{query}/_inputs/{source}")

    def changelog(self, query: str, table: str) -> Place:
        """Return the change log of a state table."""
        return self._place(f"{_folder(query)}/{table}")

    def _place(self, path: str) -> Place:
        """Return a table of the store. No link may lead out of that: maintenance would delete files of other tables."""
        if (root := local_path(self.root)) is not None:
            folder = root
            for part in f"{path}/{LOG}".split("/"):
                folder /= part
                if folder.is_symlink() and not folder.resolve().is_relative_to(root.resolve()):
                    raise UntrustedStoreError.link(folder)
        return Place(f"{self.root}/{path}", self.options)
