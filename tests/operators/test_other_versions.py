"""Captured checkpoints of Spark 3.4 to 4.2 equal Spark's own state reader."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
from oracle import captured_rows, compare, spark_rows
from pyspark.sql import SparkSession
from recorded.queries import EPOCHS, PROVIDERS, add_input, frame, query, recorded, run
from recorded.unpacked import VERSIONS, unpacked
from stepping import tree

import streamstate as ss
from operators.running import with_settings
from streamstate.errors import UnsupportedStateError
from streamstate.reports import History


def cases() -> Iterator[object]:
    """One operator for each of some versions in the quick tests, some others in the slow tests."""
    for version in VERSIONS:
        known = [*recorded(version)]
        names = list(dict.fromkeys(name for name, _ in known))
        for name, provider in known:
            providers = [other for query_name, other in known if query_name == name]
            turn = names.index(name) + VERSIONS.index(version)
            usual = provider == providers[turn % len(providers)] and (version in {"3.4", "3.5"} or len(providers) > 1)
            first = name == names[VERSIONS.index(version) % len(names)]
            seldom = pytest.mark.slow if usual and turn % 3 == 0 else pytest.mark.exhaustive
            marks = () if usual and first and version != "3.4" else seldom
            yield pytest.param(version, provider, name, marks=marks, id=f"{version}-{provider}-{name}")


Recordings = Callable[[str], Path]


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Recordings:
    """Returns the folder with the checkpoints of a Spark version."""
    return cache(lambda version: unpacked(version, tmp_path_factory.mktemp("recorded")))


def captured(spark: SparkSession, checkpoint: Path, store: Path) -> History:
    """Capture a recorded checkpoint, and check that its files are unchanged."""
    before = tree(checkpoint)
    report = ss.Checkpoint(checkpoint).capture(store, "q", spark=spark)
    assert report.gaps == ()
    assert tree(checkpoint) == before
    return ss.open_store(store)["q"]


@pytest.mark.parametrize(("version", "provider", "name"), [*cases()])
def test_every_epoch_of_other_versions(
    spark: SparkSession, recordings: Recordings, tmp_path: Path, version: str, provider: str, name: str
) -> None:
    """Every table at every epoch equals Spark's reader, row by row."""
    checkpoint = recordings(version) / provider / name
    history = captured(spark, checkpoint, tmp_path / "store")
    assert sorted(history.tables()) == list(query(name).tables)
    if name == "session-window" and version.startswith("3.") and provider != "HDFS":
        # Spark's reader cannot read these, but it can read the same rows in the HDFS provider.
        same = captured(spark, recordings(version) / "HDFS" / name, tmp_path / "same")
        assert compare(spark, recordings(version) / "HDFS" / name, same) == len(history.captured())
        for epoch in same.captured():
            assert captured_rows(history.at(epoch).table()) == captured_rows(same.at(epoch).table())
    else:
        assert compare(spark, checkpoint, history) == len(query(name).tables) * len(history.captured())
    epochs = len(list((checkpoint / "commits").glob("[0-9]*")))
    assert len(history.captured()) == epochs >= 4


@pytest.mark.slow
@pytest.mark.parametrize(
    ("provider", "name"),
    [
        pytest.param("HDFS", "aggregation", marks=pytest.mark.exhaustive),
        pytest.param("HDFS", "left-outer-join", marks=pytest.mark.exhaustive),
        pytest.param("RocksDB", "session-window", marks=pytest.mark.exhaustive),
        ("RocksDB-with-changelog", "two-operators"),
        ("HDFS", "applyInPandasWithState"),
    ],
)
def test_steps_of_a_fork_equal_the_original(
    spark: SparkSession, recordings: Recordings, tmp_path: Path, provider: str, name: str
) -> None:
    """Epochs of Spark 3.5 that are run again with the current Spark have the same states, as after an upgrade."""
    recording = recordings("3.5")
    history = captured(spark, recording / provider / name, tmp_path / "store")
    before = tree(recording / provider / name)
    fork = ss.Checkpoint(recording / provider / name).fork(tmp_path / "fork", at=1, verify="rows", spark=spark)
    session = with_settings(spark, PROVIDERS[provider])
    report = fork.step(lambda: frame(session, name, recording / "input"), epochs=2, mode=query(name).mode)
    assert [epoch.epoch for epoch in report.epochs] == [2, 3]
    assert tree(recording / provider / name) == before
    for epoch in (1, 2, 3):
        for table in query(name).tables:
            assert spark_rows(spark, fork.path, table, epoch) == captured_rows(history.at(epoch).table(table))


