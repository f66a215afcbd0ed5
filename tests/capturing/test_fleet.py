"""Many queries captured in one process, on a few threads."""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fleet_checkpoints import commit, copies

import streamstate as ss
from streamstate.errors import InvalidArgumentError, NotAStoreError
from streamstate.snapshots.capture import follow
from streamstate.snapshots.capture.epoch_commit import CaptureReport
from streamstate.snapshots.capture.fleet import Fleet
from streamstate.snapshots.capture.shared_threads import SharedThreads
from streamstate.snapshots.store.delta import commits
from streamstate.snapshots.store.delta.place import Place

ALL = [0, 1, 2, 3, 4]


@pytest.fixture
def recorded(counted: tuple[Path, Path]) -> Path:
    """The recorded checkpoint."""
    return counted[0]


@pytest.fixture
def root(recorded: Path, tmp_path: Path) -> Path:
    """Five checkpoints in two folders."""
    copies(recorded, tmp_path / "root", ["a/one", "a/two", "b/three", "b/four", "b/five"])
    return tmp_path / "root"


def until(condition: Callable[[], bool], seconds: float = 60) -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        threading.Event().wait(0.01)


def capture_threads() -> Iterator[threading.Thread]:
    """The threads that capture."""
    return (thread for thread in threading.enumerate() if thread.name.startswith("streamstate-capture"))


def test_all_checkpoints_below_a_folder_are_captured(root: Path, recorded: Path, tmp_path: Path) -> None:
    """Once, with one commit to the table of queries; each query has the state that a capture by itself gives it."""
    report = ss.checkpoints(root).capture(tmp_path / "store", verify="never")
    assert [query.query for query in report.reports] == ["five", "four", "one", "three", "two"]
    assert {query.epochs for query in report.reports} == {(0, 1, 2, 3, 4)}
    assert report.failed == {}
    store = ss.open_store(tmp_path / "store")
    ss.Checkpoint(recorded).capture(tmp_path / "alone", "alone", verify="never")
    alone = ss.open_store(tmp_path / "alone")["alone"]
    for epoch in ALL:
        assert all(
            store[name].at(epoch).table().to_arrow().equals(alone.at(epoch).table().to_arrow()) for name in store
        )
    assert store.layout.queries.folder is not None
    assert len(list(store.layout.queries.folder.glob("*.parquet"))) == 1
    again = ss.checkpoints(root).capture(tmp_path / "store", verify="never")
    assert [query.epochs for query in again.reports] == [()] * 5
    assert {query.committed for query in again.reports} == {4}


def test_one_that_fails_does_not_stop_the_others(root: Path, tmp_path: Path) -> None:
    """Its error is in the report; those of others are captured."""
    (root / "a/one/offsets/4").unlink()  # it is a link
    (root / "a/one/offsets/4").write_text("no plan")
    shutil.copytree(root / "a/two", root / "backup")
    (root / "b/four/metadata").write_text("{}")
    report = ss.checkpoints(root).capture(tmp_path / "store", verify="never")
    assert sorted(Path(path).name for path in report.failed) == ["backup", "four", "one"]
    assert "is a copy of" in report.failed[str(root / "backup")]
    assert "offsets/4 does not match" in report.failed[str(root / "a/one")]
    store = ss.open_store(tmp_path / "store")
    assert [store[name].captured() for name in ("five", "three", "two")] == [ALL] * 3


def test_the_number_of_threads_does_not_depend_on_that_of_queries(recorded: Path, tmp_path: Path) -> None:
    """Twenty queries are followed by as many threads as two; none remains."""
    before = set(capture_threads())
    for many in (2, 20):
        copies(recorded, tmp_path / str(many), [f"q{number}" for number in range(many)])
        fleet = ss.checkpoints(tmp_path / str(many)).follow(tmp_path / f"store{many}", verify="never")
        assert len(set(capture_threads()) - before) == 2
        fleet.wait(timeout=300)
        assert {status.epoch for status in fleet.status.values()} == {4}
        fleet.stop()
        assert {status.state for status in fleet.status.values()} == {"stopped"}
        assert set(capture_threads()) == before


def test_new_epochs_and_new_checkpoints_are_taken_up(recorded: Path, tmp_path: Path) -> None:
    """Those that are gone are left; a failed one is tried again."""
    root = tmp_path / "root"
    one, bad = copies(recorded, root, ["one", "bad"], committed=3)
    metadata = (bad / "metadata").read_text()
    (bad / "metadata").write_text("{}")
    outcomes: list[tuple[str, object]] = []
    fleet = Fleet(
        lambda: [*ss.checkpoints(root)],
        tmp_path / "store",
        verify="never",
        look_seconds=0.05,
        on_pass=lambda name, outcome: outcomes.append((name, outcome)),
    )
    try:
        fleet.wait(timeout=300)
        assert (list(fleet.status), list(fleet.failed)) == (["one"], [str(bad)])
        commit(recorded, one, 3)
        until(lambda: fleet.status["one"].epoch == 3)
        (bad / "metadata").write_text(metadata)
        copies(recorded, root, ["later"])
        until(lambda: {name: status.epoch for name, status in fleet.status.items()} == {"bad": 2, "later": 4, "one": 3})
        assert fleet.failed == {}
        shutil.rmtree(one)
        until(lambda: "one" not in fleet.status)
    finally:
        fleet.stop()
    assert any(name == str(bad) and isinstance(outcome, Exception) for name, outcome in outcomes)
    assert {name for name, outcome in outcomes if isinstance(outcome, CaptureReport)} == {"bad", "later", "one"}
    assert ss.open_store(tmp_path / "store")["one"].captured() == [0, 1, 2, 3]


