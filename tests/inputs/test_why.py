"""The rows behind a change, compared with all rows of the epoch's files, filtered by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
from pyspark.sql import functions as F

import streamstate as ss

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EPOCHS = 4
START = pd.Timestamp("2024-01-01", tz="UTC")
Source = Callable[..., "DataFrame"]


def rows_of_file(epoch: int, seed: int, count: int = 300) -> pd.DataFrame:
    """An hour of rows, a quarter of which come up to six hours late."""
    random = np.random.default_rng(seed + epoch)
    late = np.where(random.random(count) < 0.25, random.integers(0, 6 * 3600, count), 0)
    seconds = epoch * 3600 + random.integers(0, 3600, count) - late
    columns = {
        "ts": (START + pd.to_timedelta(seconds, unit="s")).astype("datetime64[us, UTC]"),
        "user": random.choice(["a", "b", "c"], count),
        "x": random.random(count),
        "id": np.arange(count) + epoch * count,
    }
    return pd.DataFrame(columns)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two folders of files, one file per epoch."""
    made = tmp_path_factory.mktemp("why")
    for name, seed in (("left", 0), ("right", 100)):
        (made / name).mkdir()
        for epoch in range(EPOCHS):
            rows_of_file(epoch, seed).to_parquet(made / name / f"{epoch}.parquet")
    return made


@dataclass(frozen=True)
class Case:
    """A query, and the rows that fall on a key."""

    mode: str
    build: Callable[[Source], DataFrame]
    key: dict[str, Any]
    expected: Callable[[pd.DataFrame, pd.DataFrame, pd.Timestamp], list[pd.DataFrame]]


def right_of(source: Source) -> DataFrame:
    """The other side of a join."""
    columns = [F.col("ts").alias("rts"), F.col("user").alias("ruser"), F.col("id").alias("rid")]
    return source("right", "1 hour").select(*columns)


HOUR = {"start": START + pd.Timedelta("2h"), "end": START + pd.Timedelta("3h")}
JOINED = "user = ruser AND rts BETWEEN ts - INTERVAL 1 HOUR AND ts + INTERVAL 1 HOUR"
CASES = {
    "filter": Case(
        "update",
        lambda source: source().where("x > 0.2").groupBy("user").agg(F.avg("x").alias("mean")),
        {"user": "b"},
        lambda left, _, __: [left[(left.user == "b") & (left.x > 0.2)]],
    ),
    "window": Case(
        "update",
        lambda source: source().groupBy(F.window("ts", "1 hour").alias("hour"), F.upper("user").alias("who")).count(),
        {"hour": HOUR, "who": "C"},
        lambda left, _, __: [left[(left.user == "c") & (left.ts >= HOUR["start"]) & (left.ts < HOUR["end"])]],
    ),
    "deduplication": Case(
        "append",
        lambda source: source().withColumn("k", F.col("id") % 50).dropDuplicatesWithinWatermark(["user", "k"]),
        {"user": "b", "k": 7},
        lambda left, _, watermark: [left[(left.user == "b") & (left.id % 50 == 7) & (left.ts > watermark)]],
    ),
    "join": Case(
        "append",
        lambda source: source().where("x > 0.2").join(right_of(source), F.expr(JOINED)),
        {"field0": "c"},
        lambda left, right, watermark: [
            left[(left.user == "c") & (left.x > 0.2) & (left.ts > watermark)],
            right[(right.user == "c") & (right.ts > watermark)],
        ],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_rows_behind_a_change(spark: SparkSession, folder: Path, tmp_path: Path, name: str) -> None:
    """Exactly those that reached the operator with the key, and were not late."""
    case = CASES[name]

    def source(side: str = "left", delay: str = "30 minutes") -> DataFrame:
        reader = spark.readStream.schema("ts timestamp, user string, x double, id long")
        return reader.option("maxFilesPerTrigger", 1).parquet(str(folder / side)).withWatermark("ts", delay)

    running = ss.start(case.build(source), "q", tmp_path / "store", mode=case.mode, trigger="available-now")
    assert running.query is not None
    running.query.awaitTermination()
    running.wait(epoch=EPOCHS - 1, timeout=60)
    running.stop()
    history = ss.open_store(tmp_path / "store")["q"]
    for epoch in range(EPOCHS):
        table = "op0_left" if name == "join" else None
        watermark = history.at(epoch - 1).watermark if epoch else None
        found = history.why(epoch, table=table, **case.key)
        left, right = (pd.read_parquet(folder / side / f"{epoch}.parquet") for side in ("left", "right"))
        expected = case.expected(left, right, pd.Timestamp(watermark or pd.Timestamp(0, tz="UTC")))
        shown = [side.select(f"_source{at}.id").toPandas().id for at, side in enumerate(found.sides.values())]
        assert [sorted(ids) for ids in shown] == [sorted(rows.id) for rows in expected]
        assert found.count() == sum(map(len, expected))
