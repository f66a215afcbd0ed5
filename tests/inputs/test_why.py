"""The rows behind a change, compared with all rows of the epoch's files, filtered by hand."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest
from notebook_shell import Shell, bare_shell  # noqa: F401 (a fixture)
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.streaming.state import GroupStateTimeout

import streamstate as ss
from inputs.streams import (
    EPOCHS,
    HOUR,
    JOINED,
    START,
    Source,
    ids,
    read,
    right_of,
    rows_of_file,
    run,
    watermark_before,
    write_files,
)
from streamstate.errors import InvalidArgumentError, NotReplayableError, UnknownEpochError
from streamstate.reports import History
from streamstate.snapshots.store.query_plans.spark_plan import plan_of_frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two folders of files, one file per epoch."""
    made = tmp_path_factory.mktemp("why")
    for name, seed in (("left", 0), ("right", 100)):
        write_files(made / name, [rows_of_file(epoch, seed) for epoch in range(EPOCHS)])
    return made


@dataclass(frozen=True)
class Case:
    """A query, and the rows that fall on a key."""

    mode: str
    build: Callable[[Source], DataFrame]
    key: dict[str, Any]
    expected: Callable[[pd.DataFrame, pd.DataFrame, pd.Timestamp], list[pd.DataFrame]]
    late: Callable[[pd.DataFrame, pd.DataFrame, pd.Timestamp], list[pd.DataFrame]]
    table: str | None = None


def names_of(_: Source) -> DataFrame:
    """A static table without user c."""
    spark = SparkSession.active()
    return spark.createDataFrame([("a", "Ann"), ("b", "Bob")], "user string, name string")


def counted_by_function(rows: DataFrame) -> DataFrame:
    """applyInPandasWithState; Spark pickles a function inside a function by value."""

    def counted(key: tuple[str], frames: Any, state: Any) -> Any:
        """Count the rows that came in."""
        number = (state.get[0] if state.exists else 0) + sum(map(len, frames))
        state.update((number,))
        yield pd.DataFrame({"user": [key[0]], "n": [number]})

    timeout = GroupStateTimeout.EventTimeTimeout
    return rows.groupBy("user").applyInPandasWithState(counted, "user string, n long", "n long", "update", timeout)


def counted_by_processor(rows: DataFrame) -> DataFrame:
    """TransformWithState."""

    class Counting(StatefulProcessor):
        """Counts the rows that came in."""

        def init(self, handle: Any) -> None:
            """Declare the state."""
            self.n = handle.getValueState("n", "n long")

        def handleInputRows(self, key: Any, rows: Any, timers: Any) -> Any:
            number = (self.n.get()[0] if self.n.exists() else 0) + sum(map(len, rows))
            self.n.update((number,))
            yield pd.DataFrame({"user": [key[0]], "n": [number]})

        def close(self) -> None:
            """Nothing to release."""

    return rows.groupBy("user").transformWithStateInPandas(
        Counting(), outputStructType="user string, n long", outputMode="Update", timeMode="None"
    )


def joined(how: str) -> Case:
    """A join of both streams."""
    return Case(
        "append",
        lambda source: source().where("x > 0.2").join(right_of(source), F.expr(JOINED), how),
        {"field0": "c"},
        lambda left, right, watermark: [
            left[(left.user == "c") & (left.x > 0.2) & (left.ts > watermark)],
            right[(right.user == "c") & (right.ts > watermark)],
        ],
        lambda left, right, watermark: [left[(left.x > 0.2) & (left.ts <= watermark)], right[right.ts <= watermark]],
        "op0_left",
    )


