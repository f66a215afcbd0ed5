"""The files of a fork: state files of the needed versions, and the log of a file source; without Spark."""

from __future__ import annotations

import json
import os
import shutil
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import streamstate as ss
from streamstate.errors import (
    EpochGoneError,
    ForkError,
    NoStateError,
    NotACheckpointError,
    NotReplayableError,
)
from streamstate.replay.forks import forked_from
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.checkpoint.file_source_log import entries, log_upto
from streamstate.snapshots.checkpoint.local_files import LocalFiles
from streamstate.snapshots.checkpoint.source_offsets import file_batch
from streamstate.snapshots.checkpoint.state_files import StateChain, StateFile, StoreFiles

ONE, TWO = "11111111-0000-0000-0000-000000000000", "22222222-0000-0000-0000-000000000000"


def format_1(_version: int) -> None:
    """The commit log has no unique ids."""


def names(chain: StateChain) -> list[str] | None:
    """The names of a chain's files."""
    return [file.name for file in chain.files] if chain.missing is None else None


def test_a_chain_is_the_newest_snapshot_and_the_deltas_after_it() -> None:
    """Files of older and later versions are not included."""
    store = StoreFiles(["1.delta", "2.delta", "2.snapshot", "3.delta", "4.delta", "5.delta", "5.snapshot"])
    assert names(store.chain(4, format_1)) == ["2.delta", "2.snapshot", "3.delta", "4.delta"]
    assert names(store.chain(1, format_1)) == ["1.delta"]


def test_a_missing_version_breaks_the_chain() -> None:
    """The state cannot be rebuilt from the remaining files."""
    assert StoreFiles(["1.delta", "3.delta"]).chain(3, format_1).missing == 2
    assert StoreFiles(["2.snapshot", "4.delta"]).chain(4, format_1).missing == 3
    assert StoreFiles([]).chain(1, format_1).missing == 1


def test_files_of_uncommitted_attempts_are_ignored() -> None:
    """In format 2, the commit log has the id of the committed attempt of each version."""
    store = StoreFiles([f"1_{ONE}.changelog", f"1_{TWO}.changelog", f"2_{TWO}.zip", f"2_{ONE}.changelog"])
    assert names(store.chain(2, {1: [ONE], 2: [ONE]}.get)) == [f"1_{ONE}.changelog", f"2_{ONE}.changelog"]
    assert names(store.chain(2, {1: [TWO], 2: [TWO]}.get)) == [f"2_{TWO}.zip"]


def test_a_snapshot_of_an_unknown_attempt_is_skipped() -> None:
    """If two attempts left files and the commit log has neither id, the chain starts at an earlier snapshot."""
    store = StoreFiles(
        [f"1_{ONE}.zip", f"2_{ONE}.changelog", f"2_{TWO}.changelog", f"2_{TWO}.zip", f"3_{ONE}.changelog"]
    )
    assert names(store.chain(3, {3: [ONE]}.get)) == [
        f"1_{ONE}.zip",
        f"2_{ONE}.changelog",
        f"2_{TWO}.changelog",
        f"2_{TWO}.zip",
        f"3_{ONE}.changelog",
    ]


def test_a_lineage_leaves_one_attempt_of_each_version() -> None:
    """Without it, every attempt may have been committed; a snapshot that is passed over is no end."""
    store = StoreFiles(
        [f"1_{ONE}.changelog", f"1_{ONE}.zip", f"2_{ONE}.changelog", f"2_{TWO}.changelog", f"3_{ONE}.changelog"]
    )
    ids = {3: [ONE]}.get

    def lineage(file: StateFile) -> dict[int, str]:
        return dict.fromkeys(range(1, file.version), ONE)

    after = [f"2_{ONE}.changelog", f"3_{ONE}.changelog"]
    exact = store.chain(3, ids, lineage=lineage)
    assert names(exact) == [f"1_{ONE}.changelog", f"1_{ONE}.zip", *after]
    assert [file.name for file in exact.changes] == after
    assert f"2_{TWO}.changelog" in (names(store.chain(3, ids)) or [])
    skipping = store.chain(3, ids, lineage=lineage, skipped={f"1_{ONE}.zip"})
    assert (skipping.snapshot, [file.name for file in skipping.changes]) == (None, [f"1_{ONE}.changelog", *after])


def test_the_newest_snapshots_need_only_their_own_commits() -> None:
    """A query may have committed a million epochs since, each with a commit of its own to read."""
    asked: list[int] = []

    def ids(version: int) -> list[str]:
        asked.append(version)
        return [ONE]

    store = StoreFiles([f"2_{ONE}.zip", f"3_{TWO}.zip", f"900000_{ONE}.changelog"])
    assert [file.name for file in store.newest_snapshots(900_000, ids)] == [f"2_{ONE}.zip"]
    assert asked == [3, 2]


