"""Checkpoints in an object store are captured without Spark, as those on disk are."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from damage.kinds import damaged
from pyarrow.fs import FileSelector
from recorded.restarts import restarts
from recorded.unpacked import unpacked

import streamstate as ss
from capturing.buckets import Bucket, bucket  # noqa: F401 (a fixture)
from capturing.without_spark import captured_without_spark
from streamstate.errors import (
    CaptureError,
    DamagedCheckpointError,
    MissingDependencyError,
    NotACheckpointError,
    NotAStoreError,
)
from streamstate.operations.checkup import examine
from streamstate.snapshots.checkpoint.object_files import ObjectFiles
from streamstate.snapshots.store.delta import Place


def upload(bucket: Bucket, folder: Path, name: str) -> str:
    """Bring a folder into the bucket; returns its URI, with Hadoop's scheme."""
    files = Place(f"{bucket.uri}/{name}", bucket.options).filesystem()
    for path in folder.rglob("*"):
        if path.is_file():
            with files.open_output_stream(path.relative_to(folder).as_posix()) as file:
                file.write(path.read_bytes())
    return f"s3a://bucket/{name}"


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Recorded checkpoints, by provider and query."""
    return unpacked("4.1", tmp_path_factory.mktemp("recorded"))


@pytest.fixture(scope="module")
def remote(bucket: Bucket, local: Path) -> str:
    """The checkpoint of an aggregation in the bucket."""
    return upload(bucket, local / "RocksDB-format-2" / "aggregation", "checkpoints/an aggregation")


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.parametrize(
    ("version", "kind"),
    [
        ("4.1", "RocksDB-format-2"),
        pytest.param("4.1", "HDFS", marks=pytest.mark.exhaustive),
        pytest.param("4.1", "RocksDB-with-changelog", marks=pytest.mark.exhaustive),
        pytest.param("3.5", "RocksDB", marks=pytest.mark.exhaustive),
    ],
)
def test_a_checkpoint_in_a_bucket_is_captured_like_one_on_disk(
    bucket: Bucket, version: str, kind: str, tmp_path: Path
) -> None:
    """Into a store on disk and into one in the same bucket, at every epoch, from changelogs and from snapshots."""
    checkpoint = unpacked(version, tmp_path) / kind / "aggregation"
    uri = upload(bucket, checkpoint, f"checkpoints/{kind}")
    stores = [str(tmp_path / "of-bucket"), f"{bucket.uri}/stores/{kind}"]
    reports = captured_without_spark((checkpoint, tmp_path / "of-disk"))
    reports += captured_without_spark(*((uri, store) for store in stores), options=bucket.options)
    assert reports == [[[0, 1, 2, 3], {}]] * 3
    expected = ss.open_store(tmp_path / "of-disk")["q"]
    for store in stores:
        found = ss.open_store(store, storage_options=bucket.options)["q"]
        assert found.epochs()["offsets"].equals(expected.epochs()["offsets"])
        for epoch in range(4):
            assert found.at(epoch).table().to_arrow().equals(expected.at(epoch).table().to_arrow())


def test_files_in_a_bucket_are_read_as_on_disk(bucket: Bucket, remote: str) -> None:
    """A file that does not exist is missing, and nothing else is an error."""
    files = ObjectFiles(remote, bucket.options)
    assert sorted(files.names(f"{remote}/commits")) == sorted(
        [*map(str, range(4)), *(f".{epoch}.crc" for epoch in range(4))]
    )
    assert files.names(f"{remote}/state") == ["0"]
    assert files.names(f"{remote}/none") == []
    text = files.text(f"{remote}/commits/1")
    assert text is not None
    assert text.startswith("v")
    assert files.content(f"{remote}/commits/1") == files.open(f"{remote}/commits/1").read() == text.encode()
    assert files.tail(f"{remote}/commits/1", 10**6) == text
    assert files.tail(f"{remote}/commits/1", len(text) - 1) == text.partition("\n")[2]
    assert files.modified(f"{remote}/commits/1") is not None
    assert files.volume(f"{remote}/commits") == sum(
        len(files.content(f"{remote}/commits/{name}") or b"") for name in files.names(f"{remote}/commits")
    )
    none = f"{remote}/none"
    assert [files.text(none), files.content(none), files.tail(none, 1), files.modified(none)] == [None] * 4
    with pytest.raises(FileNotFoundError):
        files.open(none)


def test_options_that_only_tables_have_are_left_out(bucket: Bucket, remote: str) -> None:
    """Deltalake takes one set of options for several purposes."""
    options = {**bucket.options, "AWS_S3_ALLOW_UNSAFE_RENAME": "true", "max_retries": "3", "timeout": "10s"}
    assert ObjectFiles(remote, options).names(f"{remote}/state") == ["0"]


def test_a_store_that_refuses_is_no_missing_checkpoint(bucket: Bucket, remote: str, tmp_path: Path) -> None:
    """The error says what to check, and a later attempt may succeed."""
    options = {**bucket.options, "AWS_ACCESS_KEY_ID": "wrong"}
    with pytest.raises(CaptureError, match=r"(?s)cannot be read: .*Check the bucket") as raised:
        ObjectFiles(remote, options).text(f"{remote}/metadata")
    assert not isinstance(raised.value, NotACheckpointError)


def test_without_its_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, remote: str) -> None:
    """If Spark is missing too, this one is the smaller."""
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(MissingDependencyError, match=r"\[sidecar\]"):
        ObjectFiles(remote)


@pytest.mark.slow
def test_an_epoch_takes_requests_for_its_own_files_only(bucket: Bucket, local: Path, tmp_path: Path) -> None:
    """One for each state file and one for its checksum, and a fixed number beside."""
    checkpoint, last = local / "RocksDB-format-2" / "aggregation", tmp_path / "last"
    earlier = shutil.copytree(checkpoint, tmp_path / "earlier")
    last.mkdir()
    (earlier / "commits" / "3").rename(last / "3")
    uri = upload(bucket, earlier, "checkpoints/growing")
    capture = (uri, tmp_path / "store")
    assert captured_without_spark(capture, options=bucket.options) == [[[0, 1, 2], {}]]
    upload(bucket, last, "checkpoints/growing/commits")
    bucket.requests()
    assert captured_without_spark(capture, options=bucket.options) == [[[3], {}]]
    requests = bucket.requests()
    changes = [request for request in requests if "/state/0/" in request and ".changelog" in request]
    assert len(changes) == 2 * len(list((checkpoint / "state" / "0").glob("[0-9]*")))
    assert all("/4_" in request for request in changes)
    assert len(requests) - len(changes) < 40


def test_a_store_keeps_away_from_checkpoints_in_a_bucket(bucket: Bucket, remote: str) -> None:
    """At, in and above one; nothing is written."""
    files = Place(f"{bucket.uri}/checkpoints", bucket.options).filesystem()
    before = [file.path for file in files.get_file_info(FileSelector("", recursive=True))]
    place = remote.replace("s3a:", "s3:")
    for store in (place, f"{place}/store", f"{place}/state/0", place.rpartition("/")[0]):
        with pytest.raises(NotAStoreError, match="A store is a folder of its own"):
            ss.Checkpoint(remote, storage_options=bucket.options).capture(store, "q")
    assert [file.path for file in files.get_file_info(FileSelector("", recursive=True))] == before


@pytest.mark.slow
def test_damage_in_a_bucket(bucket: Bucket, tmp_path: Path) -> None:
    """It is found as on disk; checksum files that Hadoop wrote elsewhere do not count for logs there."""
    recorded = restarts(tmp_path)
    uri = upload(bucket, damaged("newest state emptied", recorded / "changelog-2/plain", tmp_path / "c"), "damaged")
    found = examine(uri, storage_options=bucket.options)
    assert (found.can_capture, found.can_restart, found.epochs) == (True, False, 5)
    assert any("is empty" in finding.text for finding in found.findings if finding.file)
    with pytest.raises(DamagedCheckpointError, match="from epoch 5 on"):
        ss.Checkpoint(uri, storage_options=bucket.options).capture(tmp_path / "s", "q")
    edited = upload(
        bucket, damaged("offsets/5 edited, checksum left", recorded / "HDFS/plain", tmp_path / "c2"), "edited"
    )
    assert examine(edited, storage_options=bucket.options).can_restart is True
