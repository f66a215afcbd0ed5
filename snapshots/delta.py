"""Delta tables, opened and appended to exactly once.

A Delta transaction identifier (an application and a version, see the Delta protocol's "Transaction Identifiers")
does not deduplicate by itself: it must be looked up and committed through one handle of the table, so that of two
writers who both saw the old version one gets a conflict.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

from streamstate.snapshots.errors import StoreError

# History is kept by our own rules: Delta's default would drop log entries after 30 days.
_CONFIGURATION: dict[str, str | None] = {
    "delta.logRetentionDuration": "interval 36500 days",
    "delta.enableExpiredLogCleanup": "false",
    "delta.checkpointInterval": "50",
}


# More commits than captures that died, or race, between a table's commit and the manifest's.
_RECENT = 64


def open_table(uri: str) -> DeltaTable | None:
    """A handle on the table's newest version; None where there is no table.

    Raises:
        StoreError: where there is one that cannot be read.
    """
    try:
        return DeltaTable(uri)
    except TableNotFoundError:
        return None
    except DeltaError as error:
        raise StoreError(f"The table {uri} cannot be read: {str(error).splitlines()[0]}") from error


def open_or_create(uri: str, schema: pa.Schema, description: str) -> DeltaTable:
    """A handle on the table, made first where it is missing (another process may be making it too)."""
    table = open_table(uri)
    if table is None:
        with contextlib.suppress(CommitFailedError):
            DeltaTable.create(uri, schema, mode="ignore", description=description, configuration=_CONFIGURATION)
        table = DeltaTable(uri)
    return table


def append_once(
    uri: str,
    application: str,
    version: int,
    rows_after: Callable[[int], pa.Table],
    *,
    metadata: dict[str, str] | None = None,
) -> int:
    """Append rows unless the table has them; returns the application's version before (−1: none).

    Where that is not below ``version``, nothing was written.

    Args:
        uri: an existing table.
        application: who writes; each application's versions only grow.
        version: the version that the rows bring the application to.
        rows_after: gives the rows that a table standing at the given version lacks.
        metadata: kept with the commit.
    """
    while True:
        table = DeltaTable(uri)
        stands = _version_of(table, application)
        if stands >= version:
            return stands
        rows = rows_after(stands)
        properties = CommitProperties(
            custom_metadata=metadata, app_transactions=[Transaction(application, version)], max_commit_retries=20
        )
        try:
            write_deltalake(table, rows, mode="append", schema_mode="merge", commit_properties=properties)
        except CommitFailedError:
            # Somebody else committed for the same application: look again at what is there.
            continue
        except (DeltaError, OSError):
            # An error does not mean "not committed": what follows the commit may have failed.
            if _version_of(DeltaTable(uri), application) < version:
                raise
        return stands


def recent_metadata(uri: str, key: str) -> list[str]:
    """What the table's newest commits keep under ``key``, oldest first."""
    entries: list[dict[str, Any]] = DeltaTable(uri).history(_RECENT)
    return [entry[key] for entry in reversed(entries) if key in entry]


def _version_of(table: DeltaTable, application: str) -> int:
    version = table.transaction_version(application)
    return -1 if version is None else version
