"""Paths in an untrusted checkpoint cannot lead out of it, and a fork writes only to its own folder."""

from __future__ import annotations

import json
import os
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import streamstate as ss
from branching.test_fork_files import lay_out
from streamstate.errors import DamagedCheckpointError, ForkError, UnsupportedStateError, UntrustedCheckpointError
from streamstate.operations.rescaling.rollback import NOTE, Unfinished
from streamstate.replay.forks.make_fork import never_overwriting
from streamstate.replay.stepping.fork_folder import ForkFolder
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.checkpoint.filesystem import inside
from streamstate.snapshots.checkpoint.hadoop_files import HadoopFiles
from streamstate.snapshots.checkpoint.local_files import LocalFiles
from streamstate.snapshots.checkpoint.logs import SHUFFLE_PARTITIONS

PLAIN = {"localFileName": "1.sst", "dfsSstFileName": "000001-a.sst", "sizeBytes": 1}
BAD_NAMES = ["../../../../../victim", "/victim", "", ".", "..", "a/b", "a\\b", "a\0b", 7, None, ["a"]]


def with_whole_state(folder: Path, listed: object) -> Path:
    """A checkpoint whose only state is a RocksDB snapshot that lists the given files."""
    original = lay_out(folder, 1, purged=1)
    store = original / "state/0/0"
    for name in ("SSTs", "logs"):
        (store / name).mkdir()
    (store / "SSTs/000001-a.sst").write_text("rows")
    with zipfile.ZipFile(store / "1.zip", "w") as archive:
        archive.writestr("metadata", f"v1\n{json.dumps(listed)}")
    return original


def test_a_relative_path_does_not_lead_out_of_the_fork(tmp_path: Path) -> None:
    """If it did, the fork would overwrite a file of the user."""
    (tmp_path / "theirs").mkdir()
    (tmp_path / "mine").mkdir()
    name = "../../../../../notes"
    original = with_whole_state(tmp_path / "theirs/checkpoint", {"sstFiles": [PLAIN | {"dfsSstFileName": name}]})
    (tmp_path / "theirs/notes").write_text("theirs")
    (tmp_path / "mine/notes").write_text("mine")
    with pytest.raises(UntrustedCheckpointError, match="notes"):
        ss.Checkpoint(original).fork(tmp_path / "mine/fork", at=0)
    assert (tmp_path / "mine/notes").read_text() == "mine"
    assert not (tmp_path / "mine/fork").exists()


@pytest.mark.parametrize("name", BAD_NAMES)
@pytest.mark.parametrize(
    ("kind", "part"),
    [
        ("sstFiles", "dfsSstFileName"),
        ("sstFiles", "localFileName"),
        ("logFiles", "dfsLogFileName"),
        ("logFiles", "localFileName"),
    ],
)
def test_a_snapshot_lists_plain_file_names_only(tmp_path: Path, kind: str, part: str, name: object) -> None:
    """Remote and local names are checked, as Spark appends the local names to a folder."""
    listed = {"localFileName": "1.x", "dfsSstFileName": "1-a.x", "dfsLogFileName": "1-a.x", "sizeBytes": 1} | {
        part: name
    }
    original = with_whole_state(tmp_path / "original", {kind: [listed]})
    with pytest.raises(UntrustedCheckpointError):
        ss.Checkpoint(original).fork(tmp_path / "fork", at=0)
    assert not (tmp_path / "fork").exists()


@pytest.mark.parametrize("listed", [[], 7, {"sstFiles": 7}, {"sstFiles": ["x"]}, {"logFiles": [{}]}])
def test_a_snapshot_with_malformed_metadata_is_rejected(tmp_path: Path, listed: object) -> None:
    """Metadata of an unexpected structure raises ``UntrustedCheckpointError``, not a ``TypeError`` or ``KeyError``."""
    original = with_whole_state(tmp_path / "original", listed)
    with pytest.raises(UntrustedCheckpointError):
        ss.Checkpoint(original).fork(tmp_path / "fork", at=0)


