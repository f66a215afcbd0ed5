"""The same statements give the same rows in the embedded engine and in Spark."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import SparkSession
from synthetic import START, State, write

import streamstate as ss

NAMES = pd.DataFrame({"key": ["a", "d"], "n": [1, 2]})
STATES: list[State | None] = [
    {"a": 1, "b": 10},
    {"a": 2, "b": 10, "c": 5},
    {"b": 11, "c": 5},
    None,
    {"b": 12, "d": 7},
    {"a": 3, "b": 12, "d": 8},
    {"a": 3, "d": 9, "e": 1},
]


@pytest.fixture(scope="module")
def gapped(tmp_path_factory: pytest.TempPathFactory) -> ss.Store:
    """A store with one query ``q``: keys come, change and go, epoch 3 is a gap."""
    folder = tmp_path_factory.mktemp("gapped [1]")
    write(folder, STATES, keyframe_every=5)
    return ss.open_store(folder)


def same_in_both(store: ss.Store, spark: SparkSession, sql: str, **given: Any) -> pd.DataFrame:
    """The rows, which are equal in both engines, as are the columns' names and the epochs."""
    embedded = store.sql(sql, **given)
    distributed = store.sql(sql, engine="spark", spark=spark, **given)
    assert distributed.columns == embedded.columns
    assert distributed.epochs == embedded.epochs
    ordered = " ORDER BY " in sql.upper()
    assert _rows(distributed, ordered=ordered) == _rows(embedded, ordered=ordered)
    assert len(distributed) == len(embedded)
    return embedded.to_pandas()


def _rows(result: ss.Result, *, ordered: bool) -> list[tuple[Any, ...]]:
    rows = list(zip(*(column.to_pylist() for column in result.to_arrow().columns), strict=True))
    return rows if ordered else sorted(rows, key=repr)


@pytest.mark.parametrize(
    ("sql", "given"),
    [
        ("SELECT * FROM q", {}),
        ("SELECT * FROM q", {"at": 2}),
        ("SELECT * FROM q", {"at": "live - 1"}),
        ("SELECT * FROM q", {"at": START + timedelta(minutes=1, seconds=5)}),
        ("SELECT * FROM Q.OP0 VERSION AS OF 4 AS x WHERE x.value > 7", {}),
        ("SELECT * FROM q FOR VERSION AS OF 'live - 2' ORDER BY value DESC", {}),
        ("SELECT * FROM q TIMESTAMP AS OF '2026-01-01T00:01:30+00:00'", {}),
        ("SELECT key, n.value - o.value AS moved FROM q n JOIN q VERSION AS OF 4 o USING (key)", {}),
        ("SELECT n.key, o.value, n.value FROM q n FULL JOIN q VERSION AS OF 0 AS o ON n.key = o.key ORDER BY 1, 2", {}),
        ("WITH old AS (SELECT * FROM q VERSION AS OF 1) SELECT count(*) AS n, sum(value) AS s FROM old", {}),
        ("SELECT key FROM q EXCEPT SELECT key FROM q VERSION AS OF 4", {}),
        ("SELECT key FROM q WHERE value > (SELECT avg(value) FROM q VERSION AS OF ?) AND key <> ?",
         {"params": [0, "x"]}),
        ("SELECT $e AS at, * FROM q VERSION AS OF $e WHERE value BETWEEN $low AND $high",
         {"params": {"e": 2, "low": 1, "high": 10}}),
        ("SELECT key, value FROM q QUALIFY row_number() OVER (ORDER BY value DESC) <= 2", {}),
        ("SELECT value > 5 AS big, count(*) AS n, max(key) AS k FROM q VERSION AS OF 1 GROUP BY ALL ORDER BY big", {}),
        ("SELECT value / 2 AS half, value // 2 AS whole, value % 2 AS odd FROM q ORDER BY value", {}),
        ("SELECT * FROM q.history", {}),
        ("SELECT * FROM q.op0.history VERSION AS OF 4", {}),
        ("SELECT key, count(*) AS versions FROM q.history WHERE _valid_to IS NOT NULL GROUP BY key", {}),
        ("SELECT * FROM q.changes", {}),
        ("SELECT _change, count(*) AS n FROM q.changes VERSION AS OF 5 GROUP BY _change ORDER BY _change", {}),
        ("SELECT o.key, o.value AS a, n.value AS b FROM q.changes o JOIN q n ON n.key = o.key AND n.value > o.value",
         {}),
        ("SELECT * FROM names JOIN q USING (key)", {"frames": {"names": NAMES}}),
        ("FROM q PIVOT (sum(value) FOR key IN ('a', 'd'))", {}),
    ],
)  # fmt: skip
def test_a_statement_gives_the_same_in_both(
    gapped: ss.Store, spark: SparkSession, sql: str, given: dict[str, Any]
) -> None:
    """Relations, time travel, parameters and the user's own data mean one thing in DuckDB and in Spark."""
    assert len(same_in_both(gapped, spark, sql, **given))
