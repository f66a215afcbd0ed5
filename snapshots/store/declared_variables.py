"""The store's table of shared variables: which there are, and where their versions are kept while queries run."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from datetime import UTC, datetime

import pyarrow as pa

from streamstate.errors import NewerStoreError, UntrustedStoreError
from streamstate.snapshots.store.delta import append_once, open_or_create, open_table
from streamstate.snapshots.store.delta.commits import update
from streamstate.snapshots.store.delta.reading import TableVersion
from streamstate.snapshots.store.delta.table import Table
from streamstate.snapshots.store.layout import FORMAT, TIME, Layout
from streamstate.snapshots.store.names import is_name
from streamstate.snapshots.store.registry import make_store

_DECLARATIONS = pa.schema(
    [
        ("name", pa.string()),
        ("declaration", pa.string()),
        ("transport", pa.string()),
        ("declared_at", TIME),
        ("format", pa.int64()),
    ]
)


@dataclass(frozen=True)
class DeclaredVariable:
    """A variable of a store.

    Attributes:
        name: its name.
        declaration: what was declared, as JSON.
        transport: where its versions are kept; empty: in the store's own folder.
    """

    name: str
    declaration: str
    transport: str


def declare(layout: Layout, variable: DeclaredVariable) -> None:
    """Add a variable to a store, unless it has one of the name."""
    make_store(layout)
    open_or_create(layout.variables, _DECLARATIONS, "streamstate: the shared variables of this store")
    row = {
        "name": variable.name,
        "declaration": variable.declaration,
        "transport": variable.transport,
        "declared_at": datetime.now(UTC),
        "format": FORMAT,
    }
    rows = pa.Table.from_pylist([row], schema=_DECLARATIONS)
    append_once(layout.variables, f"variable/{variable.name.casefold()}", 1, lambda _: rows)


class DeclaredVariables:
    """A store's table of variables, read again only after it has changed. Safe from any thread."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._table: Table | None = None
        self._known: dict[str, DeclaredVariable] = {}
        self._lock = threading.Lock()

    def all(self) -> dict[str, DeclaredVariable]:
        """Return the variables by name, sorted; none in a store from before there were any.

        Raises:
            NewerStoreError: a newer version of streamstate declared one.
        """
        with self._lock:
            if self._table is None:
                self._table = open_table(self._layout.variables)
                changed = self._table is not None
            else:
                changed = update(self._layout.variables, self._table)
            if self._table is not None and changed:
                self._known = self._read(self._table)
            return self._known

    def _read(self, table: Table) -> dict[str, DeclaredVariable]:
        found = TableVersion(self._layout.variables, table).read("format").to_pylist()
        for row in found:
            if row["format"] > FORMAT:
                raise NewerStoreError(
                    f"{row['name']!r} of {self._layout.root} was declared by a newer version of streamstate.\n"
                    "Upgrade streamstate."
                )
            if not is_name(row["name"]):
                raise UntrustedStoreError.name(self._layout.variables, "variable", row["name"])
        rows = sorted(found, key=lambda row: str(row["name"]))
        return {row["name"]: DeclaredVariable(row["name"], row["declaration"], row["transport"]) for row in rows}
