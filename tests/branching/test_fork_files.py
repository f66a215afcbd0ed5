"""Which files make up a fork: state files by version, the log of a file source; without Spark."""

from __future__ import annotations

import json
import os
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import streamstate as ss
from streamstate.snapshots.checkpoint import Checkpoint
from streamstate.snapshots.errors import (
    EpochGoneError,
    ForkError,
    NoStateError,
    NotACheckpointError,
    NotReplayableError,
)
from streamstate.snapshots.filesystem import LocalFiles
from streamstate.snapshots.forks import forked_from
from streamstate.snapshots.forks.source_log import entries, log_upto, source_batch
from streamstate.snapshots.forks.state_files import StoreFiles

ONE, TWO = "11111111-0000-0000-0000-000000000000", "22222222-0000-0000-0000-000000000000"


def names(chain: object) -> list[str] | None:
    """The names of a chain's files."""
    return None if chain is None else [one.name for one in chain]  # type: ignore[attr-defined]


def test_the_newest_whole_state_and_the_changes_after_it() -> None:
    """Older files are not needed, and newer ones must not be there."""
    store = StoreFiles(["1.delta", "2.delta", "2.snapshot", "3.delta", "4.delta", "5.delta", "5.snapshot"])
    assert names(store.chain(4)) == ["2.delta", "2.snapshot", "3.delta", "4.delta"]
    assert names(store.chain(1)) == ["1.delta"]


def test_a_missing_version_breaks_the_chain() -> None:
    """The state cannot be put together from what is left."""
    assert StoreFiles(["1.delta", "3.delta"]).chain(3) is None
    assert StoreFiles(["2.snapshot", "4.delta"]).chain(4) is None
    assert StoreFiles([]).chain(1) is None


def test_an_attempt_that_was_never_committed_does_not_count() -> None:
    """In format 2 the commit log says which id is the version's."""
    store = StoreFiles([f"1_{ONE}.changelog", f"1_{TWO}.changelog", f"2_{TWO}.zip", f"2_{ONE}.changelog"])
    assert names(store.chain(2, {1: [ONE], 2: [ONE]})) == [f"1_{ONE}.changelog", f"2_{ONE}.changelog"]
    assert names(store.chain(2, {1: [TWO], 2: [TWO]})) == [f"2_{TWO}.zip"]


def test_a_whole_state_of_unknown_origin_is_passed_over() -> None:
    """Where two attempts left files and the commit log no longer says which was committed, older files tell."""
    store = StoreFiles(
        [f"1_{ONE}.zip", f"2_{ONE}.changelog", f"2_{TWO}.changelog", f"2_{TWO}.zip", f"3_{ONE}.changelog"]
    )
    assert names(store.chain(3, {3: [ONE]})) == [
        f"1_{ONE}.zip",
        f"2_{ONE}.changelog",
        f"2_{TWO}.changelog",
        f"2_{TWO}.zip",
        f"3_{ONE}.changelog",
    ]


def test_checksums_go_with_their_files() -> None:
    """Hadoop's hidden ones, and Spark's own beside the file."""
    store = StoreFiles(["1.delta", ".1.delta.crc", "1.delta.crc", "2.delta.crc"])
    assert store.beside("1.delta") == [".1.delta.crc", "1.delta.crc"]


def write_log(folder: Path, batches: list[list[str]], interval: int, *, cleaned: bool) -> None:
    """A file source's log as Spark writes it."""
    folder.mkdir(parents=True)
    every: list[dict[str, object]] = []
    for batch, paths in enumerate(batches):
        added = [{"path": path, "timestamp": 1, "batchId": batch} for path in paths]
        every += added
        compacts = (batch + 1) % interval == 0
        lines = ["v1", *(json.dumps(one) for one in (every if compacts else added))]
        (folder / (f"{batch}.compact" if compacts else str(batch))).write_text("\n".join(lines))
    if cleaned:
        last = len(batches) // interval * interval - 1
        for file in folder.iterdir():
            if int(file.name.removesuffix(".compact")) < last:
                file.unlink()


@given(st.lists(st.integers(1, 3), min_size=1, max_size=35), st.sampled_from([2, 5, 10]), st.booleans(), st.data())
def test_a_log_cut_at_any_batch_lists_what_was_read_by_then(
    tmp_path_factory: pytest.TempPathFactory, counts: list[int], interval: int, cleaned: bool, data: st.DataObject
) -> None:
    """Whatever was compacted or cleaned since; and it is compacted where Spark looks for it."""
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
    listed = [str(one["path"]) for text in log.values() for one in entries(text)]
    assert sorted(listed) == sorted(path for batch in batches[: last + 1] for path in batch)