def test_a_zip_bomb_is_rejected(tmp_path: Path) -> None:
    """The uncompressed size of a snapshot's metadata is limited."""
    original = with_whole_state(tmp_path / "original", {})
    with zipfile.ZipFile(original / "state/0/0/1.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("metadata", b"\0" * (65 << 20))
    with pytest.raises(UntrustedCheckpointError, match="metadata"):
        ss.Checkpoint(original).fork(tmp_path / "fork", at=0)


@pytest.mark.parametrize("name", ["\u0662", "02", "+2", "2_0", "\u00b2", "2\n"])
def test_only_numbers_as_spark_writes_them_are_epochs(tmp_path: Path, name: str) -> None:
    """``int`` reads other spellings too, so that an epoch would be captured twice."""
    original = lay_out(tmp_path / "original", 2)
    before = CheckpointFiles(original)
    committed, begun, operators = before.committed(), before.begun(), before.operators()
    for folder in ("commits", "offsets", "state"):
        source = original / folder / str(committed[0])
        if source.is_dir():
            shutil.copytree(source, original / folder / name)
        else:
            shutil.copy(source, original / folder / name)
    again = CheckpointFiles(original)
    assert (again.committed(), again.begun(), again.operators()) == (committed, begun, operators)


@pytest.mark.parametrize("count", ["50000000", "0", "-1", "\u0663", "2.5", "nine"])
def test_a_number_of_partitions_that_no_query_has(tmp_path: Path, count: str) -> None:
    """Each takes time and memory, before a file of it is looked for."""
    original = lay_out(tmp_path / "original", 1)
    plan = original / "offsets" / "0"
    version, head, *rest = plan.read_text().splitlines()
    conf = json.loads(head)["conf"] | {SHUFFLE_PARTITIONS: count}
    plan.write_text("\n".join([version, json.dumps(json.loads(head) | {"conf": conf}), *rest]))
    with pytest.raises(DamagedCheckpointError, match="partitions; at most 200,000 are read"):
        CheckpointFiles(original).partitions(0)
    assert "partitions; at most 200,000 are read" in str(ss.Checkpoint(original).doctor())


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="Windows has no such files")
@pytest.mark.timeout(20)
@pytest.mark.parametrize("name", ["commits/1", "offsets/1", "metadata", "state/0/_metadata/metadata"])
@pytest.mark.parametrize("device", ["pipe", "/dev/zero"])
def test_a_pipe_or_a_device_is_not_read(tmp_path: Path, name: str, device: str) -> None:
    """Nobody writes to the pipe, and the device has no end."""
    original = lay_out(tmp_path / "original", 2)
    file = original / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.unlink(missing_ok=True)
    if device == "pipe":
        os.mkfifo(file)
    else:
        file.symlink_to(device)
    with pytest.raises(UntrustedCheckpointError, match="not an ordinary file"):
        CheckpointFiles(original).files.content(str(file))
    with pytest.raises((UntrustedCheckpointError, UnsupportedStateError)):  # it has no schema, either
        ss.Checkpoint(original).capture(tmp_path / "store", "q", verify="never")


def outside(tmp_path: Path) -> Path:
    """A folder outside the checkpoint, with a file named like a state file."""
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "1.delta").write_text("secret")
    return folder


@pytest.mark.parametrize("path", ["state/0/0", "state/0", "state", "sources", "offsets", "commits"])
def test_a_symlink_to_a_folder_outside_is_rejected(tmp_path: Path, path: str) -> None:
    """No fork is made."""
    original = lay_out(tmp_path / "original", 1)
    (original / path).rename(tmp_path / "elsewhere")
    (original / path).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UntrustedCheckpointError, match="leads out"):
        ss.Checkpoint(original).fork(tmp_path / "fork", at=0)
    assert not (tmp_path / "fork").exists()


@pytest.mark.parametrize("path", ["state/0/0/1.delta", "offsets/0", "commits/0", "sources/0/0"])
def test_a_symlink_to_a_file_outside_is_rejected(tmp_path: Path, path: str) -> None:
    """Otherwise, its content would be in the fork, which may be shared."""
    original = lay_out(tmp_path / "original", 1)
    (original / path).rename(tmp_path / "elsewhere")
    (original / path).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UntrustedCheckpointError, match="leads out"):
        ss.Checkpoint(original).fork(tmp_path / "fork", at=0)


def test_symlinks_in_source_folders_are_rejected(tmp_path: Path) -> None:
    """Folders of sources that are not file sources are copied with all their files."""
    original = lay_out(tmp_path / "original", 1)
    head = (original / "offsets/0").read_text().rpartition("\n")[0]
    (original / "offsets/0").write_text(f'{head}\n{{"topic":{{"0":5}}}}')
    (original / "sources/0/deep").mkdir()
    (original / "sources/0/deep/link").symlink_to(outside(tmp_path))
    with pytest.raises(UntrustedCheckpointError, match="leads out"):
        ss.Checkpoint(original).fork(tmp_path / "fork", at=0)


def test_symlinks_inside_and_to_the_checkpoint_are_followed(tmp_path: Path) -> None:
    """The fork has the file, not the symlink."""
    original = lay_out(tmp_path / "original", 1)
    (original / "state/0/0/1.delta").rename(original / "kept")
    (original / "state/0/0/1.delta").symlink_to(original / "kept")
    (tmp_path / "link").symlink_to(original)
    fork = ss.Checkpoint(tmp_path / "link").fork(tmp_path / "fork", at=0)
    file = Path(fork, "state/0/0/1.delta")
    assert (file.is_symlink(), file.samefile(original / "kept")) == (False, True)


