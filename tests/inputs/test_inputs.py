"""The input of an epoch, read again, compared with what Spark says that the epoch read."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import streamstate as ss
from streamstate.errors import (
    InvalidArgumentError,
    InvalidSQLError,
    NoResultError,
    NotReplayableError,
    UnknownEpochError,
)
from streamstate.reports import History
from streamstate.snapshots.store.query_plans import plan_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = "i int, t string"
CLEANERS = "spark.sql.streaming.fileSource.cleaner.numThreads"
NAMED = "spark.sql.streaming.queryEvolution.enableSourceEvolution"
Build = Callable[["Sources"], "DataFrame"]


class Sources:
    """Folders of files that queries read, one file per epoch unless said otherwise."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.folder = folder

    def written(self, kind: str, count: int, *, partitioned: bool = False, called: str = " [x]%20") -> Path:
        """A folder with some files of 20 rows each, whose names have a space, brackets and a percent sign."""
        folder = self.folder / kind
        for number in range(0 if folder.exists() else count):
            rows = self.spark.range(number * 20, number * 20 + 20).coalesce(1)
            columns = ["concat('v ', id) value"] if kind == "text" else ["cast(id AS int) i", "concat('v ', id) t"]
            rows = rows.selectExpr(*columns)
            getattr(rows.write, kind)(str(self.folder / f"_{kind}{number}"))
            place = folder / f"p={number % 2}" if partitioned else folder
            place.mkdir(parents=True, exist_ok=True)
            [part] = (self.folder / f"_{kind}{number}").glob("part*")
            part.rename(place / f"{number:03d}{called}.{kind}")
        return folder

    def read(self, kind: str, count: int = 4, each: int = 1, *, partitioned: bool = False) -> DataFrame:
        """A stream of such a folder."""
        schema = "value string" if kind == "text" else COLUMNS + ", p int" * partitioned
        reader = self.spark.readStream.schema(schema).option("maxFilesPerTrigger", each).format(kind)
        # Spark takes brackets for a pattern, and reads n such files of a batch n times each.
        called = " [x]%20" if each == 1 else " x%20"
        return reader.load(str(self.written(kind, count, partitioned=partitioned, called=called)))


def counted(frame: DataFrame) -> DataFrame:
    """A query with state."""
    last = F.col(frame.columns[0]).cast("string").substr(-1, 1)
    return frame.groupBy(last.alias("last")).count()


def twice(frame: DataFrame) -> DataFrame:
    """A stream united with itself."""
    return frame.select("i").union(frame.select("i"))


QUERIES: dict[str, Build] = {
    "parquet": lambda sources: counted(sources.read("parquet", 24)),  # the log of files is compacted
    "json": lambda sources: counted(sources.read("json")),
    "csv": lambda sources: counted(sources.read("csv", each=2)),
    "text": lambda sources: counted(sources.read("text")),
    "orc": lambda sources: counted(sources.read("orc", partitioned=True)),
    "metadata": lambda sources: sources.read("json").select("i", "_metadata.file_name").groupBy("file_name").count(),
    "clock": lambda sources: counted(sources.read("json").withColumn("now", F.current_timestamp())),
    "two": lambda sources: counted(sources.read("json").select("i").union(sources.read("csv").select("i"))),
    "itself": lambda sources: counted(twice(sources.read("json"))),
}


@pytest.fixture
def sources(spark: SparkSession, tmp_path: Path) -> Sources:
    """Folders of files."""
    return Sources(spark, tmp_path / "files")


def captured(frame: DataFrame, folder: Path) -> tuple[History, dict[int, int]]:
    """A query's history, and the rows that Spark says it read in each epoch."""
    running = ss.start(frame, "q", folder / "store", trigger="available-now")
    try:
        assert running.query is not None
        running.query.awaitTermination()
        said = {int(progress["batchId"]): int(progress["numInputRows"]) for progress in running.query.recentProgress}
        running.wait(epoch=max(said), timeout=300)
    finally:
        running.stop()
    return ss.open_store(folder / "store")["q"], said


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow if name == "parquet" else pytest.mark.exhaustive) for name in QUERIES],
)
def test_every_epoch_is_read_again(sources: Sources, tmp_path: Path, name: str) -> None:
    """The counts are those of Spark's progress, and all epochs together have each row once."""
    history, said = captured(QUERIES[name](sources), tmp_path)
    streams: list[int | None] = [0, 1] if name == "two" else [None]
    found: Counter[Any] = Counter()
    for epoch, count in said.items():
        rows = [history.inputs(epoch, source=source) for source in streams]
        assert sum(frame.count() for frame in rows) * (2 if name == "itself" else 1) == count
        assert sum(frame.to_arrow().num_rows for frame in rows) == sum(frame.count() for frame in rows)
        for frame in rows:
            found.update(row[0] for row in frame.collect())
    relation = "q.inputs" if streams == [None] else "q.inputs_1"
    store = ss.open_store(tmp_path / "store")
    in_sql = store.sql(
        f"SELECT * FROM {relation} VERSION AS OF 1 AS rows", engine="spark", spark=sources.spark.newSession()
    )
    assert in_sql.to_arrow().equals(history.inputs(1, source=streams[-1]).to_arrow())
    assert in_sql.epochs == {relation: [1]}
    assert set(found.values()) == {len(streams)}


