"""The input of the upper operator of a chain, compared with what the lower one emits of the files' rows."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest
from operators.running import HDFS
from pyspark.sql import functions as F

from inputs.streams import EPOCHS, JOINED, START, ids, read, right_of, rows_of_file, run, watermark_before, write_files
from streamstate.errors import EpochGoneError
from streamstate.reports import History
from streamstate.snapshots.store.registry import required_query

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from streamstate import Late


def repeated(epochs: int) -> list[pd.DataFrame]:
    """Files of which each has rows twice, and rows of the file before again."""
    files = [rows_of_file(epoch, 0) for epoch in range(epochs)]
    again = [
        pd.concat([rows.sample(60, random_state=1), files[max(at - 1, 0)].head(90)]) for at, rows in enumerate(files)
    ]
    return [pd.concat([rows, more]) for rows, more in zip(files, again, strict=True)]


def first_seen(history: History, files: list[pd.DataFrame]) -> list[pd.DataFrame]:
    """The rows of each file whose id is new, without late ones."""
    found: list[pd.DataFrame] = []
    seen: set[int] = set()
    for epoch, rows in enumerate(files):
        new = rows[rows.ts > watermark_before(history, epoch)].drop_duplicates("id")
        found.append(new[~new.id.isin(seen)])
        seen |= {*new.id}
    return found


def files_of(folder: str) -> dict[str, int]:
    """All files of a checkpoint, with the times at which they were modified."""
    return {str(file): file.stat().st_mtime_ns for file in Path(folder).rglob("*") if file.is_file()}


def check_windows(history: History, epoch: int, rows: pd.DataFrame, watermark: pd.Timestamp) -> Late:
    """The rows of two hours, and the late ones, as ``why`` and ``late`` have them."""
    is_late = rows.ts.dt.floor("1h") + pd.Timedelta("1h") <= watermark
    for hours in {0, epoch}:
        hour = START + pd.Timedelta(hours=hours)
        why = history.why(epoch, user="a", hour={"start": hour, "end": hour + pd.Timedelta("1h")})
        own = rows[(rows.user == "a") & (rows.ts.dt.floor("1h") == hour) & ~is_late]
        assert sorted(why.sides["rows"].toPandas().id) == sorted(own.id)
        assert why.count() == len(own)
    late = history.late(epoch, "op0")
    assert sorted(late.sides["rows"].toPandas().id) == sorted(rows[is_late].id)
    return late


@pytest.mark.exhaustive
@pytest.mark.parametrize("store", ["RocksDB", pytest.param("HDFS", marks=pytest.mark.exhaustive)])
def test_windows_above_a_deduplication(spark: SparkSession, tmp_path: Path, store: str) -> None:
    """Rows whose key is new come in. The checkpoint is only read; without the state of the epoch before: an error."""
    session = spark.newSession()
    for name, value in (HDFS if store == "HDFS" else {}).items():
        session.conf.set(name, value)
    files = repeated(EPOCHS)
    write_files(tmp_path / "in", files)
    hour = F.window("ts", "1 hour").alias("hour")
    query = read(session, tmp_path / "in").dropDuplicates(["id"]).groupBy("user", hour)
    history, progress = run(query.agg(F.count("*").alias("n"), F.max("id").alias("most")), tmp_path, "append")
    checkpoint = required_query(history.recorded.layout, "q").checkpoint
    written = files_of(checkpoint)
    for epoch, rows in enumerate(first_seen(history, files)):
        watermark = watermark_before(history, epoch)
        late = check_windows(history, epoch, rows, watermark)
        assert (late.groups or 0, late.watermark) == (dropped(progress[epoch], 0), watermark if epoch else None)
        assert history.late(epoch).count() == dropped(progress[epoch], 1) == (files[epoch].ts <= watermark).sum()
    assert files_of(checkpoint) == written
    lower = history.why(1, table="op1", id=7)
    assert ids(lower.sides) == [[7] * (files[1].id == 7).sum()]
    upper = history.why(1, user="a", hour={"start": START, "end": START + pd.Timedelta("1h")})
    assert [suspect.what for suspect in upper.nondeterministic] == ["Deduplicate"]
    assert "Deduplicate" in str(upper)
    assert not lower.nondeterministic
    shutil.rmtree(Path(checkpoint) / "state" / "1" / "0")
    with pytest.raises(EpochGoneError, match=r"That of epoch 1 is incomplete[^\n]*\nAsk about .* lower operator"):
        history.why(2, user="a", hour={"start": START, "end": START + pd.Timedelta("1h")})


@pytest.mark.exhaustive
def test_windows_above_a_join(spark: SparkSession, tmp_path: Path) -> None:
    """The pairs whose second row arrived in the epoch come in; those late for the upper operator are as Spark says."""
    files = {side: [rows_of_file(epoch, seed) for epoch in range(EPOCHS)] for side, seed in (("left", 0), ("right", 9))}
    for side, written in files.items():
        write_files(tmp_path / side, written)

    def source(side: str = "left", delay: str = "30 minutes") -> DataFrame:
        return read(spark, tmp_path / side, delay)

    hour = F.window("ts", "1 hour").alias("hour")
    pairs = source().join(right_of(source), F.expr(JOINED)).groupBy("user", hour)
    history, progress = run(pairs.agg(F.max("id"), F.max("rid")), tmp_path, "append")
    kept = {side: on_time(history, rows) for side, rows in files.items()}
    right = kept["right"].rename(columns={"ts": "rts", "id": "rid", "epoch": "repoch"})
    both = kept["left"].merge(right, on="user")
    both = both[(both.rts - both.ts).abs() <= pd.Timedelta("1h")]
    came_in = both[["epoch", "repoch"]].max(axis=1)
    assert len(both) > 1000
    for epoch in range(EPOCHS):
        rows = both[came_in == epoch]
        late = history.late(epoch, "op0")
        assert (late.groups or 0) == dropped(progress[epoch], 0)
        assert late.watermark is not None
        is_late = rows.ts.dt.floor("1h") + pd.Timedelta("1h") <= late.watermark
        assert pairs_of(late.sides["rows"]) == sorted(zip(rows[is_late].id, rows[is_late].rid, strict=True))
        start = START + pd.Timedelta(hours=max(epoch - 1, 0))
        own = rows[(rows.user == "b") & (rows.ts.dt.floor("1h") == start) & ~is_late]
        why = history.why(epoch, user="b", hour={"start": start, "end": start + pd.Timedelta("1h")})
        assert pairs_of(why.sides["rows"]) == sorted(zip(own.id, own.rid, strict=True))


@pytest.mark.exhaustive
@pytest.mark.slow
def test_windows_above_windows(spark: SparkSession, tmp_path: Path) -> None:
    """The windows that ended in the epoch come in."""
    files = [rows_of_file(epoch, 0) for epoch in range(EPOCHS)]
    write_files(tmp_path / "in", files)
    grouped = read(spark, tmp_path / "in").groupBy(F.window("ts", "10 minutes").alias("short"), "user")
    short = grouped.agg(F.count("*").alias("n"), F.max("id").alias("most"))
    hour = F.window("short", "1 hour").alias("hour")
    history, progress = run(short.groupBy("user", hour).agg(F.sum("n"), F.max("most")), tmp_path, "append")
    kept = on_time(history, files, ends=pd.Timedelta("10min"))
    for epoch in sorted(progress):
        watermark, before = watermark_before(history, epoch + 1), watermark_before(history, epoch)
        arrived = kept[kept.epoch <= epoch]
        short_end = arrived.ts.dt.floor("10min") + pd.Timedelta("10min")
        ended = arrived[(short_end <= watermark) & (short_end > before)]
        for hours in {0, max(epoch - 1, 0)}:
            start = START + pd.Timedelta(hours=hours)
            own = ended[(ended.user == "a") & (ended.ts.dt.floor("1h") == start)]
            counted = own.groupby(own.ts.dt.floor("10min")).id.agg(["size", "max"])
            why = history.why(epoch, user="a", hour={"start": start, "end": start + pd.Timedelta("1h")})
            found = why.sides["rows"].toPandas()
            assert sorted(zip(found.n, found.most, strict=True)) == sorted(counted.itertuples(index=False, name=None))


def on_time(history: History, files: list[pd.DataFrame], ends: pd.Timedelta | None = None) -> pd.DataFrame:
    """The rows that were not late, by their time or the end of their window, with their epoch."""
    found = []
    for epoch, rows in enumerate(files):
        time = rows.ts if ends is None else rows.ts.dt.floor(ends) + ends
        found.append(rows[time > watermark_before(history, epoch)].assign(epoch=epoch))
    return pd.concat(found)


def pairs_of(rows: DataFrame) -> list[tuple[int, int]]:
    """The ids of joined rows."""
    found = rows.select("id", "rid").toPandas()
    return sorted(zip(found.id, found.rid, strict=True))


def dropped(progress: Any, operator: int) -> int:
    """Return how many rows an operator has dropped, according to Spark."""
    return int(progress["stateOperators"][operator]["numRowsDroppedByWatermark"])
