"""Capture of a damaged checkpoint: intact epochs are captured, and the error names the file, at once, without Spark."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest
from recorded.restarts import restarts

import streamstate as ss
from damage.kinds import KINDS, damaged, deleted
from streamstate.command_line import main
from streamstate.errors import DamagedCheckpointError, NoStateError
from streamstate.state_inspect import History

SECONDS = 25.0
"""More than it takes on a busy machine, less than Spark's retries."""
EVERYTHING = (0, 1, 2, 3, 4, 5)
REFUSED = {
    # kind and checkpoint: the epochs that are captured, and what the error says.
    ("newest state deleted", "HDFS/plain"): ((0, 1, 2, 3, 4), "from epoch 5 on: state/0/1/6.delta is missing"),
    ("newest state emptied", "HDFS/plain"): ((0, 1, 2, 3, 4), "from epoch 5 on: state/0/1/6.delta is empty"),
    ("newest state halved silently", "HDFS/plain"): ((0, 1, 2, 3, 4), "epoch 5 on: state/0/1/6.delta ends within"),
    ("newest state with a flipped bit", "HDFS/plain"): (
        (0, 1, 2, 3, 4),
        "epoch 5 on: state/0/1/6.delta does not match",
    ),
    ("newest state emptied silently", "changelog-2/plain"): ((0, 1, 2, 3, 4), "from epoch 5 on: state/0/1/6_"),
    ("newest state deleted", "RocksDB/plain"): ((0, 1, 2, 3, 4), "from epoch 5 on: state/0/1/6.zip is missing"),
    ("data of RocksDB emptied", "RocksDB/plain"): ((0, 1, 2, 3), "from epoch 4 on: state/0/1/SSTs/"),
    ("state 5 deleted", "HDFS/plain"): ((0, 1, 2, 3), "from epoch 4 on: state/0/1/5.delta is missing"),
    ("state 5 deleted", "changelog-1/plain"): ((0, 1, 2, 3), "from epoch 4 on: state/0/1/5.changelog is missing"),
    ("partition gone", "HDFS/plain"): ((), "from epoch 0 on: state/0/1/1.delta is missing"),
    ("state ends at version 3", "HDFS/plain"): ((0, 1, 2), "from epoch 3 on: state ends at epoch 2, but epochs 3 to 5"),
    ("no state file", "HDFS/plain"): ((), "from epoch 0 on: state has no file of any epoch"),
    ("commits/5 emptied", "HDFS/plain"): ((0, 1, 2, 3, 4), "from epoch 5 on: commits/5 is empty"),
    ("commits/5 halved silently", "changelog-2/plain"): ((0, 1, 2, 3, 4), "from epoch 5 on: commits/5 ends within"),
    ("offsets/5 halved silently", "HDFS/plain"): ((0, 1, 2, 3, 4), "from epoch 5 on: offsets/5 ends within"),
    ("offsets/5 deleted", "HDFS/plain"): ((0, 1, 2, 3, 4), "from epoch 5 on: offsets/5 is missing"),
    ("schema emptied", "HDFS/plain"): ((), "state/0/0/_metadata/schema is empty"),
    ("schema halved silently", "changelog-2/plain"): ((), "state/0/0/_metadata/schema"),
    ("schema emptied, operator metadata deleted", "HDFS/plain"): ((), "state/0/0/_metadata/schema is empty"),
    ("operator metadata emptied", "HDFS/plain"): ((), "state/0/_metadata/metadata is empty"),
    ("metadata halved", "HDFS/plain"): ((), "metadata has no id of a query"),
    ("state/ gone", "changelog-2/plain"): ((), "state is missing"),
}
LEFT_OUT = {
    # kind and checkpoint: the epochs that are captured, and what the report says about the others.
    ("state 3 deleted", "HDFS/snapshot"): ((0, 1, 3, 4, 5), "Epoch 2 is lost: state/0/1/3.delta is missing"),
    ("state 3 emptied silently", "changelog-1/snapshot"): ((0, 1, 3, 4, 5), "Epoch 2 is lost: state/0/1/3.changelog"),
    ("offsets/3 emptied", "HDFS/plain"): ((0, 1, 2, 4, 5), "Epoch 3 is lost: offsets/3 is empty"),
    ("commits/4 emptied", "changelog-2/plain"): ((0, 1, 2, 3, 5), "Epoch 4 is lost: commits/4 is empty"),
}
UNHARMED = [
    ("nothing", "HDFS/plain"),
    ("offsets/6 empty", "HDFS/plain"),
    ("offsets/6 torn", "changelog-2/plain"),
    ("commits/4 emptied", "HDFS/plain"),
    ("newest checksum of Hadoop garbled", "changelog-1/plain"),
    ("snapshot halved silently", "HDFS/snapshot"),
    ("zip halved silently", "changelog-1/snapshot"),
    ("sources/0/5 halved", "HDFS/plain"),
]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The recorded checkpoints."""
    return restarts(tmp_path_factory.mktemp("restarts"))


def history(store: Path) -> History | None:
    """Return the query's history; None if the store has no query."""
    return ss.open_store(store)["q"] if (store / "_queries").exists() else None


