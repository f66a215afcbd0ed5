"""What a statement gives, run when it is looked at."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import pandas as pd
import pyarrow as pa

from streamstate.state_inspect.frames import to_pandas, to_polars

if TYPE_CHECKING:
    import polars
    from pyspark.sql import DataFrame, SparkSession

_SHOWN = 20


class Engine(Protocol):
    """One statement, ready to be run."""

    columns: list[str]
    repeatable: bool
    """Whether it gives the same rows each time."""

    def rows(self) -> pa.Table:
        """All rows."""

    def first(self, count: int) -> pa.Table:
        """At most so many rows, the first."""

    def count(self) -> int:
        """How many rows there are."""

    def spark_frame(self, spark: SparkSession | None, rows: pa.Table | None) -> DataFrame:
        """As a Spark frame."""


class Result:
    """The rows that a statement gives; :meth:`Store.sql` returns it.

    Nothing is run before the result is shown, counted or converted, and what it reads is settled when it is made:
    epochs that are captured later do not change it. Shown, it runs the statement for its first 20 rows and their
    number. What was converted once is kept.

    Example:
        >>> result = store.sql("SELECT * FROM q ORDER BY key")  # doctest: +SKIP
        >>> result.columns, len(result), result.epochs  # doctest: +SKIP
        (['key', 'value'], 2, {'q': [2]})
        >>> result.to_polars()  # doctest: +SKIP
    """

    def __init__(self, engine: Engine, epochs: dict[str, list[int]]) -> None:
        self._engine = engine
        self._rows: pa.Table | None = None
        self._count: int | None = None
        self.epochs = epochs
        """The epochs at which each relation of the statement is read, by its name."""

    @property
    def columns(self) -> list[str]:
        """Names of the columns."""
        return list(self._engine.columns)

    @property
    def schema(self) -> pa.Schema:
        """Names and Arrow types of the columns.

        A sum of whole numbers is of 64 bits here; where it turns out not to fit, its rows have a decimal instead.
        """
        return (self._engine.first(0) if self._rows is None else self._rows).schema

    @property
    def rows(self) -> pa.Table:
        """All rows as an Arrow table."""
        return self.to_arrow()

    def to_arrow(self) -> pa.Table:
        """All rows as an Arrow table."""
        if self._rows is None:
            self._rows = self._engine.rows()
            self._count = self._rows.num_rows
        return self._rows

    def to_pandas(self) -> pd.DataFrame:
        """All rows as a pandas frame."""
        return to_pandas(self.to_arrow())

    def to_polars(self) -> polars.DataFrame:
        """All rows as a Polars frame.

        Raises:
            ModuleNotFoundError: where Polars is not installed.
        """
        return to_polars(self.to_arrow())

    def to_spark(self, spark: SparkSession | None = None) -> DataFrame:
        """The rows as a Spark frame; with ``engine="spark"`` the frame itself, of which nothing was run.

        Args:
            spark: the session; by default the one in use.

        Raises:
            SessionError: where there is none.
        """
        return self._engine.spark_frame(spark, self._rows)

    def __len__(self) -> int:
        if self._count is None:
            self._count = self._engine.count() if self._engine.repeatable else self.to_arrow().num_rows
        return self._count

    def __repr__(self) -> str:
        return f"{self._first()}\n{self._said()}"

    def _repr_html_(self) -> str:
        return f"{self._first().to_html(index=False)}<p>{self._said()}</p>"

    def _first(self) -> pd.DataFrame:
        if self._rows is None and self._engine.repeatable:
            return to_pandas(self._engine.first(_SHOWN))
        return to_pandas(self.to_arrow().slice(0, _SHOWN))

    def _said(self) -> str:
        left = len(self) - _SHOWN
        return f"{len(self):,} rows" + (f", {left:,} of them not shown" if left > 0 else "")
