"""The user's own tables in a statement: pandas, Polars, Arrow and Spark frames, and files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds

from streamstate.snapshots.errors import InvalidArgumentError
from streamstate.state_inspect.sql.files import on_this_machine, read_csv

if TYPE_CHECKING:
    import duckdb
    from pyspark.sql import DataFrame, SparkSession

_CSV = (".csv", ".csv.gz", ".csv.zst", ".tsv", ".tsv.gz")
_PARQUET = (".parquet", ".pq")
_MEANT = (
    "Give a pandas, Polars, Arrow or Spark frame, an Arrow dataset, another result, or the path of a CSV or"
    " Parquet file on this machine."
)


class DuckDBSource(Protocol):
    """What a name in a statement stands for, in DuckDB."""

    @property
    def columns(self) -> list[str]:
        """Names of the columns."""

    def in_duckdb(self, cursor: duckdb.DuckDBPyConnection, name: str) -> None:
        """Make it a relation of a connection."""


class SparkSource(Protocol):
    """What a name in a statement stands for, in Spark."""

    @property
    def columns(self) -> list[str]:
        """Names of the columns."""

    def in_spark(self, spark: SparkSession) -> DataFrame:
        """As a Spark frame."""


class UserSource(DuckDBSource, SparkSource, Protocol):
    """The user's own tables can be read by both."""


@dataclass(frozen=True)
class ArrowData:
    """Rows in memory, or a dataset that is read as often as a statement needs it."""

    rows: pa.Table | ds.Dataset
    path: str | None = None
    """Where it is, where Spark can read it there itself."""

    @property
    def columns(self) -> list[str]:
        """Names of the columns."""
        return list(self.rows.schema.names)

    def in_duckdb(self, cursor: duckdb.DuckDBPyConnection, name: str) -> None:
        """Make it a relation of a connection."""
        cursor.register(name, self.rows)

    def in_spark(self, spark: SparkSession) -> DataFrame:
        """As a Spark frame."""
        from streamstate.state_inspect.sql.sessions import frame_of, plain_path

        if self.path is not None:
            return spark.read.parquet(plain_path(self.path))
        return frame_of(spark, self.rows.to_table() if isinstance(self.rows, ds.Dataset) else self.rows)


@dataclass(frozen=True)
class SparkData:
    """A Spark frame; DuckDB is given the rows that it has at that time."""

    frame: DataFrame

    @property
    def columns(self) -> list[str]:
        """Names of the columns."""
        return list(self.frame.columns)

    def in_duckdb(self, cursor: duckdb.DuckDBPyConnection, name: str) -> None:
        """Make it a relation of a connection."""
        cursor.register(name, self.frame.toArrow())

    def in_spark(self, spark: SparkSession) -> DataFrame:
        """As a Spark frame."""
        return self.frame


def user_data(frames: Mapping[Any, Any] | None, queries: list[str]) -> dict[str, UserSource]:
    """The user's tables, by their names in lower case.

    Args:
        frames: what was given, by name.
        queries: the names that are taken.

    Raises:
        InvalidArgumentError: where a name is taken or is none, or a value is no table.
    """
    if frames is not None and not isinstance(frames, Mapping):
        raise InvalidArgumentError(f"frames={frames!r} cannot be meant: give a dict of names and frames or paths.")
    found: dict[str, UserSource] = {}
    taken = {one.casefold(): one for one in queries}
    for name, given in (frames or {}).items():
        if not isinstance(name, str) or not name.strip() or "." in name:
            raise InvalidArgumentError(f"{name!r} cannot be the name of a frame: give a word without dots.")
        if name.casefold() in taken:
            raise InvalidArgumentError(
                f"The frame {name!r} would hide the query {taken[name.casefold()]!r}.\n"
                f"Give it another name, such as frames={{'my_{name}': …}}."
            )
        if name.casefold() in found:
            raise InvalidArgumentError(f"Two frames are called {name!r}: upper and lower case are the same in SQL.")
        found[name.casefold()] = _source(name, given)
    return found


def is_frame(value: Any) -> bool:
    """Whether a value can be a table of a statement as it is; paths are not looked at."""
    if isinstance(value, type):
        return False
    return isinstance(value, (pd.DataFrame, pa.Table, pa.RecordBatch, ds.Dataset)) or _of(value, "polars", "pyspark")


def _source(name: str, given: Any) -> UserSource:
    if isinstance(given, (str, Path)):
        return _file(name, str(given))
    if isinstance(given, ds.Dataset):
        return ArrowData(given)
    if _of(given, "pyspark") and not given.isStreaming:
        return SparkData(given)
    try:
        return ArrowData(_arrow(given))
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise InvalidArgumentError(f"The frame {name!r} cannot be read as a table: {error}\n{_MEANT}") from error


def _arrow(given: Any) -> pa.Table:
    """Rows in memory as an Arrow table; an iterator of batches is used up by it."""
    if isinstance(given, type):
        raise TypeError(f"{given.__name__} is a class")
    if isinstance(given, pa.Table):
        return given
    if isinstance(given, pd.DataFrame):
        return pa.Table.from_pandas(given, preserve_index=False)
    if isinstance(given, pa.RecordBatchReader):
        return given.read_all()
    if _of(given, "polars") and hasattr(given, "collect"):
        given = given.collect()
    if hasattr(given, "to_arrow"):
        given = given.to_arrow()
    if hasattr(given, "__arrow_c_stream__") or isinstance(given, pa.RecordBatch):
        return pa.table(given)
    raise TypeError(f"it is of type {type(given).__name__}")


def _file(name: str, given: str) -> UserSource:
    path = Path(on_this_machine(given)).absolute()
    kind = path.name.casefold()
    if not path.exists():
        raise InvalidArgumentError(f"The frame {name!r} cannot be read: there is no file {path}.")
    if path.is_dir() or kind.endswith(_PARQUET):
        try:
            return ArrowData(ds.dataset(path, format="parquet"), str(path))
        except (pa.ArrowException, OSError) as error:
            raise InvalidArgumentError(f"The frame {name!r}: {path} is no Parquet: {error}") from error
    if kind.endswith(_CSV):
        return ArrowData(read_csv(str(path)))
    raise InvalidArgumentError(f"The frame {name!r}: {path} is neither CSV nor Parquet by its name.\n{_MEANT}")


def _of(value: object, *libraries: str) -> bool:
    """Whether a value is a frame of a library, which need not be imported for that."""
    kind = type(value)
    return kind.__module__.partition(".")[0] in libraries and kind.__name__ in {"DataFrame", "LazyFrame"}