CASES = {
    "filter": Case(
        "update",
        lambda source: source().where("x > 0.2").groupBy("user").agg(F.avg("x").alias("mean")),
        {"user": "b"},
        lambda left, _, __: [left[(left.user == "b") & (left.x > 0.2)]],
        lambda left, _, __: [left[:0]],
    ),
    "window": Case(
        "update",
        lambda source: source().groupBy(F.window("ts", "1 hour").alias("hour"), F.upper("user").alias("who")).count(),
        {"hour": HOUR, "who": "C"},
        lambda left, _, __: [left[(left.user == "c") & (left.ts >= HOUR["start"]) & (left.ts < HOUR["end"])]],
        lambda left, _, watermark: [left[left.ts.dt.floor("1h") + pd.Timedelta("1h") <= watermark]],
    ),
    "sliding": Case(
        "update",
        lambda source: source().groupBy(F.window("ts", "1 hour", "20 minutes").alias("hour")).count(),
        {"hour": HOUR},
        lambda left, _, __: [left[(left.ts >= HOUR["start"]) & (left.ts < HOUR["end"])]],
        lambda left, _, watermark: [
            pd.concat(
                [left[left.ts.dt.floor("20min") + pd.Timedelta(minutes=20 + m) <= watermark] for m in (0, 20, 40)]
            )
        ],
    ),
    "static join": Case(
        "update",
        lambda source: (
            source().join(names_of(source), "user").groupBy("name", F.window("ts", "1 hour").alias("hour")).count()
        ),
        {"name": "Ann", "hour": HOUR},
        lambda left, _, __: [left[(left.user == "a") & (left.ts >= HOUR["start"]) & (left.ts < HOUR["end"])]],
        lambda left, _, watermark: [
            left[(left.user != "c") & (left.ts.dt.floor("1h") + pd.Timedelta("1h") <= watermark)]
        ],
    ),
    "applyInPandasWithState": Case(
        "update",
        lambda source: counted_by_function(source()),
        {"user": "b"},
        lambda left, _, watermark: [left[(left.user == "b") & (left.ts > watermark)]],
        lambda left, _, watermark: [left[left.ts <= watermark]],
    ),
    "transformWithState": Case(
        "update",
        lambda source: counted_by_processor(source()),
        {"user": "b"},
        lambda left, _, __: [left[left.user == "b"]],
        lambda left, _, __: [left[:0]],
        "op0_n",
    ),
    "deduplication": Case(
        "append",
        lambda source: source().withColumn("k", F.col("id") % 50).dropDuplicatesWithinWatermark(["user", "k"]),
        {"user": "b", "k": 7},
        lambda left, _, watermark: [left[(left.user == "b") & (left.id % 50 == 7) & (left.ts > watermark)]],
        lambda left, _, watermark: [left[left.ts <= watermark]],
    ),
    "deduplication without a watermark": Case(
        "append",
        lambda source: source(delay=None).withColumn("k", F.col("id") % 50).dropDuplicates(["user", "k"]),
        {"user": "b", "k": 7},
        lambda left, _, __: [left[(left.user == "b") & (left.id % 50 == 7)]],
        lambda left, _, __: [left[:0]],
    ),
    "complete": Case(
        "complete",
        lambda source: source().groupBy(F.window("ts", "1 hour").alias("hour")).count(),
        {"hour": HOUR},
        lambda left, _, __: [left[(left.ts >= HOUR["start"]) & (left.ts < HOUR["end"])]],
        lambda left, _, __: [left[:0]],
    ),
    **{f"join, {how}": joined(how) for how in ("inner", "leftOuter", "rightOuter", "fullOuter", "leftSemi")},
}


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow if name == "window" else pytest.mark.exhaustive) for name in CASES],
)
def test_rows_behind_a_change(spark: SparkSession, folder: Path, tmp_path: Path, name: str) -> None:
    """Exactly those that reached the operator with the key, and were not late."""
    case = CASES[name]

    def source(side: str = "left", delay: str | None = "30 minutes") -> DataFrame:
        return read(spark, folder / side, delay)

    history, progress = run(case.build(source), tmp_path, case.mode)
    dropped = {epoch: one["stateOperators"][0]["numRowsDroppedByWatermark"] for epoch, one in progress.items()}
    counted = history.late_counts(range(EPOCHS)).set_index("epoch")
    for epoch in range(EPOCHS):
        watermark = watermark_before(history, epoch)
        left, right = (pd.read_parquet(folder / side / f"{epoch}.parquet") for side in ("left", "right"))
        found = history.why(epoch, table=case.table, **case.key)
        expected = case.expected(left, right, watermark)
        assert ids(found.sides) == [sorted(rows.id) for rows in expected]
        assert found.count() == sum(map(len, expected))
        if case.mode == "update" and case.table is None and name != "applyInPandasWithState":
            assert (found.cause == "input") == bool(found.count())
        assert ("did not change" in str(found)) == (found.cause is None)
        late = history.late(epoch)
        expected = case.late(left, right, watermark)
        assert ids(late.sides) == [sorted(rows.id) for rows in expected]
        assert (late.count() if late.groups is None else late.groups) == dropped[epoch]
        _check_delay(late)
        _check_counted(counted.loc[epoch], late, sum(map(len, expected)))


def _check_counted(row: Any, late: Any, dropped: int) -> None:
    """The row of an epoch has what the epoch's late rows say."""
    assert pd.isna(row.missing)
    assert (row.came, row.dropped) == (late.came, dropped)
    assert (None if pd.isna(row.groups) else row.groups) == late.groups
    assert (None if pd.isna(row.watermark) else row.watermark) == late.watermark
    assert row.longer_delay == late.longer_delay()
    assert pd.isna(row.longest) if not dropped else row.longest == late.rows["_late_by"].max()


def _check_delay(late: Any) -> None:
    """The shortest delay, in milliseconds, with which at most a hundredth is late."""
    late_by = pd.concat([side.select("_late_by").toPandas()._late_by for side in late.sides.values()])
    longer, most = pd.Timedelta(late.longer_delay()), late.came * 0.01
    assert (late_by >= longer).sum() <= most or not longer
    assert not longer or (late_by >= longer - pd.Timedelta("1ms")).sum() > most


