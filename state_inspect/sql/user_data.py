"""The user's own tables in a statement: pandas, Polars, Arrow and Spark frames, and local files.

Files are only read, never over the network. They are read by a DuckDB of their own, which gets one call of one reading
function at a time; the statement itself runs in a DuckDB without access to files.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
from sqlglot import exp

from streamstate.errors import InvalidArgumentError, InvalidSQLError
from streamstate.snapshots.checkpoint.filesystem import local_path
from streamstate.snapshots.spark.connect_server import frame_with_rows
from streamstate.snapshots.store.duckdb_sql import quoted
from streamstate.state_inspect.sql.allowed_functions import ROWS_FROM_ARGUMENTS
from streamstate.state_inspect.sql.statement_policy import function_not_allowed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

READERS = frozenset(
    {"read_csv", "read_csv_auto", "read_parquet", "parquet_scan", "read_json", "read_json_auto", "read_ndjson"}
    | {"read_ndjson_auto", "read_text", "read_blob", "glob"}
)
"""Table functions that read files."""

# No extension is downloaded or loaded, so that DuckDB cannot reach the network.
_OFFLINE: dict[str, str | bool | int | float | list[str]] = {
    "python_enable_replacements": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
}
_SCHEME = re.compile(r"\w\w+:/")
_CSV = (".csv", ".csv.gz", ".csv.zst", ".tsv", ".tsv.gz")
_PARQUET = (".parquet", ".pq")
_EXPECTED = (
    "Expected a pandas, Polars, Arrow or Spark frame, an Arrow dataset, another result, or the path of a CSV or"
    " Parquet file on this machine."
)


_UNSIGNED = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
}


class DuckDBSource(Protocol):
    """The source of a relation's rows in DuckDB."""

    @property
    def columns(self) -> list[str]:
        """Names of the columns."""

    def in_duckdb(self, cursor: duckdb.DuckDBPyConnection, name: str) -> None:
        """Register it as a relation of a connection."""


class SparkSource(Protocol):
    """The source of a relation's rows in Spark."""

    def in_spark(self, spark: SparkSession) -> DataFrame:
        """Return it as a Spark frame."""


class UserSource(DuckDBSource, SparkSource, Protocol):
    """The user's own tables can be read by both engines."""


@dataclass(frozen=True)
class ArrowData:
    """Rows in memory, or a dataset that is read again for each use."""

    rows: pa.Table | ds.Dataset
    path: str | None = None
    """The dataset's path, if Spark can read it there itself."""

    @property
    def columns(self) -> list[str]:
        """Names of the columns."""
        return list(self.rows.schema.names)

    def in_duckdb(self, cursor: duckdb.DuckDBPyConnection, name: str) -> None:
        """Register it as a relation of a connection."""
        cursor.register(name, self.rows)

    def in_spark(self, spark: SparkSession) -> DataFrame:
        """Return it as a Spark frame."""
        if self.path is not None:
            return spark.read.parquet(plain_path(self.path))
        return spark_frame(spark, self.rows.to_table() if isinstance(self.rows, ds.Dataset) else self.rows)


@dataclass(frozen=True)
class SparkData:
    """A Spark frame. DuckDB receives the rows that it has when the statement runs."""

    frame: DataFrame

    @property
    def columns(self) -> list[str]:
        """Names of the columns."""
        return list(self.frame.columns)

    def in_duckdb(self, cursor: duckdb.DuckDBPyConnection, name: str) -> None:
        """Register it as a relation of a connection."""
        cursor.register(name, self.frame.toArrow())

    def in_spark(self, spark: SparkSession) -> DataFrame:
        """Return the frame itself."""
        return self.frame


def user_data(frames: Mapping[Any, Any] | None, queries: list[str]) -> dict[str, UserSource]:
    """Return the user's tables, by their names in lower case, which must not be those of queries."""
    if frames is not None and not isinstance(frames, Mapping):
        raise InvalidArgumentError(f"Invalid frames={frames!r}: expected a dict of names and frames or paths.")
    found: dict[str, UserSource] = {}
    taken = {query.casefold(): query for query in queries}
    for name, value in (frames or {}).items():
        if not isinstance(name, str) or not name.strip() or "." in name:
            raise InvalidArgumentError(f"Invalid frame name {name!r}: expected text without dots.")
        if name.casefold() in taken:
            raise InvalidArgumentError(
                f"The frame {name!r} would hide the query {taken[name.casefold()]!r}.\n"
                f"Give it another name, such as frames={{'my_{name}': …}}."
            )
        if name.casefold() in found:
            raise InvalidArgumentError(f"Two frames are called {name!r}: SQL names ignore case.")
        found[name.casefold()] = _source(name, value)
    return found


def is_frame(value: Any) -> bool:
    """Return whether a value can be used as a table as it is; paths are not considered."""
    if isinstance(value, type):
        return False
    return isinstance(value, (pd.DataFrame, pa.Table, pa.RecordBatch, ds.Dataset)) or _of(value, "polars", "pyspark")


def _source(name: str, value: Any) -> UserSource:
    if isinstance(value, (str, Path)):
        return _file(name, str(value))
    if isinstance(value, ds.Dataset):
        return ArrowData(value)
    if _of(value, "pyspark") and not value.isStreaming:
        return SparkData(value)
    try:
        return ArrowData(_arrow(value))
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise InvalidArgumentError(f"The frame {name!r} cannot be read as a table: {error}\n{_EXPECTED}") from error