@pytest.mark.slow
def test_an_upgraded_query_has_one_history(spark: SparkSession, tmp_path: Path) -> None:
    """The history has the epochs before and after the upgrade. The query can be rescaled after it, but not before."""
    recording = unpacked("3.5", tmp_path)
    checkpoint = recording / "RocksDB" / "session-window"
    early = captured(spark, checkpoint, tmp_path / "store").captured()
    with pytest.raises(UnsupportedStateError, match=r"before 4\.0"):
        ss.Checkpoint(checkpoint).rescale(3, spark=spark)
    add_input(recording / "input", EPOCHS)
    run(with_settings(spark, PROVIDERS["RocksDB"]), checkpoint.name, recording / "input", checkpoint)
    for store in ("store", "another"):
        ss.Checkpoint(checkpoint).capture(tmp_path / store, "q", spark=spark)
        history = ss.open_store(tmp_path / store)["q"]
        assert history.captured() > early
        assert compare(spark, checkpoint, history) == len(history.captured())
    assert ss.Checkpoint(checkpoint).rescale(3, spark=spark).partitions == (2, 3)


@pytest.mark.exhaustive
def test_session_defaults_do_not_matter(spark: SparkSession, recordings: Recordings, tmp_path: Path) -> None:
    """State is read with the settings that it was written with. The settings of the session are unchanged."""
    store = "spark.sql.streaming.stateStore"
    different = {
        f"{store}.encodingFormat": "avro",
        f"{store}.rowChecksum.enabled": "true",
        f"{store}.compression.codec": "zstd",
        "spark.sql.streaming.join.stateFormatVersion": "4",
    }
    defaults = spark.sparkContext._jsc.sc().conf()
    before = dict(spark.conf.getAll)
    try:
        for key, value in different.items():
            defaults.set(key, value)
        for provider, name in (("HDFS", "aggregation"), ("RocksDB", "inner-join")):
            history = captured(spark, recordings("3.5") / provider / name, tmp_path / provider)
            assert compare(spark, recordings("3.5") / provider / name, history) == sum(
                len(history.at(epoch).tables()) for epoch in history.captured()
            )
    finally:
        for key in different:
            defaults.remove(key)
    assert dict(spark.conf.getAll) == before


@pytest.mark.slow
def test_session_windows_on_another_file_system(spark: SparkSession, recordings: Recordings, tmp_path: Path) -> None:
    """A capture from a remote file system, here a viewfs mount, equals one from the local file system."""
    checkpoint = recordings("3.4") / "RocksDB" / "session-window"
    name = tmp_path.name.replace("_", "-")
    mounts = spark.sparkContext._jsc.hadoopConfiguration()
    mounts.set(f"fs.viewfs.mounttable.{name}.link./data", checkpoint.parent.as_uri())
    ss.Checkpoint(f"viewfs://{name}/data/{checkpoint.name}").capture(tmp_path / "store", "q", spark=spark)
    history = ss.open_store(tmp_path / "store")["q"]
    local = captured(spark, checkpoint, tmp_path / "local")
    assert history.captured() == local.captured() != []
    for epoch in local.captured():
        assert captured_rows(history.at(epoch).table()) == captured_rows(local.at(epoch).table())


@pytest.mark.slow
def test_older_checkpoints_can_be_repartitioned(spark: SparkSession, recordings: Recordings, tmp_path: Path) -> None:
    """A fork with another number of partitions has the same rows. Operators that Spark cannot rewrite are rejected."""
    checkpoint = recordings("3.5") / "RocksDB" / "two-operators"
    fork = ss.Checkpoint(checkpoint).fork(tmp_path / "fork", at=2, partitions=3, spark=spark)
    for table in ("op0", "op1"):
        assert spark_rows(spark, fork.path, table, 2) == spark_rows(spark, checkpoint, table, 2)
    groups = recordings("3.5") / "RocksDB" / "applyInPandasWithState"
    with pytest.raises(UnsupportedStateError, match="left no metadata"):
        ss.Checkpoint(groups).fork(tmp_path / "groups", at=2, partitions=3, spark=spark)
