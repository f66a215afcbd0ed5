"""``Snapshot.restore``: a checkpoint from an epoch that the store has."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from socket import gethostname

import pytest
from operators.processors import PANDAS_STATE, TRANSFORM
from operators.queries import JOINS, KEYS, OTHERS, VALUES, WINDOWS, aggregated, grouped, in_format
from operators.running import CHANGELOG_OFF, FORMAT_1, HDFS, Query, Run, with_settings
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from sampling import sampled

import streamstate as ss
from new_checkpoint.restored import check_goes_on, gone_on, stored
from streamstate.errors import (
    DiskFullError,
    EpochGoneError,
    InvalidArgumentError,
    NotACheckpointError,
    StateWriteError,
    UnsupportedStateError,
)
from streamstate.operations.new_checkpoint import writer
from streamstate.operations.new_checkpoint.captured_epoch import CapturedEpoch
from streamstate.replay.state_writing import state_rewriter
from streamstate.reports import WrittenCheckpoint
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles

QUERIES: dict[str, Query] = {**WINDOWS, **OTHERS, **JOINS, **PANDAS_STATE, **TRANSFORM}
QUERIES |= {f"keys: {name}": grouped(*keys) for name, keys in KEYS.items()}
QUERIES |= {f"values: {name}": aggregated(*values) for name, values in VALUES.items()}
QUICK = ["session window", "inner", "rows, processing time, TTL and timers"]
MARKS = dict(zip(QUICK, ([], [pytest.mark.exhaustive], [pytest.mark.exhaustive]), strict=True))
CHANCE = "processing"
"""In the names of queries whose state depends on when they run."""


def restored(spark: SparkSession, folder: Path, query: Query, epoch: int = 1) -> tuple[Run, WrittenCheckpoint]:
    """A captured run, and the checkpoint that is restored from one of its epochs."""
    run = Run(spark, folder)
    run.start(query, epochs=range(3))
    run.capture()
    return run, run.history.at(epoch).restore(to=folder / "restored", spark=spark)


def check(spark: SparkSession, folder: Path, name: str) -> None:
    """All bytes are the same, and so is where the query gets to from there."""
    query = QUERIES[name]
    run, new = restored(spark, folder, query)
    assert stored(spark, new, 1) == stored(spark, run.checkpoint, 1)
    if CHANCE not in name:
        check_goes_on(run, query, new)


@pytest.mark.parametrize("name", [pytest.param(name, marks=MARKS[name]) for name in QUICK])
def test_the_state_is_the_same_byte_for_byte(spark: SparkSession, tmp_path: Path, name: str) -> None:
    """Every column family of every store, in the same partition; the query goes on from it as the original did."""
    check(spark, tmp_path, name)


@pytest.mark.slow
@pytest.mark.parametrize("name", sampled(sorted({*QUERIES} - {*QUICK, "limit"}), 1))
def test_the_state_of_every_operator_and_type(spark: SparkSession, tmp_path: Path, name: str) -> None:
    """The same for every operator, and for keys and values of every type; or a refusal that names the column."""
    try:
        check(spark, tmp_path, name)
    except UnsupportedStateError as error:
        assert "there is no way back" in str(error)  # noqa: PT017 (most are not refused)
        assert not (tmp_path / "restored").exists()


@pytest.mark.exhaustive
@pytest.mark.parametrize("version", [1, 2, 3])
def test_joins_in_other_formats(spark: SparkSession, tmp_path: Path, version: int) -> None:
    """Spark keeps the rows of a join's sides in four stores, or in one."""
    run = Run(spark, tmp_path)
    run.start(JOINS["left_outer"], in_format(version), epochs=range(3))
    run.capture()
    new = run.history.at(1).restore(to=tmp_path / "restored", spark=spark)
    assert stored(spark, new, 1) == stored(spark, run.checkpoint, 1)
    check_goes_on(run, JOINS["left_outer"], new, in_format(version))


@pytest.mark.slow
@pytest.mark.parametrize("name", sampled(QUICK[::-1], 1))
def test_a_checkpoint_that_is_gone(spark: SparkSession, tmp_path: Path, name: str) -> None:
    """The code says what the state looks like; the store has the rest. The newest epoch, whose next never ran."""
    by_code(spark, tmp_path, name)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", sorted({*QUERIES} - {*QUICK, "limit"}))
def test_every_operator_by_its_code(spark: SparkSession, tmp_path: Path, name: str) -> None:
    """The same for every operator; or a refusal that names the column."""
    try:
        by_code(spark, tmp_path, name)
    except UnsupportedStateError as error:
        assert "there is no way back" in str(error)  # noqa: PT017 (most are not refused)


def by_code(spark: SparkSession, folder: Path, name: str) -> None:
    """All bytes are the same, and so is where the query gets to from there."""
    query, run = QUERIES[name], Run(spark, folder)
    run.start(query, epochs=range(3))
    run.capture()
    run.checkpoint.rename(folder / "elsewhere")
    session = with_settings(spark, query.conf)
    new = run.history.live().restore(
        to=folder / "restored", build_query=lambda: query.build(run.inputs.stream(session)), mode=query.mode
    )
    (folder / "elsewhere").rename(run.checkpoint)
    newest = run.history.captured()[-1]
    assert stored(spark, new, newest) == stored(spark, run.checkpoint, newest)
    if CHANCE not in name:
        run.start(query, epochs=range(3, 5))
        check_goes_on(run, query, new)


