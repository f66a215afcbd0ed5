"""A checkpoint that only a server reaches is copied so that the copy is a valid checkpoint at any moment."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recorded.unpacked import CURRENT, unpacked

import streamstate as ss
from streamstate.errors import CaptureError, CheckpointError
from streamstate.operations.rescaling.rescale import rescale
from streamstate.snapshots.checkpoint.local_files import LocalFiles
from streamstate.snapshots.checkpoint.server_copy import CopiedCheckpoint, ServerFile, origin_of

ID = "7d1f7a8e-0000-4000-8000-000000000000"


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


class Server:
    """A folder that is listed and read as a server does it: one file after the other, while it changes."""

    server = "sc://elsewhere"

    def __init__(self, folder: Path, meanwhile: Callable[[], object] = lambda: None) -> None:
        self.root, self._folder, self.meanwhile = str(folder), folder, meanwhile
        self.listings, self.fetched = 0, 0

    def commits(self) -> frozenset[str] | None:
        """The commit log."""
        names = frozenset(self._names("commits")) if (self._folder / "metadata").exists() else None
        self.meanwhile()
        return names

    def listing(self) -> list[ServerFile]:
        """All files, folder by folder."""
        self.listings += 1
        found = []
        for folder in ("metadata", "state", "offsets", "sources", "commits"):  # the wrong order for a copy
            self.meanwhile()
            for name in self._names(folder):
                status = (self._folder / name).stat()
                found.append(ServerFile(name, status.st_size, status.st_mtime_ns // 1_000_000))
        return found

    def read(self, files: Collection[ServerFile]) -> Iterator[tuple[str, int, bytes]]:
        """The contents in pieces of 1,000 bytes."""
        for file in sorted(files, key=lambda file: file.name):
            self.meanwhile()
            if (self._folder / file.name).exists():
                content = (self._folder / file.name).read_bytes()
                self.fetched += len(content)
                for at in range(0, max(len(content), 1), 1000):
                    yield file.name, at, content[at : at + 1000]

    def _names(self, folder: str) -> list[str]:
        at = self._folder / folder
        paths = [at] if at.is_file() else sorted(path for path in at.rglob("*") if path.is_file())
        return [path.relative_to(self._folder).as_posix() for path in paths if not path.name.startswith(".")]


class Query:
    """Writes a checkpoint as Spark does, one file at a time: plans, state files, commits; and purges, logs first."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.first = folder, 0
        self._write("metadata", json.dumps({"id": ID}))
        self._steps = self._forever()

    def step(self) -> None:
        """Write or delete one file."""
        next(self._steps)

    def _forever(self) -> Iterator[None]:
        epoch = 0
        while True:
            for name in (f"offsets/{epoch}", *self._state(epoch), f"commits/{epoch}"):
                self._write(name, f"{name} " * 200)
                yield
            epoch += 1
            if epoch - self.first > 2:
                for name in (f"commits/{self.first}", f"offsets/{self.first}", *self._state(self.first)):
                    (self.folder / name).unlink()
                    yield
                self.first += 1

    @staticmethod
    def _state(epoch: int) -> tuple[str, str]:
        return f"state/0/0/{epoch + 1}.delta", f"state/0/1/{epoch + 1}.delta"

    def _write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def check(self, copy: CopiedCheckpoint) -> None:
        """Check that each commit in the copy has its plan and state there, unless the query has purged them."""
        for epoch in copy.committed():
            for name in (f"offsets/{epoch}", *self._state(epoch)):
                copied, original = Path(copy.path, name), self.folder / name
                assert copied.exists() or not original.exists(), f"commit {epoch} is there without {name}"
                assert not copied.exists() or copied.read_text() == f"{name} " * 200


class LostError(Exception):
    """The connection broke."""


