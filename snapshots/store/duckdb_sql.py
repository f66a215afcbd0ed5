"""SQL text for DuckDB, and sandboxed connections to it."""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import duckdb


def database_errors() -> tuple[type[Exception], ...]:
    """Return DuckDB's exceptions; none while it has not been loaded."""
    loaded = sys.modules.get("duckdb")
    return () if loaded is None else (loaded.Error,)


def quoted(name: str) -> str:
    """Return a name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def listed(names: Sequence[str]) -> str:
    """Return names as SQL identifiers, separated by commas."""
    return ", ".join(map(quoted, names))


def same(left: str, right: str, names: Sequence[str]) -> str:
    """Return the SQL condition that two relations agree in some columns; NULL equals NULL."""
    return " AND ".join(f"{left}.{quoted(name)} IS NOT DISTINCT FROM {right}.{quoted(name)}" for name in names)


def embedded(**settings: Any) -> duckdb.DuckDBPyConnection:
    """Return a new in-memory DuckDB with no access to files, the network or the caller's variables."""
    import duckdb  # a capture seldom needs it

    connection = duckdb.connect(config={"python_enable_replacements": "false"})
    connection.execute("SET TimeZone = 'UTC'")
    for name, value in settings.items():
        connection.execute(f"SET {name} = ?", [value])
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
    return connection


@contextlib.contextmanager
def spilling() -> Iterator[duckdb.DuckDBPyConnection]:
    """An :func:`embedded` DuckDB that takes 512 MB; what exceeds that is sorted on disk."""
    with (
        tempfile.TemporaryDirectory(prefix="streamstate-spilled-") as folder,
        contextlib.closing(embedded(temp_directory=folder, memory_limit="512MB")) as database,
    ):
        yield database
