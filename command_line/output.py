"""Output of the commands: aligned tables for people, JSON for programs."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import date, time
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from streamstate.widgets.tables.summary_table import SummaryTable, TableCell

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from streamstate.state_inspect import StateTable
    from streamstate.state_inspect.inputs.shown_rows import InputSides


def print_json(value: Mapping[str, Any]) -> None:
    """Print an object in one line."""
    print(json.dumps(plain(value), ensure_ascii=False, allow_nan=False), flush=True)


def print_report(report: Any, *, as_json: bool) -> None:
    """Print a dataclass: as an object in one line, or as its text."""
    if as_json:
        print_json(asdict(report))
    else:
        print(report)


def print_rows(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, as_json: bool) -> None:
    """Print rows: a JSON object for each, or a table with aligned columns."""
    if as_json:
        names = _distinct(columns)
        for row in rows:
            print_json(dict(zip(names, row, strict=True)))
        return
    cells = [[_cell(value) for value in row] for row in rows]
    if cells:
        print(SummaryTable([_printable(name) for name in columns], cells))
    else:
        print("No rows.", file=sys.stderr)


def print_table(table: pa.Table, *, as_json: bool) -> None:
    """Print the rows of an Arrow table, as :func:`print_rows`."""
    from streamstate.state_inspect.python_rows import row_tuples

    print_rows(table.column_names, row_tuples(table), as_json=as_json)


def print_state(state: StateTable, rows: pa.Table, *, as_json: bool) -> None:
    """Print rows of a state table; people read when a timer expires as a time, programs as the number."""
    from streamstate.state_inspect.expiry_times import expiry_columns, rows_with_times

    expiring = frozenset() if as_json else expiry_columns(state.history.recorded, state.name)
    print_rows(rows.column_names, rows_with_times(rows, expiring), as_json=as_json)


def print_frame(frame: pd.DataFrame, *, as_json: bool) -> None:
    """Print the rows of a frame, as :func:`print_rows`."""
    from streamstate.state_inspect.frames import frame_tuples

    print_rows(list(frame.columns), frame_tuples(frame), as_json=as_json)


def shown_rows(found: InputSides) -> dict[str, Any]:
    """Return the first input rows of each side of an operator."""
    from streamstate.state_inspect.frames import frame_records

    return {side: frame_records(frame) for side, frame in found.shown.items()}


def plain(value: Any) -> Any:
    """A value as JSON has it.

    Times are ISO 8601, binary values hexadecimal, decimals, durations and UUIDs text. Maps are lists of pairs unless
    all keys are text. NaN is the text ``NaN``; infinities are ``Infinity`` and ``-Infinity``.
    """
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")
    if isinstance(value, Mapping):
        if all(isinstance(key, str) for key in value):
            return {key: plain(item) for key, item in value.items()}
        value = list(value.items())
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return _leaf(value)


def _leaf(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Decimal):
        return f"{value:f}"
    if hasattr(value, "tolist"):  # arrays and scalars of numpy
        return plain(value.tolist())
    return value.isoformat() if isinstance(value, (date, time)) else str(value)


def _distinct(names: Sequence[str]) -> list[str]:
    """Names that are all different, as an object's have to be: ``n``, ``n_2``."""
    from streamstate.snapshots.store.names import unused

    found: list[str] = []
    for name in names:
        found.append(unused(name, found) if name in found else name)
    return found


def _cell(value: Any) -> TableCell:
    shown = plain(value)
    if shown is None:
        return TableCell(None)
    text = shown if isinstance(shown, str) else json.dumps(shown, ensure_ascii=False)
    number = isinstance(shown, (int, float)) and not isinstance(shown, bool)
    return TableCell(shown, _printable(text), number=number)


def _printable(text: str) -> str:
    """The text without line breaks and codes that a terminal would obey: a store may come from strangers."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