def test_a_log_that_lost_a_batch_says_so(tmp_path: Path) -> None:
    """Rather than give a fork that reads a file twice."""
    write_log(tmp_path / "0", [["a"], ["b"], ["c"]], 10, cleaned=False)
    (tmp_path / "0" / "1").unlink()
    with pytest.raises(NotReplayableError, match="no longer lists"):
        log_upto(LocalFiles(), str(tmp_path / "0"), 2)


def test_only_a_file_source_has_such_an_offset() -> None:
    """Kafka's and Delta's say themselves how far they were read."""
    assert source_batch('{"logOffset":3}') == 3
    assert source_batch('{"t":{"0":12}}') is source_batch("7") is source_batch(None) is None


def lay_out(folder: Path, epochs: int, *, purged: int = 0) -> Path:
    """A checkpoint of a query with one operator, without Spark."""
    for name in ("offsets", "commits", "state/0/0", "sources/0"):
        (folder / name).mkdir(parents=True)
    (folder / "metadata").write_text('{"id":"3c1f3a5e-0000-0000-0000-000000000000"}')
    for epoch in range(epochs):
        head = json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": 1, "conf": {"spark.sql.shuffle.partitions": "1"}})
        (folder / f"offsets/{epoch}").write_text(f'v1\n{head}\n{{"logOffset":{epoch}}}')
        (folder / f"commits/{epoch}").write_text("v1\n{}")
        (folder / f"sources/0/{epoch}").write_text(f'v1\n{{"path":"f{epoch}","timestamp":1,"batchId":{epoch}}}')
        if epoch >= purged:
            (folder / f"state/0/0/{epoch + 1}.delta").write_bytes(bytes([epoch]))
    return folder


def test_a_fork_has_its_epoch_and_nothing_newer(tmp_path: Path) -> None:
    """One committed epoch, the state's files up to it, the source's log up to it, an id of its own."""
    original = lay_out(tmp_path / "original", 5)
    fork = ss.fork(original, tmp_path / "fork", at=2)
    files = sorted(str(path.relative_to(fork.checkpoint)) for path in Path(fork).rglob("*") if path.is_file())
    assert files == [
        "commits/2",
        "metadata",
        "offsets/1",
        "offsets/2",
        *(f"sources/0/{batch}" for batch in range(3)),
        *(f"state/0/0/{version}.delta" for version in (1, 2, 3)),
        "streamstate-fork.json",
    ]
    assert Checkpoint(fork).query_id == fork.query_id != Checkpoint(original).query_id
    record = forked_from(fork.checkpoint)
    assert record is not None
    assert (record.parent, record.parent_id, record.epoch) == (str(original), Checkpoint(original).query_id, 2)
    assert forked_from(original) is None


def test_state_files_are_shared_and_the_rest_is_the_forks_own(tmp_path: Path) -> None:
    """A link takes no space; what Spark may write again is a copy."""
    original = lay_out(tmp_path / "original", 3)
    fork = ss.fork(original, tmp_path / "fork", at=1)
    assert (original / "state/0/0/1.delta").samefile(Path(fork, "state/0/0/1.delta"))
    assert not (original / "commits/1").samefile(Path(fork, "commits/1"))
    assert fork.linked_bytes == 2
    assert 0 < fork.new_bytes < 2_000


def test_where_nothing_can_be_linked_files_are_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As between two disks."""

    def refuse(*_: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    original = lay_out(tmp_path / "original", 3)
    monkeypatch.setattr(os, "link", refuse)
    fork = ss.fork(original, tmp_path / "fork", at=2)
    assert not (original / "state/0/0/1.delta").samefile(Path(fork, "state/0/0/1.delta"))
    assert (fork.linked_bytes, Path(fork, "state/0/0/3.delta").read_bytes()) == (0, bytes([2]))


def test_files_that_a_whole_state_names_come_along(tmp_path: Path) -> None:
    """RocksDB's, and not those of others."""
    original = lay_out(tmp_path / "original", 3, purged=3)
    store = original / "state/0/0"
    (store / "SSTs").mkdir()
    for name in ("000001-a.sst", ".000001-a.sst.crc", "000002-b.sst"):
        (store / "SSTs" / name).write_text(name)
    with zipfile.ZipFile(store / "3.zip", "w") as archive:
        archive.writestr("metadata", 'v1\n{"sstFiles":[{"localFileName":"1.sst","dfsSstFileName":"000001-a.sst"}]}')
    fork = ss.fork(original, tmp_path / "fork", at=2)
    assert sorted(path.name for path in Path(fork, "state/0/0/SSTs").iterdir()) == [".000001-a.sst.crc", "000001-a.sst"]