def test_changes_since_the_snapshot() -> None:
    """They count from the newest snapshot, or from the first version."""
    store = StoreFiles(["1.delta", "2.delta", "2.snapshot", "3.delta", "4.delta", ".4.delta.crc"])
    assert [file.name for file in store.since_snapshot] == ["3.delta", "4.delta"]
    assert [file.version for file in StoreFiles([f"1_{ONE}.changelog", f"1_{TWO}.changelog"]).since_snapshot] == [1, 1]
    assert StoreFiles(["2.delta", "2.snapshot"]).since_snapshot == []


def test_checksum_files_are_found() -> None:
    """Both Hadoop's hidden checksum file and the one that Spark writes are listed."""
    store = StoreFiles(["1.delta", ".1.delta.crc", "1.delta.crc", "2.delta.crc"])
    assert store.beside("1.delta") == [".1.delta.crc", "1.delta.crc"]


def write_log(folder: Path, batches: list[list[str]], interval: int, *, cleaned: bool) -> None:
    """Write the log of a file source as Spark does."""
    folder.mkdir(parents=True)
    all_files: list[dict[str, object]] = []
    for batch, paths in enumerate(batches):
        added = [{"path": path, "timestamp": 1, "batchId": batch} for path in paths]
        all_files += added
        compacts = (batch + 1) % interval == 0
        lines = ["v1", *(json.dumps(file) for file in (all_files if compacts else added))]
        (folder / (f"{batch}.compact" if compacts else str(batch))).write_text("\n".join(lines))
    if cleaned:
        last = len(batches) // interval * interval - 1
        for file in folder.iterdir():
            if int(file.name.removesuffix(".compact")) < last:
                file.unlink()


@given(st.lists(st.integers(1, 3), min_size=1, max_size=35), st.sampled_from([2, 5, 10]), st.booleans(), st.data())
def test_a_log_up_to_a_batch_lists_the_files_read_by_then(
    tmp_path_factory: pytest.TempPathFactory, counts: list[int], interval: int, cleaned: bool, data: st.DataObject
) -> None:
    """This holds after later compaction and cleanup. Compacted files are at batches where Spark expects them."""
    folder = tmp_path_factory.mktemp("log") / "0"
    batches = [[f"file:/in/{batch}-{number}" for number in range(count)] for batch, count in enumerate(counts)]
    write_log(folder, batches, interval, cleaned=cleaned)
    last = data.draw(st.integers(-1, len(batches) - 1))
    log = log_upto(LocalFiles(), str(folder), last)
    compacted = max((int(name.removesuffix(".compact")) for name in log if name.endswith(".compact")), default=-1)
    assert compacted < interval or (compacted + 1) % interval == 0
    assert sorted(log) == sorted(
        [*([f"{compacted}.compact"] if compacted >= 0 else []), *map(str, range(compacted + 1, last + 1))]
    )
    listed = [str(entry["path"]) for text in log.values() for entry in entries(text)]
    assert sorted(listed) == sorted(path for batch in batches[: last + 1] for path in batch)


def test_a_log_with_a_missing_batch_is_rejected(tmp_path: Path) -> None:
    """Otherwise, the fork would read the files of that batch again."""
    write_log(tmp_path / "0", [["a"], ["b"], ["c"]], 10, cleaned=False)
    (tmp_path / "0" / "1").unlink()
    with pytest.raises(NotReplayableError, match="no longer lists"):
        log_upto(LocalFiles(), str(tmp_path / "0"), 2)


def test_only_file_sources_have_a_log_offset() -> None:
    """Other sources' offsets and missing offsets have no batch number."""
    assert file_batch('{"logOffset":3}') == 3
    assert file_batch('{"t":{"0":12}}') is file_batch("7") is file_batch(None) is None


def lay_out(folder: Path, epochs: int, *, purged: int = 0, partitions: int = 1) -> Path:
    """Write the checkpoint of a query with one operator, without Spark."""
    stores = [f"state/0/{partition}" for partition in range(partitions)]
    for name in ("offsets", "commits", "sources/0", *stores):
        (folder / name).mkdir(parents=True)
    conf = {"spark.sql.shuffle.partitions": str(partitions)}
    (folder / "metadata").write_text('{"id":"3c1f3a5e-0000-0000-0000-000000000000"}')
    for epoch in range(epochs):
        head = json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": 1, "conf": conf})
        (folder / f"offsets/{epoch}").write_text(f'v1\n{head}\n{{"logOffset":{epoch}}}')
        (folder / f"commits/{epoch}").write_text("v1\n{}")
        (folder / f"sources/0/{epoch}").write_text(f'v1\n{{"path":"f{epoch}","timestamp":1,"batchId":{epoch}}}')
        for store in stores if epoch >= purged else ():
            (folder / f"{store}/{epoch + 1}.delta").write_bytes(bytes([epoch]))
    return folder


