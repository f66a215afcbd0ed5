"""Reading a remote checkpoint: what is needed next is read at once, in few rounds of requests."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from recorded.unpacked import unpacked

from capturing.buckets import Bucket, bucket  # noqa: F401 (a fixture)
from capturing.test_remote_checkpoint import upload
from streamstate.errors import CheckpointReplacedError
from streamstate.snapshots.capture.epoch_commit import Capturer
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.checkpoint.object_files import ObjectFiles
from streamstate.snapshots.checkpoint.read_ahead import ReadAheadFiles
from streamstate.snapshots.store.layout import Layout

_WAIT = 0.2
"""Seconds that each request takes: much longer than all work between two of them."""


class Counted(ReadAheadFiles):
    """Files that hold the number of times they were read."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[str] = []
        self._counting = threading.Lock()

    def _content(self, path: str) -> bytes | None:
        with self._counting:
            self.reads.append(path)
            return str(self.reads.count(path)).encode()

    def _entries(self, path: str) -> dict[str, bool]:
        raise OSError(path)


@pytest.fixture
def files() -> Iterator[Counted]:
    """Files, whose threads end."""
    made = Counted()
    yield made
    made.forget_ahead()


def test_a_result_goes_to_as_many_readers_as_announced_it(files: Counted) -> None:
    """Whoever asks once more gets what is there then."""
    files.read_ahead(["a", "a", "b"])
    assert [files.content("a") for _ in range(3)] == [b"1", b"1", b"2"]
    assert files.content("c") == b"1"


def test_what_nobody_asked_for_is_forgotten(files: Counted) -> None:
    """A later reader does not get an old result."""
    files.read_ahead(["a"], last="z")
    files.forget_ahead()
    before = files.reads.count("a")
    assert files.content("a") == str(before + 1).encode()


def test_a_failure_reaches_the_reader(files: Counted) -> None:
    """It is not raised before, and a second reader gets it too."""
    files.read_ahead([], ["folder", "folder"])
    for _ in range(2):
        with pytest.raises(OSError, match="folder"):
            files.entries("folder")


def test_the_last_file_is_read_after_all_others(files: Counted) -> None:
    """If a file is read that was not announced, the last one is read again."""
    files.read_ahead(["a", "b"], last="z")
    assert [files.content(path) for path in ("a", "b")] == [b"1", b"1"]
    assert files.content_last("z") == b"1"
    assert files.reads[-1] == "z"
    files.read_ahead(["a"], last="z")
    files.content("unannounced")
    files.content("a")
    files.content_last("z")
    assert files.reads[-1] == "z"
    assert files.content_last("z") == str(files.reads.count("z")).encode()


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Recorded checkpoints, by provider and query."""
    return unpacked("4.1", tmp_path_factory.mktemp("recorded"))


@pytest.fixture
def kind() -> str:
    """A provider and a format of checkpoints."""
    return "RocksDB-format-2"


@pytest.fixture
def following(bucket: Bucket, recorded: Path, kind: str, tmp_path: Path) -> tuple[Capturer, Callable[[], object]]:
    """A capture that has captured all epochs but the last, and a call that commits this one."""
    checkpoint = shutil.copytree(recorded / kind / "aggregation", tmp_path / "checkpoint")
    last = tmp_path / "last"
    last.mkdir()
    shutil.move(checkpoint / "commits" / "3", last / "3")
    name = f"checkpoints/{tmp_path.name}"
    uri = upload(bucket, checkpoint, name)
    files = CheckpointFiles(uri, files=ObjectFiles(uri, bucket.options))
    capturer = Capturer(None, files, Layout.at(tmp_path / "store"), "q")
    while capturer.run().epochs:
        pass
    return capturer, lambda: upload(bucket, last, f"{name}/commits")


@contextmanager
def slow_requests(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[float, float, str]]]:
    """Each request takes a while; the begin, the end and the path of each."""
    requests: list[tuple[float, float, str]] = []
    with monkeypatch.context() as patched:
        for name in ("_content", "_entries", "modified", "size"):
            real = getattr(ObjectFiles, name)

            def slow(files: ObjectFiles, path: str, real: Callable[..., Any] = real, name: str = name) -> Any:
                if name == "modified" and path in files._times.get(path.rpartition("/")[0], {}):
                    return real(files, path)
                began = time.monotonic()
                time.sleep(_WAIT)
                found = real(files, path)
                requests.append((began, time.monotonic(), path))
                return found

            patched.setattr(ObjectFiles, name, slow)
        yield requests


def rounds(requests: list[tuple[float, float, str]]) -> list[list[str]]:
    """The longest chain of requests of which each began after the one before had ended, with what was beside it."""
    found: list[list[str]] = []
    ended = -1.0
    for began, end, path in sorted(requests, key=lambda request: request[1]):
        if began >= ended:
            found.append([])
            ended = end
        found[-1].append(path)
    return found


@pytest.mark.parametrize("kind", ["RocksDB-format-2", "HDFS"])
def test_an_epoch_takes_three_rounds_of_requests(
    following: tuple[Capturer, Callable[[], object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The logs, then the files that they name, then whether it is still the same checkpoint."""
    capturer, commit = following
    commit()
    with slow_requests(monkeypatch) as requests:
        assert capturer.run().epochs == (3,)
    found = rounds(requests)
    assert len(found) == 3, found
    assert [path.rpartition("/")[2] for path in found[-1]] == ["metadata"]
    assert len({path for _, _, path in requests}) == len(requests) - 1  # only that is read twice


def test_a_look_for_news_takes_one_round(
    following: tuple[Capturer, Callable[[], object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reads the commit log and whether it is still the same checkpoint."""
    capturer, commit = following
    with slow_requests(monkeypatch) as requests:
        assert capturer.behind() == []
    assert [sorted(path.rpartition("/")[2] for path in found) for found in rounds(requests)] == [
        ["commits", "metadata"]
    ]
    commit()
    assert capturer.behind() == [3]


def test_a_checkpoint_that_is_replaced_meanwhile_is_noticed(
    bucket: Bucket, following: tuple[Capturer, Callable[[], object]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if that happens with the last file that is read."""
    capturer, commit = following
    commit()
    content = ObjectFiles._content

    def replaced(files: ObjectFiles, path: str) -> bytes | None:
        if path.endswith((".changelog", ".delta")):
            other = tmp_path / "other"
            other.mkdir(exist_ok=True)
            (other / "metadata").write_text('{"id": "00000000-0000-0000-0000-000000000000"}')
            upload(bucket, other, capturer.checkpoint.path.removeprefix("s3a://bucket/"))
        return content(files, path)

    monkeypatch.setattr(ObjectFiles, "_content", replaced)
    with pytest.raises(CheckpointReplacedError):
        capturer.run()
    assert [entry.epoch for entry in capturer.manifest.entries] == [0, 1, 2]