@pytest.mark.parametrize("case", REFUSED, ids=" in ".join)
def test_the_error_names_the_file(recorded: Path, tmp_path: Path, case: tuple[str, str]) -> None:
    """The file, the first epoch that cannot be read, what was captured, and what to do; so does the next."""
    captured, text = REFUSED[case]
    checkpoint = damaged(case[0], recorded / case[1], tmp_path / "c")
    for _ in range(2):
        began = time.monotonic()
        with pytest.raises(DamagedCheckpointError) as raised:
            ss.Checkpoint(checkpoint).capture(tmp_path / "s", "q")
        assert time.monotonic() - began < SECONDS
        assert text in str(raised.value)
        kept = history(tmp_path / "s")
        assert tuple(kept.captured() if kept else ()) == captured
        assert not captured or f"Epochs 0 to {captured[-1]} are captured." in str(raised.value)


@pytest.mark.parametrize("case", LEFT_OUT, ids=" in ".join)
def test_epochs_after_a_damaged_one_are_captured(recorded: Path, tmp_path: Path, case: tuple[str, str]) -> None:
    """If their state is whole. The damaged one is a gap, and the report says why."""
    captured, text = LEFT_OUT[case]
    report = ss.Checkpoint(damaged(case[0], recorded / case[1], tmp_path / "c")).capture(tmp_path / "s", "q")
    assert (report.epochs, report.gaps) == (captured, tuple(sorted({*EVERYTHING} - {*captured})))
    assert len(report.damaged) == 1
    assert text in report.damaged[0]
    assert rows(tmp_path / "s") == rows_of(recorded / case[1], tmp_path / "whole")


@pytest.mark.parametrize("case", UNHARMED, ids=" in ".join)
def test_what_capture_does_not_read_does_not_matter(recorded: Path, tmp_path: Path, case: tuple[str, str]) -> None:
    """Such as a plan that was never committed."""
    report = ss.Checkpoint(damaged(case[0], recorded / case[1], tmp_path / "c")).capture(tmp_path / "s", "q")
    assert (report.epochs, report.gaps, report.damaged) == (EVERYTHING, (), ())
    assert rows(tmp_path / "s") == rows_of(recorded / case[1], tmp_path / "whole")


def rows(store: Path) -> list[dict[str, object]]:
    """The newest rows of a store."""
    return sorted(ss.open_store(store)["q"].at(5).table().to_arrow().to_pylist(), key=repr)


def rows_of(checkpoint: Path, store: Path) -> list[dict[str, object]]:
    """The newest rows of a checkpoint that is whole."""
    ss.Checkpoint(checkpoint).capture(store, "q")
    return rows(store)


def test_the_way_out(recorded: Path, tmp_path: Path) -> None:
    """State is restored from a backup, or the query goes on from the newest captured epoch; a commit is deleted."""
    checkpoint = damaged("newest state deleted", recorded / "HDFS/plain", tmp_path / "c")
    with pytest.raises(
        DamagedCheckpointError, match=r"Restore the file from a backup\. Epochs 0 to 4 .*--at 4 --to PATH"
    ):
        ss.Checkpoint(checkpoint).capture(tmp_path / "s", "q")
    checkpoint = damaged("commits/5 emptied", recorded / "HDFS/plain", tmp_path / "c2")
    with pytest.raises(DamagedCheckpointError, match=r"Delete it, .*: Spark then runs epoch 5 again\. .*captured\.\n"):
        ss.Checkpoint(checkpoint).capture(tmp_path / "s2", "q")


