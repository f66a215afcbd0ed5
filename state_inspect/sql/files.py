"""Files that the user allows a statement to read: on this machine, never from the network, never written.

They are read by a DuckDB of their own, which is given one call of one reading function at a time; the statement itself
runs where there are no files.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Any

import duckdb
import pyarrow as pa

from streamstate.snapshots.errors import InvalidArgumentError, InvalidSQLError
from streamstate.snapshots.filesystem import local_path

READERS = frozenset(
    {"read_csv", "read_csv_auto", "read_parquet", "parquet_scan", "read_json", "read_json_auto", "read_ndjson"}
    | {"read_ndjson_auto", "read_text", "read_blob", "glob"}
)
"""Table functions that read files."""

# No extension is fetched or loaded, so that DuckDB has no way into the network.
_OFFLINE: dict[str, str | bool | int | float | list[str]] = {
    "python_enable_replacements": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
}
_SCHEME = re.compile(r"\w\w+:/")


def read_call(call: str, values: dict[str, Any]) -> pa.Table:
    """The rows of a call of one of :data:`READERS`.

    Args:
        call: the call, such as ``read_csv('x.csv', header = true)``.
        values: the values of its parameters.

    Raises:
        InvalidSQLError: where there is no such file, or it cannot be read.
    """
    with _reading(call) as database:
        return database.sql(f"SELECT * FROM {call}", params=values or None).to_arrow_table()


def read_file(path: str) -> pa.Table:
    """The rows of a CSV, Parquet or JSON file; DuckDB finds out what it is, and a CSV's types.

    Raises:
        InvalidSQLError: where there is no such file, or it cannot be read.
    """
    found = on_this_machine(path)
    with _reading(path) as database:
        escaped = found.replace('"', '""')
        return database.sql(f'SELECT * FROM "{escaped}"').to_arrow_table()


def read_csv(path: str) -> pa.Table:
    """The rows of a CSV file, its dialect and types found out by DuckDB.

    Raises:
        InvalidSQLError: where it cannot be read.
    """
    with _reading(path) as database:
        return database.sql("SELECT * FROM read_csv($path)", params={"path": on_this_machine(path)}).to_arrow_table()


def on_this_machine(path: str) -> str:
    """A path on the local disk.

    Raises:
        InvalidArgumentError: where it is a URI of somewhere else.
    """
    local = local_path(path)
    if local is None:
        raise InvalidArgumentError(
            f"{path!r} is not on this machine, and SQL over snapshots reaches no network.\n"
            "Fetch it first, and give the frame or the local path."
        )
    return str(local)


def check_paths(texts: Iterator[str]) -> None:
    """Raise where one of the texts of a call is a URI of somewhere else."""
    for text in texts:
        if _SCHEME.match(text):
            on_this_machine(text)


@contextlib.contextmanager
def _reading(what: str) -> Iterator[duckdb.DuckDBPyConnection]:
    database = duckdb.connect(config=_OFFLINE)
    try:
        database.execute("SET TimeZone = 'UTC'")
        database.execute("SET lock_configuration = true")
        yield database
    except duckdb.Error as error:
        raise InvalidSQLError(f"{what} cannot be read: {str(error).splitlines()[0]}") from error
    finally:
        database.close()
