"""The result of a statement, which runs when it is needed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import pandas as pd
import pyarrow as pa

from streamstate.snapshots.calls.html import joined, tag
from streamstate.state_inspect.frames import as_html, as_text, to_pandas, to_polars
from streamstate.state_inspect.sql.user_data import spark_frame

if TYPE_CHECKING:
    import polars
    from pyspark.sql import DataFrame, SparkSession

_SHOWN = 20


class Engine(Protocol):
    """One statement, ready to run."""

    columns: list[str]
    repeatable: bool
    """True if it returns the same rows each time."""

    @property
    def frame(self) -> DataFrame | None:
        """The rows as a Spark frame, not yet run; None if it does not run in Spark."""

    def rows(self) -> pa.Table:
        """Return all rows."""

    def first(self, count: int) -> pa.Table:
        """Return the first rows, at most ``count``."""

    def count(self) -> int:
        """Return the number of rows."""


class Result:
    """The rows of a statement; :meth:`Store.sql` returns it.

    The statement runs when the result is displayed, counted or converted. Its epochs are fixed when it is created, so
    epochs captured later do not change it. Displaying it runs the statement for the first 20 rows and the row count.
    Converted rows are kept.

    Example:
        >>> result = store.sql("SELECT origin, count FROM airports ORDER BY origin")
        >>> result.columns, len(result), result.epochs
        (['origin', 'count'], 3, {'airports': [13]})
        >>> result.to_polars()
    """

    def __init__(self, engine: Engine, epochs: dict[str, list[int]]) -> None:
        self._engine = engine
        self._rows: pa.Table | None = None
        self._count: int | None = None
        self.epochs = epochs
        """The epochs that each relation of the statement is read at, by the relation's name."""

    @property
    def columns(self) -> list[str]:
        """Names of the columns."""
        return list(self._engine.columns)

    @property
    def schema(self) -> pa.Schema:
        """Names and Arrow types of the columns.

        A sum of integers has 64 bits here; if it overflows, its rows have a decimal instead.
        """
        return (self._engine.first(0) if self._rows is None else self._rows).schema

    @property
    def rows(self) -> pa.Table:
        """All rows as an Arrow table."""
        return self.to_arrow()

    def to_arrow(self) -> pa.Table:
        """Return all rows as an Arrow table."""
        if self._rows is None:
            self._rows = self._engine.rows()
            self._count = self._rows.num_rows
        return self._rows

    def first(self, count: int) -> pa.Table:
        """Return the first rows as an Arrow table, at most ``count``; the others are not computed.

        Example:
            >>> store.sql("FROM airports ORDER BY origin").first(1).num_rows
            1
        """
        return self._engine.first(count) if self._rows is None else self._rows.slice(0, count)

    def to_pandas(self) -> pd.DataFrame:
        """Return all rows as a pandas frame."""
        return to_pandas(self.to_arrow())

    def to_polars(self) -> polars.DataFrame:
        """Return all rows as a Polars frame.

        Raises:
            ModuleNotFoundError: Polars is not installed.
        """
        return to_polars(self.to_arrow())

    def to_spark(self, spark: SparkSession | None = None) -> DataFrame:
        """Return the rows as a Spark frame; with ``engine="spark"`` the frame itself, not yet run.

        Args:
            spark: the session; by default the running one.

        Raises:
            SessionError: no session is running.
        """
        if self._engine.frame is not None:
            return self._engine.frame
        from streamstate.snapshots.spark.session import session_in_use  # needs Spark

        return spark_frame(
            session_in_use(spark, connect=True), self._engine.rows() if self._rows is None else self._rows
        )

    def __len__(self) -> int:
        if self._count is None:
            self._count = self._engine.count() if self._engine.repeatable else self.to_arrow().num_rows
        return self._count

    def __repr__(self) -> str:
        return f"{as_text(self._first())}\n{self._size()}"

    def _repr_html_(self) -> str:
        return joined(as_html(self._first()), tag("p", self._size()))

    def _first(self) -> pd.DataFrame:
        if self._rows is None and self._engine.repeatable:
            return to_pandas(self._engine.first(_SHOWN))
        return to_pandas(self.to_arrow().slice(0, _SHOWN))

    def _size(self) -> str:
        hidden, rows = len(self) - _SHOWN, "row" if len(self) == 1 else "rows"
        return f"{len(self):,} {rows}" + (f", {hidden:,} of them not shown" if hidden > 0 else "")