def test_capture_goes_on_once_the_file_is_back(recorded: Path, tmp_path: Path) -> None:
    """From a backup; nothing is missing then."""
    checkpoint = damaged("state 5 deleted", recorded / "HDFS/plain", tmp_path / "c")
    with pytest.raises(DamagedCheckpointError):
        ss.Checkpoint(checkpoint).capture(tmp_path / "s", "q")
    shutil.copy(recorded / "HDFS/plain/state/0/1/5.delta", checkpoint / "state/0/1/5.delta")
    report = ss.Checkpoint(checkpoint).capture(tmp_path / "s", "q")
    assert (report.epochs, report.gaps) == ((4, 5), ())
    assert rows(tmp_path / "s") == rows_of(recorded / "HDFS/plain", tmp_path / "whole")


def test_what_spark_has_purged_is_no_damage(recorded: Path, tmp_path: Path) -> None:
    """It purges the oldest epochs, also while they are read: then they are a gap, and nothing is said of damage."""
    checkpoint = Path(shutil.copytree(recorded / "HDFS/snapshot", tmp_path / "c"))
    for version in (1, 2, 3):
        for partition in (0, 1):
            deleted(checkpoint / f"state/0/{partition}/{version}.delta")
    report = ss.Checkpoint(checkpoint).capture(tmp_path / "s", "q")
    assert (report.epochs, report.gaps, report.damaged) == ((3, 4, 5), (0, 1, 2), ())


def test_nothing_is_committed_yet(recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Capture says so, rather than that it is up to date."""
    checkpoint = Path(shutil.copytree(recorded / "HDFS/plain", tmp_path / "c"))
    shutil.rmtree(checkpoint / "commits")
    assert main(["capture", str(checkpoint), "--store", str(tmp_path / "s"), "--name", "q"]) == 0
    assert capsys.readouterr().out == "q: no epoch is committed yet\n"


def test_a_folder_of_state_that_is_gone(recorded: Path, tmp_path: Path) -> None:
    """It may have been deleted, or the query may keep no state: nothing in the checkpoint says which."""
    for name in ("HDFS/stateless", "HDFS/plain"):
        checkpoint = damaged("state/ gone" if name == "HDFS/plain" else "nothing", recorded / name, tmp_path / name)
        with pytest.raises(
            NoStateError, match=r"no folder state/: its query keeps no state, or the folder was deleted"
        ):
            ss.Checkpoint(checkpoint).capture(tmp_path / "s", "q")
    assert not (tmp_path / "s").exists()


def test_a_follower_waits_until_the_file_is_back(recorded: Path, tmp_path: Path) -> None:
    """Its status says what is damaged."""
    checkpoint = damaged("newest state deleted", recorded / "HDFS/plain", tmp_path / "c")
    errors: list[object] = []
    capture = ss.Checkpoint(checkpoint).follow(tmp_path / "s", "q", on_pass=errors.append)
    try:
        capture.wait(4, timeout=300)
        deadline = time.monotonic() + 60
        while capture.status.error is None and time.monotonic() < deadline:
            assert capture.status.state == "running"
        assert capture.status.error is not None
        assert "from epoch 5 on: state/0/1/6.delta is missing" in capture.status.error
        shutil.copy(recorded / "HDFS/plain/state/0/1/6.delta", checkpoint / "state/0/1/6.delta")
        assert capture.wait(5, timeout=300) == 5
        assert capture.status.error is None
    finally:
        capture.stop(catch_up=False)


def test_a_torn_plan_does_not_stop_a_follower(recorded: Path, tmp_path: Path) -> None:
    """Neither one that is there when it starts, nor one that a driver leaves later."""
    checkpoint = damaged("offsets/6 empty", recorded / "HDFS/plain", tmp_path / "c")
    with_stop = ss.Checkpoint(checkpoint).follow(tmp_path / "s", "q")
    assert with_stop.wait(5, timeout=300) == 5
    with_stop.stop()
    assert (with_stop.status.state, with_stop.status.error) == ("stopped", None)


def test_the_kinds_are_known() -> None:
    """Each is one of the table."""
    assert {kind for kind, _ in (*REFUSED, *LEFT_OUT, *UNHARMED)} <= {*KINDS}
