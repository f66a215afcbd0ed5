"""What needs the plan of a query: its results, and the input behind its state."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
import pytest

import streamstate as ss
from versions.queries import DAY, EPOCHS, Totals, add, input_of, rows_of, stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.mark.versions("the result of a started query")
def test_results(totals: Totals) -> None:
    """The plan was recorded when the query started."""
    for epoch in range(EPOCHS):
        assert rows_of(totals.history.at(epoch).result().to_pandas()) == totals.expected(epoch)


@pytest.mark.versions("`history.describe`")
def test_describing(totals: Totals, tmp_path: Path) -> None:
    """A query that was captured from its checkpoint alone has a result once its code is known."""
    totals.checkpoint.capture(tmp_path / "store", "again", verify="never")
    history = ss.open_store(tmp_path / "store")["again"]
    assert not history.results()
    history.describe(totals.build)
    assert rows_of(ss.open_store(tmp_path / "store")["again"].at(1).result().to_pandas()) == totals.expected(1)


@pytest.mark.versions("`history.inputs`")
def test_inputs(totals: Totals) -> None:
    """The rows of the epoch's file."""
    found = totals.history.inputs(1).toPandas()
    assert {*zip(found["k"], found["v"], strict=True)} == {*zip(input_of(1)["k"], input_of(1)["v"], strict=True)}


@pytest.mark.versions("`history.why`")
def test_why(totals: Totals) -> None:
    """The input rows behind a key's change."""
    why = totals.history.why(2, k="k1")
    rows = input_of(2)
    assert why.count() == (rows["k"] == "k1").sum() > 0
    assert why.cause == "input"


def _hours(spark: SparkSession, folder: Path) -> DataFrame:
    from pyspark.sql import functions as F

    return stream(spark, folder).withWatermark("t", "0 minutes").groupBy(F.window("t", "1 hour"), "k").agg(F.sum("v"))


@pytest.mark.versions("`history.late`")
def test_late(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The row that came after its window was closed."""
    folder = tmp_path_factory.mktemp("late")
    for epoch, hours in enumerate([(10,), (12,), (12,), (9, 12.5)]):
        times = [DAY + dt.timedelta(hours=hour) for hour in hours]
        add(folder / "input", epoch, pd.DataFrame({"k": "a", "v": range(len(times)), "t": times}))
    running = ss.start(
        _hours(spark, folder / "input"), "hours", folder / "store", trigger="available-now", partitions=1
    )
    running.wait(timeout=300)
    history = running.history
    epochs = history.epochs()
    [last] = epochs["epoch"][epochs["input_rows"].fillna(0) == 2]
    late = history.late(last)
    assert (late.count(), late.came) == (1, 2)
    assert late.sides["rows"].toPandas()["v"].tolist() == [0]