def test_a_fork_has_no_files_of_later_epochs(tmp_path: Path) -> None:
    """It has one committed epoch, the state files and the source log up to it, and a new query id."""
    original = lay_out(tmp_path / "original", 5)
    fork = ss.Checkpoint(original).fork(tmp_path / "fork", at=2)
    files = sorted(str(path.relative_to(fork.path)) for path in Path(fork).rglob("*") if path.is_file())
    assert files == [
        "commits/2",
        "metadata",
        "offsets/1",
        "offsets/2",
        *(f"sources/0/{batch}" for batch in range(3)),
        *(f"state/0/0/{version}.delta" for version in (1, 2, 3)),
        "streamstate-fork.json",
    ]
    assert CheckpointFiles(fork).query_id == fork.query_id != CheckpointFiles(original).query_id
    record = forked_from(fork.path)
    assert record is not None
    assert (record.parent, record.parent_id, record.epoch) == (str(original), CheckpointFiles(original).query_id, 2)
    assert forked_from(original) is None


def test_state_files_are_linked_and_other_files_are_copied(tmp_path: Path) -> None:
    """Links take no space. Files that Spark may overwrite are copied."""
    original = lay_out(tmp_path / "original", 3)
    fork = ss.Checkpoint(original).fork(tmp_path / "fork", at=1)
    assert (original / "state/0/0/1.delta").samefile(Path(fork, "state/0/0/1.delta"))
    assert not (original / "commits/1").samefile(Path(fork, "commits/1"))
    assert fork.linked_bytes == 2
    assert 0 < fork.new_bytes < 2_000


def test_files_that_cannot_be_linked_are_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hard links between two file systems fail, for example."""

    def refuse(*_: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    original = lay_out(tmp_path / "original", 3)
    monkeypatch.setattr(os, "link", refuse)
    fork = ss.Checkpoint(original).fork(tmp_path / "fork", at=2)
    assert not (original / "state/0/0/1.delta").samefile(Path(fork, "state/0/0/1.delta"))
    assert (fork.linked_bytes, Path(fork, "state/0/0/3.delta").read_bytes()) == (0, bytes([2]))


def test_the_files_listed_by_a_rocksdb_snapshot_are_included(tmp_path: Path) -> None:
    """Other files of the folder are not."""
    original = lay_out(tmp_path / "original", 3, purged=3)
    store = original / "state/0/0"
    (store / "SSTs").mkdir()
    for name in ("000001-a.sst", ".000001-a.sst.crc", "000002-b.sst"):
        (store / "SSTs" / name).write_text(name)
    with zipfile.ZipFile(store / "3.zip", "w") as archive:
        file = '{"localFileName":"1.sst","dfsSstFileName":"000001-a.sst","sizeBytes":12}'
        archive.writestr("metadata", f'v1\n{{"sstFiles":[{file}]}}')
    fork = ss.Checkpoint(original).fork(tmp_path / "fork", at=2)
    assert sorted(path.name for path in Path(fork, "state/0/0/SSTs").iterdir()) == [".000001-a.sst.crc", "000001-a.sst"]


@pytest.mark.parametrize("at", [-1, 3, 99])
def test_an_uncommitted_epoch_is_rejected(tmp_path: Path, at: int) -> None:
    """The error lists the committed epochs, and the target is not created."""
    with pytest.raises(EpochGoneError, match=r"was never committed\.\nIt holds epochs 0 to 2"):
        ss.Checkpoint(lay_out(tmp_path / "original", 3)).fork(tmp_path / "fork", at=at)
    assert not (tmp_path / "fork").exists()


def test_a_purged_epoch_is_rejected(tmp_path: Path) -> None:
    """Its state files or its commit may be missing. The target is not created."""
    original = lay_out(tmp_path / "original", 5, purged=2)
    with pytest.raises(EpochGoneError, match="is incomplete"):
        ss.Checkpoint(original).fork(tmp_path / "fork", at=4)
    (original / "commits/0").unlink()
    with pytest.raises(EpochGoneError, match=r"Spark has purged it\.\nIt holds epochs 1 to 4; nearest: 1, 2"):
        ss.Checkpoint(original).fork(tmp_path / "fork", at=0)
    assert not (tmp_path / "fork").exists()


@pytest.mark.parametrize("folder_stays", [True, False])
def test_a_partition_without_state_files_is_rejected(tmp_path: Path, folder_stays: bool) -> None:
    """All partitions of an operator have the same stores; a fork without them would lose the partition's keys."""
    original = lay_out(tmp_path / "original", 3, partitions=3)
    for file in (original / "state/0/2").iterdir():
        file.unlink()
    if not folder_stays:
        (original / "state/0/2").rmdir()
    with pytest.raises(EpochGoneError, match="is incomplete"):
        ss.Checkpoint(original).fork(tmp_path / "fork", at=1)
    assert not (tmp_path / "fork").exists()