def _arrow(value: Any) -> pa.Table:
    """Return rows in memory as an Arrow table. An iterator of batches is consumed."""
    if isinstance(value, type):
        raise TypeError(f"{value.__name__} is a class")
    if isinstance(value, pa.Table):
        return value
    if isinstance(value, pd.DataFrame):
        return pa.Table.from_pandas(value, preserve_index=False)
    if isinstance(value, pa.RecordBatchReader):
        return value.read_all()
    if _of(value, "polars") and hasattr(value, "collect"):
        value = value.collect()
    if hasattr(value, "to_arrow"):
        value = value.to_arrow()
    if hasattr(value, "__arrow_c_stream__") or isinstance(value, pa.RecordBatch):
        return pa.table(value)
    raise TypeError(f"it is of type {type(value).__name__}")


def _file(name: str, given: str) -> UserSource:
    path = Path(on_this_machine(given)).absolute()
    kind = path.name.casefold()
    if not path.exists():
        raise InvalidArgumentError(f"The frame {name!r} cannot be read: the file {path} does not exist.")
    if path.is_dir() or kind.endswith(_PARQUET):
        try:
            return ArrowData(ds.dataset(path, format="parquet"), str(path))
        except (pa.ArrowException, OSError) as error:
            raise InvalidArgumentError(f"The frame {name!r}: {path} is not a Parquet file: {error}") from error
    if kind.endswith(_CSV):
        return ArrowData(_rows_of(str(path), "read_csv($path)", {"path": str(path)}))
    raise InvalidArgumentError(f"The frame {name!r}: {path} has neither a CSV nor a Parquet suffix.\n{_EXPECTED}")


def _of(value: object, *libraries: str) -> bool:
    """Return whether a value is a frame of one of some libraries, without importing them."""
    kind = type(value)
    return kind.__module__.partition(".")[0] in libraries and kind.__name__ in {"DataFrame", "LazyFrame"}


def rows_of_function(function: exp.Func, values: Mapping[str, Any], *, allow_files: bool) -> ArrowData | None:
    """Return the rows of a table function that reads files; None for one that makes rows from its arguments.

    ``values`` has the values of the statement's parameters, by name.

    Raises:
        InvalidSQLError: the function is not allowed, or cannot read what it is given.
    """
    name = (function.name if isinstance(function, exp.Anonymous) else function.sql_name()).casefold()
    if name in ROWS_FROM_ARGUMENTS:
        return None
    if name not in READERS or not allow_files:
        raise function_not_allowed(name, ROWS_FROM_ARGUMENTS)
    if function.find(exp.Query):
        raise InvalidSQLError(f"{name}() takes paths and options here, no statements.")
    given = {mark.name: values[mark.name] for mark in function.find_all(exp.Placeholder)}
    texts = [literal.name for literal in function.find_all(exp.Literal) if literal.is_string]
    for text in [*texts, *_texts(list(given.values()))]:
        if _SCHEME.match(text):
            on_this_machine(text)
    call = function.sql(dialect="duckdb")
    return ArrowData(_rows_of(call, call, given))


def _texts(values: list[Any]) -> Iterator[str]:
    for value in values:
        if isinstance(value, str):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _texts(list(value))


def quoted_file(table: exp.Table) -> ArrowData | None:
    """Return the rows of the file that a quoted name is the path of; None if it is none. DuckDB detects the format."""
    path, is_quoted = table.name, isinstance(table.this, exp.Identifier) and table.this.quoted
    if not is_quoted or not ("." in path or "/" in path):
        return None
    return ArrowData(_rows_of(path, quoted(on_this_machine(path))))


def on_this_machine(path: str) -> str:
    """Return a path on the local disk; raise if it is a URI of another place."""
    local = local_path(path)
    if local is None:
        raise InvalidArgumentError(
            f"{path!r} is not on this machine, and SQL over snapshots does not use the network.\n"
            "Download it first, and pass the frame or the local path."
        )
    return str(local)


def _rows_of(what: str, source: str, values: dict[str, Any] | None = None) -> pa.Table:
    """Return the rows of what follows FROM; errors name it as the user wrote it."""
    database = duckdb.connect(config=_OFFLINE)
    try:
        database.execute("SET TimeZone = 'UTC'")
        database.execute("SET lock_configuration = true")
        return database.sql(f"SELECT * FROM {source}", params=values or None).to_arrow_table()
    except duckdb.Error as error:
        raise InvalidSQLError(f"{what} cannot be read: {str(error).splitlines()[0]}") from error
    finally:
        database.close()


def spark_frame(spark: SparkSession, rows: pa.Table) -> DataFrame:
    """Return rows as a Spark frame; columns may share a name."""
    plain = rows.rename_columns([f"c{at}" for at in range(rows.num_columns)])
    plain = plain.cast(pa.schema([field.with_type(_spark_type(field.type)) for field in plain.schema]))
    return frame_with_rows(spark, plain).toDF(*rows.column_names)


def _spark_type(kind: pa.DataType) -> pa.DataType:
    """Return the type that Spark has for the values of an Arrow type."""
    if pa.types.is_dictionary(kind):
        return _spark_type(kind.value_type)
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    return _UNSIGNED.get(kind, kind)


def plain_path(path: str) -> str:
    """Return a path for Spark's readers, its wildcards escaped."""
    return re.sub(r"([\\{}\[\]*?])", r"\\\1", path)