@given(st.lists(st.sampled_from([0, 1, 2, 4, 5, 9, None]), min_size=40, max_size=80))
def test_a_commit_never_appears_without_its_state(pace: list[int | None]) -> None:
    """Whatever the query writes and purges between two calls, and wherever the copying is cut off (None)."""
    folder = Path(os.environ["XDG_CACHE_HOME"])
    shutil.rmtree(folder, ignore_errors=True)
    query, steps = Query(folder / "original" / "delays"), iter(pace)

    def meanwhile() -> None:
        query.check(copy)
        if (count := next(steps, 0)) is None:
            raise LostError
        for _ in range(count):
            query.step()

    server = Server(query.folder, meanwhile)
    copy = CopiedCheckpoint(server, ID)
    for _ in range(6):
        with contextlib.suppress(LostError, CaptureError):
            copy.refresh(quick=True)
        query.check(copy)
    for _ in steps:
        pass
    copy.refresh()
    assert {name for name in LocalFiles().tree(copy.path) if name[-1] != "/"} == set(server._names("."))


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recorded checkpoint."""
    return unpacked(CURRENT, tmp_path_factory.mktemp("server")) / "counted" / "checkpoint"


def test_the_copy_has_the_bytes_and_times_of_the_original(original: Path, tmp_path: Path) -> None:
    """A capture of it is that of the original; nothing is fetched twice."""
    query_id = ss.Checkpoint(original).query_id
    server = Server(original)
    copy = CopiedCheckpoint(server, query_id)
    copied = ss.Checkpoint(copy)
    report, expected = copied.capture(tmp_path / "store", "q"), ss.Checkpoint(original).capture(tmp_path / "there", "q")
    assert report.epochs == expected.epochs
    store, there = ss.open_store(tmp_path / "store")["q"], ss.open_store(tmp_path / "there")["q"]
    for epoch in report.epochs:
        assert store.at(epoch).table().to_pandas().equals(there.at(epoch).table().to_pandas())
    assert [*store.epochs()["committed_at"].dt.floor("ms")] == [*there.epochs()["committed_at"].dt.floor("ms")]
    fetched, listings = server.fetched, server.listings
    copied.doctor()
    assert server.fetched == fetched
    copy.refresh(quick=True)
    assert server.listings == listings + 1  # of the doctor


def test_a_copy_says_so(original: Path) -> None:
    """Calls that would change the original are refused; the copy outlives it."""
    server = Server(original)
    copy = CopiedCheckpoint(server, ss.Checkpoint(original).query_id)
    copied = ss.Checkpoint(copy)
    copied.epochs()
    there = f"{original} on the server sc://elsewhere"
    assert repr(copied) == f"<Checkpoint {copy.path}, a copy of {there}>"
    assert f"a copy of {there}" in str(ss.Checkpoint(copied.path).doctor())
    with pytest.raises(CheckpointError, match=r"is a copy of .* so it cannot be rescaled: only the server"):
        rescale(copied.path, 3)
    assert origin_of(str(original)) is None
    assert origin_of(f"{copy.path}-2") is None
    server._folder = original / "gone"
    assert len(copied.epochs()) == len(ss.Checkpoint(original).epochs())


def test_neither_side_has_it(tmp_path: Path) -> None:
    """The error names the path and both sides."""
    copy = CopiedCheckpoint(Server(tmp_path / "nothing"), ID)
    with pytest.raises(CheckpointError, match=r"/nothing cannot be read: this machine .* server sc://elsewhere does"):
        copy.refresh()


def test_a_checkpoint_that_changes_each_time_is_tried_again(tmp_path: Path) -> None:
    """A pass gives up after some rounds; no commit was added."""
    query = Query(tmp_path / "delays")
    server = Server(query.folder)

    def rewrite() -> None:
        path = query.folder / "metadata"
        path.write_text(path.read_text() + " ")

    server.meanwhile = rewrite
    copy = CopiedCheckpoint(server, ID)
    with pytest.raises(CaptureError, match="changed each time it was copied"):
        copy.refresh()
    assert copy.committed() == []


def test_two_processes_share_a_copy(tmp_path: Path) -> None:
    """One that began with an older list of commits removes none that the other has added."""
    query = Query(tmp_path / "delays")
    server, later = Server(query.folder), CopiedCheckpoint(Server(query.folder), ID)
    copy = CopiedCheckpoint(server, ID)
    added: list[int] = []

    def commit(epoch: int) -> None:
        while not (query.folder / "commits" / str(epoch)).exists():
            query.step()

    def meanwhile() -> None:
        if not added:
            commit(1)
            later.refresh()
            added.extend([0, 1])
        assert copy.committed() == added

    copy.refresh()
    commit(0)
    server.meanwhile = meanwhile
    copy.refresh(quick=True)
    assert copy.committed() == added