def test_the_first_epoch_after_a_start_opens_no_table(
    recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While no epoch waits, a capture reads what the next one needs of the store."""
    (path,) = copies(recorded, tmp_path / "root", ["one"], committed=3)
    ss.checkpoints(tmp_path / "root").capture(tmp_path / "store", verify="never")
    fleet = ss.checkpoints(tmp_path / "root").follow(tmp_path / "store", verify="never")
    try:
        (capture,) = fleet.captures
        until(lambda: capture._ready)
        opened: list[Place] = []
        monkeypatch.setattr(commits, "open_table", opened.append)
        commit(recorded, path, 3)
        capture.wait(3, timeout=300)
        assert opened == []
    finally:
        monkeypatch.undo()
        fleet.stop()
    assert ss.open_store(tmp_path / "store")["one"].captured() == [0, 1, 2, 3]


def test_memory_is_freed_between_passes(recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a capture holds for its next pass is read again then; nothing is captured twice, or lost."""
    monkeypatch.setattr(follow, "_SHARED_TIDY", 1)
    monkeypatch.setattr(follow, "_TIDY_PAUSE", 0.0)
    (path,) = copies(recorded, tmp_path / "root", ["one"], committed=1)
    fleet = ss.checkpoints(tmp_path / "root").follow(tmp_path / "store", verify="never")
    for epoch in range(1, 5):
        fleet.wait(timeout=300)
        until(lambda: not fleet.captures[0]._capturer.manifest.entries)
        commit(recorded, path, epoch)
    fleet.wait(timeout=300)
    assert fleet.status["one"].behind == 0
    fleet.stop()
    assert ss.open_store(tmp_path / "store")["one"].captured() == ALL


def test_a_query_that_waits_for_its_first_epoch(recorded: Path, tmp_path: Path) -> None:
    """It is registered with its first epoch, as by a capture of its own."""
    one, empty = copies(recorded, tmp_path / "root", ["one", "empty"])
    for epoch in ALL:
        (empty / "commits" / str(epoch)).unlink()
    fleet = ss.checkpoints(tmp_path / "root").follow(tmp_path / "store", verify="never")
    fleet.wait(timeout=300)
    assert {name: status.state for name, status in fleet.status.items()} == {"empty": "waiting", "one": "running"}
    assert ss.open_store(tmp_path / "store").queries() == ["one"]
    commit(recorded, empty, 0)
    until(lambda: fleet.status["empty"].epoch == 0)
    fleet.stop()
    assert json.loads((one / "metadata").read_text())["id"] == fleet.captures[1].query_id


def test_errors_of_the_call_itself_are_raised(root: Path, tmp_path: Path) -> None:
    """The store is in a checkpoint, or an argument is invalid; no thread is left."""
    with pytest.raises(NotAStoreError):
        ss.checkpoints(root).follow(root / "a/one/store")
    with pytest.raises(InvalidArgumentError):
        ss.checkpoints(root).follow(tmp_path / "store", every=0)
    with pytest.raises(InvalidArgumentError):
        ss.checkpoints(root).capture(tmp_path / "store", verify="some")  # type: ignore[arg-type]
    assert not list(capture_threads())


class Member:
    """Work whose turns are counted."""

    def __init__(self, *pauses: float | None) -> None:
        self.pauses = [*pauses]
        self.turns: list[float] = []

    def turn(self) -> float | None:
        """Take the next pause."""
        self.turns.append(time.monotonic())
        return self.pauses.pop(0)


def test_threads_run_what_is_due_first() -> None:
    """A member whose turn returns None has ended; one that is woken has its turn at once."""
    threads = SharedThreads("streamstate-test", 2)
    soon, late, once = Member(0.01, 0.01, None), Member(600.0, None), Member(None)
    for member in (late, soon, once):
        threads.add(member)
    until(lambda: len(threads) == 1)
    assert (len(soon.turns), len(late.turns), len(once.turns)) == (3, 1, 1)
    threads.wake(late)
    until(lambda: len(threads) == 0)
    assert len(late.turns) == 2
    threads.wake(late)  # it has ended
    threads.close()
    assert len(late.turns) == 2