LATE = """import sys, time
from pathlib import Path
time.sleep(3)
folder = Path(sys.argv[1]).resolve() / "state"
folder.mkdir(parents=True)"""
"""A process that writes a little later, also if the folder is gone."""
SMALL = aggregated("count(v) AS rows", "max(k) AS most")


@pytest.fixture
def small(spark: SparkSession, tmp_path: Path) -> Run:
    """A captured run of a small query."""
    run = Run(spark, tmp_path)
    run.start(SMALL, epochs=range(3))
    run.capture()
    return run


STORES = {"format 1": FORMAT_1, "without changelog": CHANGELOG_OFF, "HDFS": HDFS}


@pytest.mark.slow
@pytest.mark.parametrize("name", sampled(STORES, 1))
def test_any_store_goes_on_in_rocksdb(spark: SparkSession, tmp_path: Path, name: str) -> None:
    """The state goes on the same, whatever kept it before."""
    provider = STORES[name]
    run = Run(spark, tmp_path)
    run.start(SMALL, provider, epochs=range(3))
    run.capture()
    new = run.history.at(1).restore(to=tmp_path / "restored", spark=spark)
    check_goes_on(run, SMALL, new, provider)
    assert "RocksDB" in (tmp_path / "restored" / "offsets" / "1").read_text()


def test_an_epoch_that_spark_has_purged(small: Run, spark: SparkSession, tmp_path: Path) -> None:
    """With its state, what it read, and its watermark: the store has them."""
    expected = stored(spark, small.checkpoint, 1)
    for path in [*small.checkpoint.glob("offsets/[01]"), *small.checkpoint.glob("commits/[01]")]:
        path.unlink()
    for path in small.checkpoint.glob("state/0/*/*.*"):
        path.unlink()
    new = small.history.at(1).restore(to=tmp_path / "restored", spark=spark)
    assert stored(spark, new, 1) == expected
    gone_on(small, SMALL, new)
    ss.Checkpoint(new).capture(small.store, "again", spark=spark)
    again, original = ss.open_store(small.store)["again"], small.history
    assert again.captured() == [1, 2]
    assert again.live().table().to_arrow().sort_by("k") == original.live().table().to_arrow().sort_by("k")


@pytest.mark.slow
def test_a_copied_store(small: Run, spark: SparkSession, tmp_path: Path) -> None:
    """Input files that were moved are not found; the error says how to name them, and then it works."""
    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(small.store, elsewhere / "store")
    shutil.copytree(small.folder / "input", elsewhere / "input")
    shutil.rmtree(small.checkpoint)
    history, session = ss.open_store(elsewhere / "store")["q"], with_settings(spark)

    def stream() -> DataFrame:
        reader = session.readStream.schema("k string, v long, t timestamp").option("maxFilesPerTrigger", 1)
        return reader.parquet(str(elsewhere / "input"))

    def build() -> DataFrame:
        return SMALL.build(stream())

    target, files = elsewhere / "restored", str(elsewhere / "input")
    with pytest.raises(StateWriteError, match=r"The 2 files that epoch 1 of q had read are not the oldest of the 3"):
        history.at(1).restore(to=target, build_query=build)
    with pytest.raises(InvalidArgumentError, match="one for each of 1 source"):
        history.at(1).restore(to=target, build_query=build, offsets=[])
    with pytest.raises(UnsupportedStateError, match="has the columns k, count, the captured one k, count, max"):
        history.at(1).restore(to=target, build_query=lambda: stream().groupBy("k").count(), offsets=[[files]])
    with pytest.raises(InvalidArgumentError, match="offsets needs build_query"):
        history.at(1).restore(to=target, offsets=[[files]], spark=spark)
    assert not target.exists()
    history.at(1).restore(to=target, build_query=build, offsets=[[str(elsewhere / "input" / "0000[01].parquet")]])
    query = build().writeStream.format("noop").outputMode("update").option("checkpointLocation", str(target))
    query.trigger(availableNow=True).start().awaitTermination()
    ss.Checkpoint(target).capture(elsewhere / "store", "again", spark=spark)
    again = ss.open_store(elsewhere / "store")["again"]
    assert again.captured()[-1] == 2
    assert again.live().table().to_arrow().sort_by("k") == small.history.live().table().to_arrow().sort_by("k")


