"""Only the files that committed epochs wrote are read, and a missing one says why."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from recorded.unpacked import copied, unpacked

from streamstate.errors import UntrustedCheckpointError
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.checkpoint.decoding.failures import MissingChangelogError, UnsupportedChangelogError
from streamstate.snapshots.checkpoint.decoding.reader import changes
from streamstate.snapshots.checkpoint.decoding.state_schema import table_formats
from streamstate.snapshots.checkpoint.decoding.state_table_format import TableFormat
from streamstate.snapshots.checkpoint.decoding.store_history import epoch_files

Copy = Callable[[str, str, str], Path]


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Returns the folder with the checkpoints of a Spark version."""
    return cache(lambda version: unpacked(version, tmp_path_factory.mktemp("recorded")))


@pytest.fixture
def copy(recordings: Callable[[str], Path], tmp_path: Path) -> Copy:
    """Returns a copy of a checkpoint, which a test can change."""
    return lambda version, provider, name: copied(recordings(version) / provider / name, tmp_path / "checkpoint")


def formats(checkpoint: Path, epoch: int = 1) -> list[TableFormat]:
    """Return the formats of the tables in the changelogs."""
    return [table for table in table_formats(CheckpointFiles(checkpoint), epoch) if isinstance(table, TableFormat)]


def test_format_2_names_the_files_of_the_commit_log(copy: Copy) -> None:
    """The file of an attempt that was not committed is not read."""
    path = copy("4.2", "RocksDB-format-2", "aggregation")
    (table,), before = formats(path), changes(CheckpointFiles(path), formats(path)[0], 1, 1)
    files = epoch_files(CheckpointFiles(path), table, 1, 2)
    assert [(file.partition, file.epoch) for file in files] == [(0, 1), (0, 2), (1, 1), (1, 2)]
    ids = json.loads((path / "commits" / "1").read_text().splitlines()[1])["stateUniqueIds"]["0"]
    assert [file.path for file in files if file.epoch == 1] == [
        f"{path}/state/0/{partition}/2_{ids[partition][0]}.changelog" for partition in (0, 1)
    ]
    shutil.copy(files[1].path, path / "state/0/0/2_0a0a0a0a-0000-0000-0000-000000000000.changelog")
    assert changes(CheckpointFiles(path), table, 1, 1).equals(before)


def test_an_operator_in_one_partition_has_one_file(copy: Copy) -> None:
    """A limit keeps its state in the first of the query's partitions."""
    path = copy("3.5", "HDFS", "limit")
    (table,) = formats(path)
    assert [file.path for file in epoch_files(CheckpointFiles(path), table, 1, 1)] == [f"{path}/state/0/0/2.delta"]


def test_each_side_of_a_join_has_its_folder(copy: Copy) -> None:
    """The stores of an operator are folders in a partition's."""
    path = copy("3.4", "HDFS", "inner-join")
    left, right = formats(path)
    for table, store in ((left, "left-keyWithIndexToValue"), (right, "right-keyWithIndexToValue")):
        files = epoch_files(CheckpointFiles(path), table, 0, 0)
        assert [file.path for file in files] == [f"{path}/state/0/{number}/{store}/1.delta" for number in (0, 1)]


def test_an_epoch_that_is_not_committed_is_not_read(copy: Copy) -> None:
    """The tasks have written all files; only the commit is missing."""
    path = copy("3.5", "HDFS", "aggregation")
    (table,) = formats(path)
    (path / "commits" / "3").unlink()
    with pytest.raises(MissingChangelogError, match=r"Epoch 3 .* is not committed"):
        changes(CheckpointFiles(path), table, 2, 3)


def test_a_snapshot_alone_says_which_setting_is_missing(copy: Copy) -> None:
    """Without changelog checkpointing, RocksDB writes the whole state at each epoch."""
    path = copy("3.5", "RocksDB", "aggregation")
    (table,) = formats(path)
    with pytest.raises(MissingChangelogError, match=r"only a snapshot.*changelogCheckpointing.enabled=true"):
        changes(CheckpointFiles(path), table, 1, 1)


def test_a_purged_file_is_missing(copy: Copy) -> None:
    """Spark may purge a file before its commit."""
    path = copy("4.1", "HDFS", "aggregation")
    (table,) = formats(path)
    (path / "state/0/1/2.delta").unlink()
    with pytest.raises(MissingChangelogError, match=r"2\.delta does not exist: Spark has purged it"):
        changes(CheckpointFiles(path), table, 0, 3)


def test_a_missing_partition_is_noticed(copy: Copy) -> None:
    """The offset log tells how many partitions there are."""
    path = copy("3.5", "HDFS", "aggregation")
    (table,) = formats(path)
    shutil.rmtree(path / "state/0/0")
    with pytest.raises(MissingChangelogError, match="1 folders for 2 partitions"):
        changes(CheckpointFiles(path), table, 1, 1)


def test_a_name_cannot_lead_out_of_the_checkpoint(copy: Copy) -> None:
    """The commit log is a file like any other, and not to be trusted with paths."""
    path = copy("4.2", "RocksDB-format-2", "aggregation")
    (table,) = formats(path)
    commit = path / "commits" / "1"
    version, content = commit.read_text().splitlines()
    log = json.loads(content)
    log["stateUniqueIds"]["0"][0][0] = "/../../../../outside"
    commit.write_text(f"{version}\n{json.dumps(log)}")
    with pytest.raises(UntrustedCheckpointError):
        changes(CheckpointFiles(path), table, 1, 1)


def test_a_repartitioned_epoch_has_no_changes(copy: Copy) -> None:
    """Its files hold all rows in their new places."""
    path = copy("3.5", "HDFS", "aggregation")
    (table,) = formats(path)
    offsets = path / "offsets" / "2"
    offsets.write_text(
        offsets.read_text().replace('"spark.sql.shuffle.partitions":"2"', '"spark.sql.shuffle.partitions":"3"')
    )
    with pytest.raises(UnsupportedChangelogError, match="Epoch 2 repartitioned the state"):
        changes(CheckpointFiles(path), table, 1, 3)