@pytest.mark.parametrize("at", [-1, 3, 99])
def test_an_epoch_that_was_never_committed(tmp_path: Path, at: int) -> None:
    """The message says which there are; nothing is left behind."""
    with pytest.raises(EpochGoneError, match=r"was never committed\.\nIt holds the epochs 0 to 2"):
        ss.fork(lay_out(tmp_path / "original", 3), tmp_path / "fork", at=at)
    assert not (tmp_path / "fork").exists()


def test_an_epoch_that_spark_has_purged(tmp_path: Path) -> None:
    """From the commit log, or only its state."""
    original = lay_out(tmp_path / "original", 5, purged=2)
    with pytest.raises(EpochGoneError, match="no longer whole"):
        ss.fork(original, tmp_path / "fork", at=4)
    (original / "commits/0").unlink()
    with pytest.raises(EpochGoneError, match=r"Spark has purged it\.\nIt holds the epochs 1 to 4; nearest: 1, 2"):
        ss.fork(original, tmp_path / "fork", at=0)
    assert not (tmp_path / "fork").exists()


def test_a_folder_that_is_there_is_left_alone(tmp_path: Path) -> None:
    """Whatever it holds."""
    original = lay_out(tmp_path / "original", 2)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/notes").write_text("keep")
    with pytest.raises(ForkError, match="is there already"):
        ss.fork(original, tmp_path / "mine", at=1)
    assert (tmp_path / "mine/notes").read_text() == "keep"
    fork = ss.fork(original, tmp_path / "fork", at=1)
    with pytest.raises(ForkError, match="is there already"):
        ss.fork(original, fork, at=0)
    assert Checkpoint(fork).query_id == fork.query_id


@pytest.mark.parametrize("place", ["original", "original/inside"])
def test_a_fork_does_not_go_into_its_original(tmp_path: Path, place: str) -> None:
    """Which would be another checkpoint afterwards."""
    with pytest.raises(ForkError, match="the original itself, or inside it"):
        ss.fork(lay_out(tmp_path / "original", 2), tmp_path / place, at=1)


def test_what_is_no_checkpoint(tmp_path: Path) -> None:
    """A folder without metadata, a query without state, one that never ran."""
    with pytest.raises(NotACheckpointError):
        ss.fork(tmp_path / "nothing", tmp_path / "fork", at=0)
    stateless = lay_out(tmp_path / "stateless", 2, purged=2)
    (stateless / "state/0/0").rmdir()
    (stateless / "state/0").rmdir()
    with pytest.raises(NoStateError):
        ss.fork(stateless, tmp_path / "fork", at=1)
    with pytest.raises(EpochGoneError, match="no committed epoch"):
        ss.fork(lay_out(tmp_path / "new", 0), tmp_path / "fork")


def test_a_fork_that_was_never_finished_is_begun_again(tmp_path: Path) -> None:
    """Its process was killed; until its last file is written it is no checkpoint."""
    original = lay_out(tmp_path / "original", 3)
    (tmp_path / "fork/streamstate-fork.unfinished").mkdir(parents=True)
    (tmp_path / "fork/streamstate-fork.unfinished/x").write_text("")
    (tmp_path / "fork/state").mkdir()
    with pytest.raises(NotACheckpointError):
        _ = Checkpoint(tmp_path / "fork").query_id
    assert ss.fork(original, tmp_path / "fork", at=1).epoch == 1


def test_a_failure_halfway_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk, an interrupt."""

    def fail(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    original = lay_out(tmp_path / "original", 3)
    monkeypatch.setattr(os, "link", fail)
    with pytest.raises(KeyboardInterrupt):
        ss.fork(original, tmp_path / "fork", at=1)
    assert not (tmp_path / "fork").exists()


def test_a_fork_of_a_fork(tmp_path: Path) -> None:
    """Its parent is the fork."""
    first = ss.fork(lay_out(tmp_path / "original", 3), tmp_path / "first", at=1)
    second = ss.fork(first, tmp_path / "second")
    assert (second.epoch, second.original) == (1, first.checkpoint)


def test_without_an_epoch_it_is_the_newest(tmp_path: Path) -> None:
    """What is committed now."""
    assert ss.fork(lay_out(tmp_path / "original", 4), tmp_path / "fork").epoch == 3


def test_only_known_ways_to_verify(tmp_path: Path) -> None:
    """The message says which there are."""
    with pytest.raises(ForkError, match="'files' or 'rows'"):
        ss.fork(lay_out(tmp_path / "original", 2), tmp_path / "fork", at=1, verify="no")
