"""Arrow tables as pandas and Polars frames."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa

if TYPE_CHECKING:
    import polars

_NULLABLE: dict[pa.DataType, Any] = {
    pa.int8(): pd.Int8Dtype(),
    pa.int16(): pd.Int16Dtype(),
    pa.int32(): pd.Int32Dtype(),
    pa.int64(): pd.Int64Dtype(),
    pa.bool_(): pd.BooleanDtype(),
}


def to_pandas(table: pa.Table) -> pd.DataFrame:
    """A pandas frame. Integers and booleans keep their type if some are missing."""
    # By position, because columns may share a name.
    columns = {at: _series(column) for at, column in enumerate(table.columns)}
    frame = pd.DataFrame(columns, index=range(table.num_rows))
    frame.columns = pd.Index(table.column_names)
    return frame


def _series(column: pa.ChunkedArray) -> pd.Series[Any]:
    dtype = _NULLABLE.get(column.type) if column.null_count else None
    found: pd.Series[Any] = column.to_pandas(types_mapper=lambda _: dtype, maps_as_pydicts="lossy")
    return found


def to_polars(table: pa.Table) -> polars.DataFrame:
    """A Polars frame.

    Raises:
        ModuleNotFoundError: Polars is not installed.
    """
    try:
        import polars
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("to_polars() needs Polars: pip install polars") from error
    found = polars.from_arrow(table)
    assert isinstance(found, polars.DataFrame)
    return found


def as_html(frame: pd.DataFrame) -> str:
    """An HTML table with empty cells for missing values."""
    return str(frame.astype(object).where(frame.notna(), "").to_html(index=False))