@pytest.mark.slow
def test_rates_go_on(spark: SparkSession, tmp_path: Path) -> None:
    """A rate source numbers its rows by the seconds since it began, which its own log says."""
    checkpoint, session = tmp_path / "checkpoint", with_settings(spark)

    def build() -> DataFrame:
        rate = session.readStream.format("rate").option("rowsPerSecond", 50).load()
        return rate.groupBy((rate.value % 5).alias("k")).agg(F.count("*").alias("rows"), F.max("value").alias("most"))

    def run(checkpoint: Path) -> None:
        time.sleep(1.2)
        query = build().writeStream.format("noop").outputMode("update").option("checkpointLocation", str(checkpoint))
        query.trigger(availableNow=True).start().awaitTermination()

    run(checkpoint)
    ss.Checkpoint(checkpoint).capture(tmp_path / "store", "rates", spark=spark)
    shutil.rmtree(checkpoint)
    restored = tmp_path / "restored"
    ss.open_store(tmp_path / "store")["rates"].live().restore(to=restored, build_query=build)
    run(restored)
    ss.Checkpoint(restored).capture(tmp_path / "store", "again", spark=spark)
    state = ss.open_store(tmp_path / "store")["again"].live().table().to_pandas()
    rows, most = int(state["count"].sum()), int(state["max"].max())
    assert rows == most + 1 > 50


@pytest.mark.slow
def test_the_original_is_only_read(small: Run, spark: SparkSession, tmp_path: Path) -> None:
    """No file of it, or of the store, is written or changed; no row comes into this process."""

    def files() -> dict[str, tuple[int, int]]:
        found = [path for root in (small.checkpoint, small.store) for path in root.rglob("*") if path.is_file()]
        return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in found}

    before, history = files(), small.history
    history.live().restore(to=tmp_path / "restored", spark=spark)
    assert files() == before
    assert not history.recorded.index.loaded("q", "op0")


@pytest.mark.slow
def test_what_a_killed_process_left_is_deleted(small: Run, spark: SparkSession, tmp_path: Path) -> None:
    """It left an unfinished folder, to which its Spark still writes. That of a process that lives stays."""
    late = tmp_path / "late"
    writing = subprocess.Popen([sys.executable, "-c", LATE, str(late)])
    gone, lives = (
        tmp_path / f".restored.{gethostname()}-{process}-{writing.pid}-0a1b2c3d.unfinished"
        for process in (2**22 + 1, 1)
    )
    trial = gone.with_name(f"{gone.name}-trial-0a1b2c3d")
    for folder in (gone, lives, trial):
        folder.mkdir()
    late.symlink_to(gone)
    small.history.live().restore(to=tmp_path / "restored", spark=spark)
    assert writing.wait() == 0
    assert lives.exists()
    assert not gone.exists()
    assert not trial.exists()


@pytest.mark.slow
@pytest.mark.parametrize("point", sampled(["written", "compared", "renamed"], 1))
def test_a_failure_leaves_nothing(
    small: Run, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    """Wherever it happens; the next call works."""
    where = {
        "written": (state_rewriter, "_state_ids"),
        "compared": (writer, "differences_from"),
        "renamed": (writer, "_lead_to"),
    }[point]

    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(*where, fail)
        with pytest.raises(DiskFullError, match=r"No space left on device.*\nNo checkpoint was made\."):
            small.history.live().restore(to=tmp_path / "restored", spark=spark)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint", "input", "store"]
    small.history.live().restore(to=tmp_path / "restored", spark=spark)


def test_bad_input_writes_nothing(small: Run, spark: SparkSession, tmp_path: Path) -> None:
    """A target that exists, an unknown watermark, another schema, a checkpoint that is gone."""
    taken = tmp_path / "taken"
    taken.mkdir()
    (taken / "mine").touch()
    with pytest.raises(StateWriteError, match="already exists"):
        small.history.live().restore(to=taken, spark=spark)
    shutil.rmtree(small.checkpoint)
    with pytest.raises(
        NotACheckpointError, match=r"holds no checkpoint any more.*\n.*pass the code that the query had"
    ):
        small.history.live().restore(to=tmp_path / "restored", spark=spark)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["input", "store", "taken"]
    assert [path.name for path in taken.iterdir()] == ["mine"]


def test_a_limit_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """Spark records no schema of it."""
    run = Run(spark, tmp_path)
    run.start(QUERIES["limit"], epochs=range(2))
    run.capture()
    with pytest.raises(UnsupportedStateError, match="op0 is the state of a limit"):
        run.history.live().restore(to=tmp_path / "restored", spark=spark)
    assert not (tmp_path / "restored").exists()


@pytest.mark.slow
def test_a_watermark_that_nobody_knows(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store knows the watermark after an epoch; in an older store, its commit or the next epoch does, or nobody."""
    run = Run(spark, tmp_path)
    run.start(QUERIES["tumbling window"], epochs=range(3))
    run.capture()
    newest = run.history.captured()[-1]
    entry = run.history.recorded.entry(newest)
    known = CheckpointFiles(run.checkpoint).next_watermark_at(newest)
    assert entry.next_watermark == known is not None
    (run.checkpoint / "commits" / str(newest)).unlink()
    new = run.history.live().restore(to=tmp_path / "restored", spark=spark)
    assert CheckpointFiles(new).next_watermark_at(newest) == known
    monkeypatch.setattr(CapturedEpoch, "_entry", replace(entry, next_watermark=None))
    with pytest.raises(EpochGoneError, match="watermark"):
        run.history.live().restore(to=tmp_path / "again", spark=spark)
