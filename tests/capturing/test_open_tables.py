"""The SQL of the README rebuilds an epoch from the Delta tables with other tools."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import duckdb
import polars
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from oracle import captured_rows
from pyspark.sql import SparkSession
from synthetic import write

import streamstate as ss
from streamstate.reports import Store

README = Path(__file__).parents[2] / "README.md"


def statement(keys: str, epoch: int, keyframe: int | None = None) -> str:
    """The SQL of the README for the given key columns, epoch and keyframe."""
    match = re.search(r"```sql\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert match is not None
    sql = match.group(1).replace("carrier, origin", keys).replace("12", str(epoch))
    return sql.replace("-1", str(-1 if keyframe is None else keyframe))


def with_duckdb(log: pa.Table, sql: str) -> pa.Table:
    """The result in DuckDB."""
    connection = duckdb.connect()
    connection.register("log", log)
    return connection.sql(sql).to_arrow_table()


def with_polars(log: pa.Table, sql: str) -> pa.Table:
    """The result in Polars."""
    frame = polars.from_arrow(log)
    assert isinstance(frame, polars.DataFrame)
    return polars.SQLContext(log=frame).execute(sql, eager=True).to_arrow()


@pytest.mark.parametrize("reader", [with_duckdb, with_polars])
@pytest.mark.parametrize("epoch", range(5))
def test_each_epoch_of_a_captured_query(
    counted: tuple[Path, Path], store: Store, reader: Callable[[pa.Table, str], pa.Table], epoch: int
) -> None:
    """The SQL gives the rows of ``StateTable.to_arrow``."""
    table = store["counts"].at(epoch).table()
    log = DeltaTable(counted[1] / "counts" / "op0").to_pyarrow_table()
    result = reader(log, statement("k", epoch)).select([*table.key_columns, *table.value_columns])
    assert Counter(map(repr, result.to_pylist())) == Counter(map(repr, table.to_arrow().to_pylist()))


@pytest.mark.parametrize("reader", [with_duckdb, with_polars])
def test_keyframes_and_gaps(tmp_path: Path, reader: Callable[[pa.Table, str], pa.Table]) -> None:
    """The log is read from the keyframe that the manifest has for the epoch."""
    states = [{"a": 1}, {"a": 1, "b": 2}, None, {"c": 3}, {"c": 4}, {}, {"d": 5}]
    write(tmp_path, list(states), keyframe_every=2)
    epochs = ss.open_store(tmp_path)["q"].epochs()
    log = DeltaTable(tmp_path / "q" / "op0").to_pyarrow_table()
    for epoch, keyframes in zip(epochs["epoch"], epochs["keyframes"], strict=True):
        if states[epoch] is None:
            continue
        rows = reader(log, statement("key", epoch, keyframes["op0"])).to_pylist()
        assert {row["key"]: row["value"] for row in rows} == states[epoch]


def test_an_epoch_read_with_spark(spark: SparkSession, counted: tuple[Path, Path], store: Store) -> None:
    """Spark reads the files listed by the Delta log, and gives the same rows."""
    files = DeltaTable(counted[1] / "counts" / "op0").file_uris()
    spark.read.parquet(*files).createOrReplaceTempView("log")
    table = store["counts"].at(3).table()
    columns = [f"`{name}`" for name in [*table.key_columns, *table.value_columns]]
    result = spark.sql(statement("k", 3)).select(*columns).toArrow()
    assert Counter(map(repr, result.to_pylist())) == Counter(map(repr, table.to_arrow().to_pylist()))
    assert sum(captured_rows(table).values()) == result.num_rows