@pytest.mark.slow
def test_files_that_are_gone_or_changed_are_errors(sources: Sources, tmp_path: Path) -> None:
    """Spark itself would read them as no rows, or as they are now."""
    history, _ = captured(QUERIES["json"](sources), tmp_path)
    files = sorted((sources.folder / "json").iterdir())
    os.utime(files[1], (1, 1))
    files[2].unlink()
    assert history.inputs(0).count() == history.inputs(3).count() == 20
    for epoch, what in ((1, r"001 \[x\]%20.json was changed"), (2, r"002 \[x\]%20.json is gone")):
        with pytest.raises(NotReplayableError, match=what):
            history.inputs(epoch)


@pytest.mark.slow
def test_files_that_were_archived_are_read_in_the_archive(sources: Sources, tmp_path: Path) -> None:
    """Partitions stay those of the file's old path. A file that is not the same there is an error."""

    def build_query(*columns: str) -> DataFrame:
        reader = sources.spark.readStream.schema(COLUMNS + ", p int").option("maxFilesPerTrigger", 2)
        reader = reader.option("cleanSource", "archive").option("sourceArchiveDir", str(tmp_path / "archive"))
        folder = sources.written("json", 6, partitioned=True)
        return counted(reader.json(str(folder)).select("i", "p", *columns))

    sources.spark.conf.set(CLEANERS, 0)  # files are moved before the next epoch, not beside it
    try:
        history, said = captured(build_query(), tmp_path)
    finally:
        sources.spark.conf.unset(CLEANERS)
    archived = sorted((tmp_path / "archive").rglob("*.json"), key=lambda file: file.name)
    assert len(archived) == 4
    expected = [[(i, i // 20 % 2) for i in range(40 * epoch, 40 * epoch + 40)] for epoch in said]

    def rows(epoch: int) -> list[tuple[int, int]]:
        return sorted((row.i, row.p) for row in history.inputs(epoch).collect())

    assert [rows(epoch) for epoch in said] == expected
    assert history.why(0, last="3").count() == 4
    archived[0].rename(Path("/", archived[0].relative_to(tmp_path / "archive")))  # one of two files is back
    assert rows(0) == expected[0]
    os.utime(archived[1], (1, 1))
    archived[2].unlink()
    for epoch, what in (
        (0, "001.*is gone, and .*archive.*001.*was changed"),
        (1, "002.*is gone, and .*archive.*is gone"),
    ):
        with pytest.raises(NotReplayableError, match=what):
            history.inputs(epoch)
    shutil.copy2(archived[3], archived[2])
    os.utime(archived[2], ns=(archived[3].stat().st_mtime_ns,) * 2)
    ss.open_store(tmp_path / "store")["q"].describe(lambda: build_query("_metadata.file_path"))
    with pytest.raises(NotReplayableError, match="changes its _metadata"):
        history.inputs(1)


@pytest.mark.exhaustive
def test_sources_with_names(sources: Sources, tmp_path: Path) -> None:
    """Version 2 of the offset log: a source is asked for by name, whatever its place in the query."""
    files = {"old": "json", "new": "csv"}

    def build_query(*names: str) -> DataFrame:
        frames = []
        for name in names:
            reader = sources.spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1).name(name)
            frames.append(reader.format(files[name]).load(str(sources.written(files[name], 4))).select("i"))
        return counted(frames[0].union(frames[1]))

    sources.spark.conf.set(NAMED, "true")
    try:
        history, said = captured(build_query("old", "new"), tmp_path)
        sources.written("orc", 5)  # the numbers 80 to 99
        rows = sources.spark.read.schema(COLUMNS).orc(str(sources.folder / "orc")).where("i >= 80").coalesce(1)
        rows.write.mode("append").json(str(sources.folder / "json"))
        history, more = captured(build_query("new", "old"), tmp_path)
    finally:
        sources.spark.conf.unset(NAMED)
    assert [*said, *more] == [0, 1, 2, 3, 4]
    for epoch, count in (said | more).items():
        read = {name: [row.i for row in history.inputs(epoch, source=name).collect()] for name in files}
        assert sum(map(len, read.values())) == count
        assert sorted(read["old"]) == [*range(20 * epoch, 20 * epoch + 20)]
        assert sorted(read["new"]) == ([] if epoch == 4 else sorted(read["old"]))
        assert history.why(epoch, last="3").count() == sum(i % 10 == 3 for one in read.values() for i in one)
    with pytest.raises(InvalidArgumentError, match="one of new, old"):
        history.inputs(0)


@pytest.mark.slow
def test_bad_questions(sources: Sources, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each says what would be right."""
    history, _ = captured(QUERIES["two"](sources), tmp_path)
    with pytest.raises(InvalidArgumentError, match="several sources: pass source=, one of 0, 1"):
        history.inputs(0)
    with pytest.raises(InvalidArgumentError, match="no source 2"):
        history.inputs(0, source=2)
    with pytest.raises(UnknownEpochError):
        history.inputs(99, source=0)
    store = ss.open_store(tmp_path / "store")
    for sql, message in (
        ("FROM q.inputs", "several sources"),
        ("FROM q.inputs_2", "no source '2'"),
        ("FROM q.op0.inputs_0", r"Name it q\.inputs_0"),
    ):
        with pytest.raises(ss.StreamStateError, match=message):
            store.sql(sql, engine="spark", spark=sources.spark)
    with pytest.raises(InvalidSQLError, match="engine='spark'"):
        store.sql("FROM q.inputs_0 VERSION AS OF 1")
    monkeypatch.setattr(plan_table, "_planned", {})
    with pytest.raises(NoResultError, match=r"describe\(build_query"):
        history.inputs(0, source=0)
    ss.open_store(tmp_path / "store")["q"].describe(lambda: QUERIES["two"](sources))
    assert history.inputs(0, source=0).count() == 20