@pytest.mark.parametrize("links", [True, False])
def test_an_existing_file_is_never_overwritten(tmp_path: Path, links: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Linking, copying and writing raise an error."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    if not links:
        monkeypatch.setattr(os, "link", refuse)
    for name in ("source", "target"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.delta").write_text(name)
    files = LocalFiles()
    attempts: list[Callable[[], object]] = [
        lambda: files.copy([(str(tmp_path / "source/1.delta"), str(tmp_path / "target/1.delta"))]),
        lambda: files.write(str(tmp_path / "target/1.delta"), "new"),
    ]
    for attempt in attempts:
        with pytest.raises(ForkError, match="is there already"), never_overwriting():
            attempt()
    assert (tmp_path / "target/1.delta").read_text() == "target"


def test_other_file_systems_follow_the_same_rules(spark: SparkSession, tmp_path: Path) -> None:
    """Hadoop's client alone would resolve ``..`` in a path, and overwrite existing files."""
    for name in ("source", "target"):
        (tmp_path / name / "sources").mkdir(parents=True)
        (tmp_path / name / "1.delta").write_text(name)
    source, target = str(tmp_path / "source"), str(tmp_path / "target")
    files = HadoopFiles(spark)
    with pytest.raises(UntrustedCheckpointError):
        inside(source, "../source/1.delta")
    attempts: list[Callable[[], object]] = [
        lambda: files.copy([(f"{source}/1.delta", f"{target}/1.delta")]),
        lambda: files.write(f"{target}/1.delta", "new"),
        lambda: files.copy_tree(f"{source}/sources", f"{target}/sources"),
    ]
    for attempt in attempts:
        with pytest.raises(ForkError, match="is there already"), never_overwriting():
            attempt()
    files.write(f"{target}/1.delta", "new", replace=True)
    assert [file.read_text() for file in (tmp_path / "target").glob("*.delta")] == ["new"]


def test_schema_paths_cannot_lead_out_of_the_fork(tmp_path: Path) -> None:
    """Operator metadata has absolute paths of schema files, which Spark reads and purges."""
    original = lay_out(tmp_path / "original", 1)
    (original / "state/0/_metadata/v2").mkdir(parents=True)
    paths = ["/x/state/0/_stateSchema/default/../../../../../mine"]
    (original / "state/0/_metadata/v2/0").write_text(
        f"v2\n{json.dumps({'stateStoreInfo': [{'stateSchemaFilePaths': paths}]})}"
    )
    with pytest.raises(UntrustedCheckpointError, match="mine"):
        ss.Checkpoint(original).fork(tmp_path / "fork", at=0)


@pytest.mark.parametrize("folder", ["state/0/1", "state/1", "sources/0", "commits", "offsets"])
def test_undoing_a_step_deletes_nothing_outside_the_fork(tmp_path: Path, folder: str) -> None:
    """A symlink to another folder in the fork is rejected."""
    fork = lay_out(tmp_path / "fork", 1)
    mine = tmp_path / "mine"
    (mine / "0").mkdir(parents=True)
    for file in ("7", "7.delta", "0/7.delta"):
        (mine / file).write_text("mine")
    if (fork / folder).exists():
        shutil.rmtree(fork / folder)
    (fork / folder).symlink_to(mine)
    with pytest.raises(UntrustedCheckpointError, match="leads out"):
        ForkFolder(str(fork), None).take_back(CheckpointFiles(fork))
    assert all((mine / file).read_text() == "mine" for file in ("7", "7.delta", "0/7.delta"))


def test_steps_write_nothing_outside_the_fork(tmp_path: Path) -> None:
    """A symlink in place of the plans folder is rejected."""
    fork = lay_out(tmp_path / "fork", 1)
    (fork / "plans").symlink_to(outside(tmp_path))
    with pytest.raises(UntrustedCheckpointError, match="leads out"):
        ForkFolder(str(fork), None).write({"plans/1.delta": "theirs"})
    assert (tmp_path / "mine/1.delta").read_text() == "secret"


def test_the_note_of_a_rescale_does_not_follow_a_symlink(tmp_path: Path) -> None:
    """The note is first written under a temporary name, which may exist as a symlink in the checkpoint."""
    original = lay_out(tmp_path / "original", 1)
    (tmp_path / "mine").write_text("mine")
    (original / f".{NOTE}.new").symlink_to(tmp_path / "mine")
    Unfinished.begin(CheckpointFiles(original), None, 0, 1, 2)  # type: ignore[arg-type]
    assert (tmp_path / "mine").read_text() == "mine"
    assert not (original / NOTE).is_symlink()