@pytest.mark.exhaustive
def test_a_window_that_ended(spark: SparkSession, bare_shell: Shell, folder: Path, tmp_path: Path) -> None:
    """The watermark is the cause; the row that moved it is the latest of the epoch before."""
    query = read(spark, folder / "left").groupBy(F.window("ts", "1 hour").alias("hour"), "user").count()
    history, _ = run(query, tmp_path, "append")
    hour = {"start": START, "end": START + pd.Timedelta("1h")}
    ended = history.why(2, hour=hour, user="a")
    assert (ended.cause, ended.after) == ("watermark", None)
    latest = pd.read_parquet(folder / "left" / "1.parquet").sort_values("ts").iloc[-1]
    assert ended.moved is not None
    assert ended.moved["id"] == latest.id
    assert f"id={latest.id}" in str(ended)
    assert "watermark" in ended._repr_html_()
    assert "_late_by" in str(history.late(2))
    assert "_late_by" in history.late(2)._repr_html_()
    with pytest.raises(InvalidArgumentError, match="keep"):
        history.late(2).longer_delay(2)
    bare_shell.run(f"%config StreamState.store = {str(tmp_path / 'store')!r}")
    assert bare_shell.run("%state q late 2").count() == history.late(2).count()
    assert len(bare_shell.run("%state q inputs 2")) < 300
    assert "of 300 rows" in bare_shell.printed
    bare_shell.run("%state q inputs 2 -o found")
    assert bare_shell.names["found"].count() == 300
    key = f"user=a 'hour={json.dumps(hour, default=str)}'"
    assert bare_shell.run(f"%state q why 2 {key}").count() == ended.count()
    assert "For example: " in bare_shell.fails("%state q why 2", InvalidArgumentError)
    assert "no option --source" in bare_shell.fails("%state q late 2 --source 0", InvalidArgumentError)
    _check_epochs_that_cannot_be_read(history, bare_shell, folder / "left" / "2.parquet")
    assert "no source" in bare_shell.fails("%state q inputs 2 --source other", InvalidArgumentError)


def _check_epochs_that_cannot_be_read(history: History, shell: Shell, file: Path) -> None:
    """They say why, and hide no others; only if none can be read, it is an error."""
    written = file.stat()
    os.utime(file, (1, 1))
    try:
        shell.run("%state q late 1..2 -o rows")
        rows = shell.names["rows"]
        assert rows["dropped"].tolist() == [history.late(1).count(), pd.NA]
        assert "2.parquet was changed" in rows["missing"][1]
        with pytest.raises(NotReplayableError, match=r"2\.parquet was changed"):
            history.late_counts([2])
    finally:
        os.utime(file, ns=(written.st_atime_ns, written.st_mtime_ns))
    with pytest.raises(UnknownEpochError):
        history.late_counts([99])
    assert f"{rows['dropped'][0]:,} were dropped" in repr(shell.run("%state q late 0..1"))
    shown = shell.run("%state q late")
    assert shown.rows["epoch"].tolist() == history.captured()
    assert shown.rows["missing"].isna().all()


@pytest.mark.slow
def test_a_restart_with_another_filter(spark: SparkSession, folder: Path, tmp_path: Path) -> None:
    """Each epoch is explained by the code that it ran with, although the state and the result look the same."""
    reader = spark.readStream.schema("ts timestamp, user string, x double, id long").option("maxFilesPerTrigger", 1)
    (tmp_path / "in").mkdir()
    bounds = {0: 0.2, 1: 0.8}
    for epoch, bound in bounds.items():
        shutil.copy(folder / "left" / f"{epoch}.parquet", tmp_path / "in")
        rows = reader.parquet(str(tmp_path / "in")).where(F.col("x") > bound)
        query = rows.groupBy("user").agg(F.transform(F.collect_set("x"), lambda x: x + 1).alias("all"))
        running = ss.start(query, "q", tmp_path / "store", trigger="available-now")
        assert running.query is not None
        running.query.awaitTermination()
        running.wait(epoch=epoch, timeout=300)
        running.stop()
    history = ss.open_store(tmp_path / "store")["q"]
    for epoch, bound in bounds.items():
        left = pd.read_parquet(folder / "left" / f"{epoch}.parquet")
        assert history.why(epoch, table="op0", user="a").count() == len(left[(left.user == "a") & (left.x > bound)])


def test_the_same_code_has_the_same_fingerprint(spark: SparkSession, folder: Path) -> None:
    """Columns' numbers, watermarks' names and lambda variables differ from one start to the next."""

    def built(bound: float) -> str:
        reader = spark.readStream.schema("ts timestamp, user string, x double, id long")
        rows = reader.parquet(str(folder / "left")).withWatermark("ts", "1 hour")
        larger = rows.where(F.exists(F.array("x"), lambda x: x > bound))
        return plan_of_frame(larger.groupBy("user").count(), "update").plan.fingerprint

    assert built(0.5) == built(0.5) != built(0.25)
