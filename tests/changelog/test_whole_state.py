"""Whole states, decoded from snapshots and changelogs, equal what Spark's state reader returns."""

from __future__ import annotations

import random
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from operators.processors import TRANSFORM
from operators.queries import JOINS, WINDOWS, in_format
from operators.running import CHANGELOG_OFF, FORMAT_1, HDFS, Query, Run
from pyspark.sql import SparkSession
from recorded.queries import query, recorded
from recorded.unpacked import VERSIONS, copied, unpacked

from changelog.feeds import compare_states, state_rows
from changelog.test_reader import QUERIES, ROCKSDB_ONLY
from changelog.test_reader import SETTINGS as WITH_CHANGELOG
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.checkpoint.decoding.failures import (
    ChangelogError,
    MissingChangelogError,
    UnsupportedChangelogError,
)
from streamstate.snapshots.checkpoint.decoding.reader import columns_of
from streamstate.snapshots.checkpoint.decoding.state_schema import table_formats
from streamstate.snapshots.checkpoint.decoding.state_table_format import TableFormat
from streamstate.snapshots.checkpoint.decoding.whole_state import whole_state
from streamstate.snapshots.spark.state_reader import StateRows

_STORE = "spark.sql.streaming.stateStore"
_CHECKSUMS = {f"{_STORE}.rowChecksum.enabled": "true"}
SETTINGS = {
    **WITH_CHANGELOG,
    "no changelog, format 2": CHANGELOG_OFF,
    "no changelog, format 1, checksums": {**FORMAT_1, **CHANGELOG_OFF, **_CHECKSUMS},
    "no changelog, merge operator 2": {**CHANGELOG_OFF, f"{_STORE}.rocksdb.mergeOperatorVersion": "2"},
}
ALL_VARIABLES = "rows, processing time, TTL and timers"
USUAL = {
    ("no changelog, merge operator 2", "join in format 4"),
    ("HDFS, zstd, checksums", "session window"),
}
"""Settings and queries that the slow tests combine: timers, lists, joins, row checksums."""
RECORDED = {
    ("3.4", "HDFS", "left-outer-join"),
    ("4.0", "RocksDB-with-changelog", "two-operators"),
    ("4.2", "HDFS", "aggregation"),
    ("4.2", "RocksDB-format-2", "aggregation"),
    ("4.2", "RocksDB-with-changelog", "window"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the recorded checkpoints."""
    return tmp_path_factory.mktemp("recorded")


def recording(folder: Path, version: str, provider: str, name: str) -> Path:
    """A recorded checkpoint, unpacked at its first use."""
    if not (folder / version).exists():
        unpacked(version, folder)
    return folder / version / provider / name


def cases() -> Iterator[object]:
    """All recorded checkpoints."""
    for version in VERSIONS:
        for name, provider in recorded(version):
            marks = () if (version, provider, name) in RECORDED else pytest.mark.exhaustive
            yield pytest.param(version, provider, name, marks=marks, id=f"{version}-{provider}-{name}")


@pytest.mark.parametrize(("version", "provider", "name"), [*cases()])
def test_recorded_states_equal_sparks(
    spark: SparkSession, folder: Path, version: str, provider: str, name: str
) -> None:
    """Every table at every epoch that any version of Spark wrote, with every provider."""
    assert compare_states(spark, recording(folder, version, provider, name)) >= 4 * len(query(name).tables)


def written() -> Iterator[object]:
    """Some queries in the slow tests, and all combinations in the exhaustive tests."""
    for name in QUERIES:
        for setting in SETTINGS:
            if not (setting.startswith("HDFS") and name in ROCKSDB_ONLY):
                mark = pytest.mark.slow if (setting, name) in USUAL else pytest.mark.exhaustive
                yield pytest.param(name, setting, marks=mark, id=f"{setting}-{name}")


@pytest.mark.parametrize(("name", "setting"), [*written()])
def test_states_of_queries_equal_sparks(spark: SparkSession, tmp_path: Path, name: str, setting: str) -> None:
    """Every operator and every setting, in two runs of the query; changelogs alone make up a state too."""
    running = Run(spark, tmp_path)
    for epochs in (range(2), range(2, 4)):
        running.start(QUERIES[name], SETTINGS[setting], epochs=epochs)
    assert compare_states(spark, running.checkpoint) >= 4 * len(QUERIES[name].tables)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("written_by", "settings"),
    [
        pytest.param(TRANSFORM["rows, event time and timers"], {}, marks=pytest.mark.exhaustive),
        pytest.param(replace(JOINS["left_outer"], conf=in_format(4)), CHANGELOG_OFF, marks=pytest.mark.exhaustive),
        (WINDOWS["sliding window"], HDFS),
    ],
    ids=["timers and lists", "join of lists", "HDFS"],
)
def test_states_across_a_restart(
    spark: SparkSession, tmp_path: Path, written_by: Query, settings: dict[str, str]
) -> None:
    """Timers, lists, and keys that are removed."""
    running = Run(spark, tmp_path)
    for epochs in (range(2), range(2, 4)):
        running.start(written_by, settings, epochs=epochs)
    assert compare_states(spark, running.checkpoint) >= 4 * len(written_by.tables)


@pytest.mark.slow
@pytest.mark.parametrize("changelog", ["true", pytest.param("false", marks=pytest.mark.exhaustive)])
def test_states_of_repartitioned_operators(spark: SparkSession, tmp_path: Path, changelog: str) -> None:
    """The epoch of the repartition has a snapshot in each partition, and the epochs after it lead back to it."""
    running, windows = Run(spark, tmp_path), WINDOWS["sliding window"]
    settings = {f"{_STORE}.rocksdb.changelogCheckpointing.enabled": changelog}
    for partitions, epochs in ((3, range(2)), (1, range(2, 4))):
        running.start(windows, settings, epochs=epochs)
        spark._streamingCheckpointManager.repartition(str(running.checkpoint), partitions, False)
    assert compare_states(spark, running.checkpoint) >= 6


def table_of(checkpoint: Path, epoch: int) -> TableFormat:
    """The format of a checkpoint's only table."""
    (table,) = table_formats(CheckpointFiles(checkpoint), epoch)
    assert isinstance(table, TableFormat)
    return table


def test_a_snapshot_is_followed_by_changelogs(folder: Path, tmp_path: Path) -> None:
    """The newest snapshot and what comes after it is enough; without them, the error says what is purged."""
    checkpoint = copied(recording(folder, "4.2", "RocksDB-with-changelog", "aggregation"), tmp_path / "c")
    table = table_of(checkpoint, 3)
    expected = whole_state(CheckpointFiles(checkpoint), table, [3])
    for partition in range(2):
        for version in (1, 2, 3):
            (checkpoint / f"state/0/{partition}/{version}.changelog").unlink()
    assert whole_state(CheckpointFiles(checkpoint), table, [3]).equals(expected)
    with pytest.raises(MissingChangelogError, match=r"neither 2\.zip nor 2\.changelog"):
        whole_state(CheckpointFiles(checkpoint), table, [1])
    (checkpoint / "state/0/1/4.changelog").unlink()
    with pytest.raises(MissingChangelogError, match=r"neither 4\.zip nor 4\.changelog"):
        whole_state(CheckpointFiles(checkpoint), table, [3])


def test_the_lineage_names_what_the_commit_log_has_lost(folder: Path, tmp_path: Path) -> None:
    """In format 2, an epoch's changelog has the ids of the files before it; other attempts' files do not count."""
    checkpoint = copied(recording(folder, "4.2", "RocksDB-format-2", "aggregation"), tmp_path / "c")
    table = table_of(checkpoint, 3)
    expected = whole_state(CheckpointFiles(checkpoint), table, [3])
    for epoch in range(3):
        (checkpoint / f"commits/{epoch}").unlink()
    for file in [*checkpoint.glob("state/0/*/2_*.changelog")]:
        shutil.copy(next(file.parent.glob("3_*.changelog")), file.with_name("2_another-attempt.changelog"))
    assert whole_state(CheckpointFiles(checkpoint), table, [3]).equals(expected)


def test_an_epoch_that_is_not_committed_has_no_state(folder: Path) -> None:
    """Its files may be those of a failed attempt."""
    checkpoint = recording(folder, "4.2", "HDFS", "aggregation")
    with pytest.raises(MissingChangelogError, match="not committed"):
        whole_state(CheckpointFiles(checkpoint), table_of(checkpoint, 3), [4])


def test_without_rocksdict_the_error_names_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only RocksDB's snapshots need it."""
    monkeypatch.setitem(sys.modules, "rocksdict", None)
    hdfs = recording(folder, "3.5", "HDFS", "aggregation")
    assert whole_state(CheckpointFiles(hdfs), table_of(hdfs, 3), [3]).num_rows
    rocksdb = recording(folder, "3.5", "RocksDB", "aggregation")
    with pytest.raises(UnsupportedChangelogError, match=r"\[sidecar\]"):
        whole_state(CheckpointFiles(rocksdb), table_of(rocksdb, 3), [3])


Damage = Callable[[bytes, random.Random], bytes]


def _flipped(content: bytes, rng: random.Random) -> bytes:
    changed = bytearray(content)
    changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


DAMAGES: dict[str, Damage] = {
    "one bit": _flipped,
    "cut": lambda content, rng: content[: rng.randrange(len(content))],
    "zeroed": lambda content, rng: content[: (at := rng.randrange(len(content)))] + bytes(len(content) - at),
    "lengthened": lambda content, rng: content + rng.randbytes(8),
}
DAMAGED = (
    ("3.5", "RocksDB", "aggregation"),
    ("3.5", "HDFS", "aggregation"),
    ("4.1", "RocksDB-with-changelog", "window"),
    ("4.2", "RocksDB-with-changelog", "aggregation"),
    ("4.2", "RocksDB-format-2", "aggregation"),
    ("4.2", "HDFS", "aggregation"),
)


def _outcomes(checkpoint: Path, *, proven: bool, count: int, seed: int) -> Counter[str]:
    """Damage one file at a time, and count errors, unchanged states and wrong ones.

    Without ``proven`` the checksum files are removed, as where Spark writes none.
    """
    rng, outcomes = random.Random(seed), Counter[str]()
    table, epoch = table_of(checkpoint, 3), 3
    expected = state_rows(StateRows(columns_of(table), whole_state(CheckpointFiles(checkpoint), table, [epoch])))
    if not proven:
        for checksum in checkpoint.rglob("*.crc"):
            checksum.unlink()
    kinds = ("*.zip", "*.sst", "*.snapshot", "*.changelog", "*.delta")
    files = sorted(file for kind in kinds for file in (checkpoint / "state").rglob(kind))
    for _ in range(count):
        file = rng.choice(files)
        content = file.read_bytes()
        others = [other for other in files if other != file and other.suffix == file.suffix]
        swapped = proven or file.suffix == ".sst"  # nothing else shows that a file is another's
        name = rng.choice([*DAMAGES, *(["swapped"] if others and swapped else [])])
        changed = rng.choice(others).read_bytes() if name == "swapped" else DAMAGES[name](content, rng)
        file.write_bytes(changed)
        try:
            rows = state_rows(StateRows(columns_of(table), whole_state(CheckpointFiles(checkpoint), table, [epoch])))
            outcomes["as it was" if rows == expected else f"wrong: {name} {file.name}"] += 1
        except ChangelogError:
            outcomes["error"] += 1
        file.write_bytes(content)
    return outcomes


@pytest.mark.parametrize("proven", [True, False], ids=["with checksum files", "without"])
@pytest.mark.parametrize(("version", "provider", "name"), DAMAGED, ids="-".join)
def test_damaged_files_never_give_wrong_states(
    folder: Path, tmp_path: Path, version: str, provider: str, name: str, proven: bool
) -> None:
    """Flipped, cut, zeroed, lengthened, swapped. Files that the state does not need may be damaged."""
    checkpoint = copied(recording(folder, version, provider, name), tmp_path / "c")
    outcomes = _outcomes(checkpoint, proven=proven, count=60, seed=5)
    assert not [outcome for outcome in outcomes if outcome.startswith("wrong")]
    assert outcomes["error"] >= 5


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("proven", [True, False], ids=["with checksum files", "without"])
@pytest.mark.parametrize(("version", "provider", "name"), DAMAGED, ids="-".join)
def test_more_damaged_files(
    folder: Path, tmp_path: Path, version: str, provider: str, name: str, proven: bool, seed: int
) -> None:
    """Ten times as many."""
    checkpoint = copied(recording(folder, version, provider, name), tmp_path / "c")
    outcomes = _outcomes(checkpoint, proven=proven, count=60, seed=100 + seed)
    assert not [outcome for outcome in outcomes if outcome.startswith("wrong")]
