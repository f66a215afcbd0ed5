"""The last row of each key is what DuckDB says it is, whether DuckDB is asked or not."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamstate.snapshots.capture import change_rows
from streamstate.snapshots.capture.change_rows import last_rows
from streamstate.snapshots.store.duckdb_sql import embedded, listed

FEW = st.integers(0, 3) | st.none()
WINDOW = pa.struct([("start", pa.timestamp("us", tz="UTC")), ("end", pa.timestamp("us", tz="UTC"))])
VALUES: dict[pa.DataType, Any] = {
    pa.int64(): FEW,
    pa.string(): st.sampled_from(["", "a", "b", None]),
    pa.binary(): st.sampled_from([b"", b"\x00", None]),
    pa.bool_(): st.booleans() | st.none(),
    pa.date32(): st.sampled_from([dt.date(2024, 1, 1), None]),
    pa.decimal128(9, 2): st.sampled_from([Decimal("1.00"), Decimal("1.01"), None]),
    pa.float64(): st.sampled_from([0.0, -0.0, float("nan"), 1.5, None]),
    pa.list_(pa.int64()): st.sampled_from([[], [1], [None], None]),
    pa.struct([("x", pa.int64()), ("y", pa.string())]): st.none()
    | st.fixed_dictionaries({"x": FEW, "y": st.sampled_from(["a", None])}),
}


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    """Key columns with few values, so that many keys come again."""
    kinds = draw(st.lists(st.sampled_from([*VALUES]), min_size=1, max_size=4))
    count = draw(st.integers(0, 12))
    columns = [pa.array([draw(VALUES[kind]) for _ in range(count)], kind) for kind in kinds]
    return pa.table(columns, names=[f"k{number}" for number in range(len(kinds))])


@pytest.mark.exhaustive
@given(tables())
def test_the_last_row_of_each_key(keys: pa.Table) -> None:
    """None stands for all rows."""
    database = embedded()
    database.register("keys", keys.append_column("row", pa.array(range(keys.num_rows), pa.int64())))
    found = database.sql(f"SELECT max(row) AS row FROM keys GROUP BY {listed(keys.column_names)}").to_arrow_table()
    last = last_rows(keys)
    expected = sorted(found["row"].to_pylist())
    assert (list(range(keys.num_rows)) if last is None else last.nonzero()[0].tolist()) == expected


@pytest.mark.parametrize("split", [1, 2])
def test_distinct_keys_need_no_database(split: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one column or several, in one piece or several."""
    monkeypatch.setattr(change_rows, "embedded", lambda: pytest.fail("it was asked"))
    start = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
    windows = [{"start": start + dt.timedelta(hours=n), "end": start + dt.timedelta(hours=n + 1)} for n in range(3)]
    keys = pa.table({"w": pa.array(windows * 2, WINDOW), "k": ["a"] * 3 + [None] * 3})
    pieces = pa.concat_tables([keys.slice(0, 6 // split), keys.slice(6 // split)])
    assert last_rows(pieces) is None
    assert last_rows(keys.select(["k"]).slice(2, 2)) is None
    assert last_rows(keys.slice(0, 0)) is None


def test_too_many_combinations_are_left_to_duckdb(monkeypatch: pytest.MonkeyPatch) -> None:
    """The numbers of the combinations would not fit into 64 bits."""
    monkeypatch.setattr(change_rows, "_MOST_CODES", 3)
    last = last_rows(pa.table({"a": [1, 1, 2, 1], "b": [1, 2, 2, 1]}))
    assert last is not None
    assert last.tolist() == [False, True, True, True]