def test_an_operator_may_have_a_single_partition(tmp_path: Path) -> None:
    """An aggregation without keys has state in its first partition only, whatever the query's partitions."""
    original = lay_out(tmp_path / "original", 3, partitions=3)
    for partition in (1, 2):
        shutil.rmtree(original / f"state/0/{partition}")
    assert ss.Checkpoint(original).fork(tmp_path / "fork", at=1).epoch == 1


def test_an_existing_target_is_rejected(tmp_path: Path) -> None:
    """Its files are unchanged, whether it is a checkpoint or not."""
    original = lay_out(tmp_path / "original", 2)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/notes").write_text("keep")
    with pytest.raises(ForkError, match="already exists"):
        ss.Checkpoint(original).fork(tmp_path / "mine", at=1)
    assert (tmp_path / "mine/notes").read_text() == "keep"
    fork = ss.Checkpoint(original).fork(tmp_path / "fork", at=1)
    with pytest.raises(ForkError, match="already exists"):
        ss.Checkpoint(original).fork(fork, at=0)
    assert CheckpointFiles(fork).query_id == fork.query_id


@pytest.mark.parametrize("place", ["original", "original/inside"])
def test_a_target_inside_the_original_is_rejected(tmp_path: Path, place: str) -> None:
    """The fork would change its original."""
    with pytest.raises(ForkError, match="the original itself, or inside it"):
        ss.Checkpoint(lay_out(tmp_path / "original", 2)).fork(tmp_path / place, at=1)


def test_unsuitable_checkpoints_are_rejected(tmp_path: Path) -> None:
    """A missing folder, a query without state, and a query without committed epochs raise different errors."""
    with pytest.raises(NotACheckpointError):
        ss.Checkpoint(tmp_path / "nothing").fork(tmp_path / "fork", at=0)
    stateless = lay_out(tmp_path / "stateless", 2, purged=2)
    (stateless / "state/0/0").rmdir()
    (stateless / "state/0").rmdir()
    with pytest.raises(NoStateError):
        ss.Checkpoint(stateless).fork(tmp_path / "fork", at=1)
    with pytest.raises(EpochGoneError, match="no committed epoch"):
        ss.Checkpoint(lay_out(tmp_path / "new", 0)).fork(tmp_path / "fork")


def test_an_unfinished_fork_is_replaced(tmp_path: Path) -> None:
    """If the process was killed before it wrote the last file, the folder is not a checkpoint yet."""
    original = lay_out(tmp_path / "original", 3)
    (tmp_path / "fork/streamstate-fork.unfinished").mkdir(parents=True)
    (tmp_path / "fork/streamstate-fork.unfinished/x").write_text("")
    (tmp_path / "fork/state").mkdir()
    with pytest.raises(NotACheckpointError):
        _ = CheckpointFiles(tmp_path / "fork").query_id
    assert ss.Checkpoint(original).fork(tmp_path / "fork", at=1).epoch == 1


def test_a_failed_fork_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After an interrupt, the target does not exist."""

    def fail(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    original = lay_out(tmp_path / "original", 3)
    monkeypatch.setattr(os, "link", fail)
    with pytest.raises(KeyboardInterrupt):
        ss.Checkpoint(original).fork(tmp_path / "fork", at=1)
    assert not (tmp_path / "fork").exists()


def test_a_fork_of_a_fork(tmp_path: Path) -> None:
    """Its original is the first fork, and it starts from the first fork's epoch."""
    first = ss.Checkpoint(lay_out(tmp_path / "original", 3)).fork(tmp_path / "first", at=1)
    second = first.fork(tmp_path / "second")
    assert (second.epoch, second.original) == (1, first)


def test_the_default_epoch_is_the_newest_committed_epoch(tmp_path: Path) -> None:
    """It is used if ``at`` is not given."""
    assert ss.Checkpoint(lay_out(tmp_path / "original", 4)).fork(tmp_path / "fork").epoch == 3


def test_an_invalid_verify_is_rejected(tmp_path: Path) -> None:
    """The error lists the valid values."""
    with pytest.raises(ForkError, match="'files' or 'rows'"):
        ss.Checkpoint(lay_out(tmp_path / "original", 2)).fork(tmp_path / "fork", at=1, verify="no")
