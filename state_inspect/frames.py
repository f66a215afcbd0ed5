"""Arrow tables as pandas and Polars frames, and frames as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa

from streamstate.snapshots.calls.html import Html, head, table, td
from streamstate.state_inspect.cell_text import NULL, Cell, cell, plain
from streamstate.state_inspect.python_rows import python_values

if TYPE_CHECKING:
    import polars

_NULLABLE: dict[pa.DataType, Any] = {
    pa.int8(): pd.Int8Dtype(),
    pa.int16(): pd.Int16Dtype(),
    pa.int32(): pd.Int32Dtype(),
    pa.int64(): pd.Int64Dtype(),
    pa.uint64(): pd.UInt64Dtype(),
    pa.bool_(): pd.BooleanDtype(),
    pa.float32(): pd.Float32Dtype(),
    pa.float64(): pd.Float64Dtype(),
}
_ROOM = {"topic": 1_000, "value": 160}
"""The characters that cells of Kafka's records show."""
_SHORT = 34
"""In HTML, longer texts may wrap. A time with its zone has 33 characters."""
_LEFT = "text-align:left"


def to_pandas(table: pa.Table) -> pd.DataFrame:
    """Return a pandas frame that has every value as it is.

    Numbers and booleans keep their type if some are missing, as pandas' nullable types: a missing number is ``<NA>``,
    apart from NaN. Structs and maps are dicts, and arrays lists.
    """
    # By position, because columns may share a name.
    columns = {at: _series(column) for at, column in enumerate(table.columns)}
    frame = pd.DataFrame(columns, index=range(table.num_rows))
    frame.columns = pd.Index(table.column_names)
    return frame


def _series(column: pa.ChunkedArray) -> pd.Series[Any]:
    if pa.types.is_nested(column.type):
        return pd.Series(python_values(column), dtype=object)
    dtype = _NULLABLE.get(column.type) if column.null_count else None
    found: pd.Series[Any] = column.to_pandas(types_mapper=lambda _: dtype)
    return found


def as_column(values: Sequence[Any]) -> pd.Series[Any]:
    """Values of Python as a column of a frame, each as it is."""
    try:
        return _series(pa.chunked_array([pa.array(values)]))
    except pa.ArrowException:  # they are of different types
        return pd.Series(values, dtype=object)


def frame_tuples(frame: pd.DataFrame) -> list[tuple[Any, ...]]:
    """Return the rows of a frame that :func:`to_pandas` made, by position, as :func:`rows.row_tuples` returns them."""
    # Not itertuples, which makes a series of each column.
    numbered = frame.set_axis(range(frame.shape[1]), axis="columns").astype(object)
    return [tuple(map(plain, row)) for row in numbered.to_numpy().tolist()]


def frame_records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows of a frame, each as a dictionary."""
    return [dict(zip(map(str, frame.columns), row, strict=True)) for row in frame_tuples(frame)]


def with_values(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the columns of a frame that have values; NaN is one."""
    kept = [any(value is not None for value in column) for column in zip(*frame_tuples(frame), strict=True)]
    return frame.loc[:, kept] if kept else frame


def to_polars(table: pa.Table) -> polars.DataFrame:
    """Return a Polars frame.

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


def as_text(frame: pd.DataFrame) -> str:
    """Return a frame for a terminal, each value in one short line."""
    return str(_in_words(frame, "null").to_string(index=False))


def as_html(frame: pd.DataFrame, *, missing: str = "null") -> Html:
    """A frame as an HTML table, each value in one short line; ``missing`` is the text of missing ones."""
    rows = frame_cells(frame)
    texts = [any(row[at].kind == "text" for row in rows) for at in range(frame.shape[1])]
    heads = [head(str(name), style=_LEFT * text) for name, text in zip(frame, texts, strict=True)]
    body = [
        [
            td(missing if shown == NULL else shown.text, style=_style(shown, text=text))
            for shown, text in zip(row, texts, strict=True)
        ]
        for row in rows
    ]
    html = table(heads, body, class_="dataframe", border="1")
    # The browser may break the JSON of a record after its commas; what is copied from the page is the same.
    return Html(html.replace(",&quot;", ",<wbr>&quot;") if _is_of_kafka(frame) else html)


def _style(shown: Cell, *, text: bool) -> str:
    """Return the style of a cell: texts to the left, and short ones, such as times, in one line."""
    short = shown.kind == "text" and len(shown.text) <= _SHORT
    return ";".join(filter(None, [_LEFT * text, "white-space:nowrap" * short]))


def _in_words(frame: pd.DataFrame, missing: str) -> pd.DataFrame:
    texts = frame.astype(object)
    for at, column in enumerate(zip(*frame_cells(frame), strict=True)):
        texts.isetitem(at, [missing if shown == NULL else shown.text for shown in column])
    return texts


def frame_cells(frame: pd.DataFrame) -> list[list[Cell]]:
    """Return the cells of a frame's rows, as tables show them.

    Of a record of Kafka, the topic is never cut, and the value, usually JSON, is cut later than other cells.
    """
    room = _ROOM if _is_of_kafka(frame) else {}
    rooms = [room.get(str(name)) for name in frame]
    return [
        [cell(value) if most is None else _longer(cell(value), most) for most, value in zip(rooms, row, strict=True)]
        for row in frame_tuples(frame)
    ]


def _is_of_kafka(frame: pd.DataFrame) -> bool:
    return {"topic", "partition", "offset"} <= {*frame.columns}


def _longer(shown: Cell, most: int) -> Cell:
    if shown.whole is None or len(shown.whole) <= most:
        return Cell(shown.whole or shown.text, shown.kind)
    return Cell(f"{shown.whole[: most - 1]}…", shown.kind, shown.whole)
