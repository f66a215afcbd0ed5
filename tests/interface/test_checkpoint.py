"""``Checkpoint``: what Spark owns, read without Spark from a recorded query of five epochs."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

import streamstate as ss
from streamstate.errors import InvalidArgumentError, NotACheckpointError
from streamstate.reports import CaptureReport, DoctorReport
from streamstate.snapshots.checkpoint.source_offsets import in_words


@pytest.fixture
def checkpoint(counted: tuple[Path, Path]) -> ss.Checkpoint:
    """The recorded checkpoint."""
    return ss.Checkpoint(counted[0])


def test_a_checkpoint_is_a_path(checkpoint: ss.Checkpoint, counted: tuple[Path, Path]) -> None:
    """It can be passed wherever a path can, and knows its identity."""
    assert Path(checkpoint) == counted[0]
    assert f"{checkpoint}" == os.fspath(checkpoint) == checkpoint.path == str(counted[0])
    assert checkpoint == ss.Checkpoint(str(counted[0])) == ss.Checkpoint(checkpoint)
    assert len({checkpoint, ss.Checkpoint(checkpoint)}) == 1
    assert (checkpoint.name, checkpoint.spark_version) == ("checkpoint", "4.3 or later")
    assert checkpoint.query_id == ss.open_store(counted[1])._lineage.branch("counts").query_id  # type: ignore[union-attr]
    assert checkpoint.original is None
    assert repr(checkpoint) == f"<Checkpoint {counted[0]}>"


def test_creating_one_reads_nothing(tmp_path: Path) -> None:
    """A query may start later; reading then says what is wrong."""
    missing = ss.Checkpoint(tmp_path / "none")
    for read in (missing.epochs, missing.operators, missing.doctor, lambda: missing.query_id):
        with pytest.raises(NotACheckpointError, match="is not the checkpoint of a streaming query"):
            read()


@pytest.mark.parametrize("where", [5, None, object()])
def test_something_else_is_refused(where: object) -> None:
    """The error says what would be right."""
    with pytest.raises(InvalidArgumentError, match="expected a path or URI, a running StreamingQuery, or another"):
        ss.Checkpoint(where)  # type: ignore[arg-type]


def test_epochs_with_their_offsets_in_words(checkpoint: ss.Checkpoint) -> None:
    """One row per epoch of the logs; the file source says how many files it has read."""
    epochs = checkpoint.epochs()
    assert epochs["epoch"].tolist() == [0, 1, 2, 3, 4]
    assert epochs["status"].unique().tolist() == ["committed"]
    assert epochs["sources"].tolist() == [{0: f"{number} file{'s' * (number > 1)}"} for number in range(1, 6)]
    assert epochs["committed_at"].notna().all()
    assert epochs["began_at"].is_monotonic_increasing


def test_an_epoch_that_was_only_begun(checkpoint: ss.Checkpoint, tmp_path: Path) -> None:
    """It is listed with what it will read."""
    copy = Path(shutil.copytree(checkpoint, tmp_path / "copy"))
    (copy / "commits" / "4").unlink()
    epochs = ss.Checkpoint(copy).epochs()
    assert epochs["status"].tolist() == ["committed"] * 4 + ["begun"]
    assert epochs["committed_at"].isna().tolist() == [False] * 4 + [True]


@pytest.mark.parametrize(
    ("offset", "words"),
    [
        (None, "nothing read yet"),
        (
            '{"flights":{"0":812,"10":7,"2":790}}',
            "flights: partition 0 at offset 812, partition 2 at offset 790, partition 10 at offset 7",
        ),
        ('{"gates":{},"lanes":{"0":1}}', "gates: no partitions; lanes: partition 0 at offset 1"),
        ('{"logOffset":3}', "files up to the source's batch 3"),
        ('{"sourceVersion":1,"reservoirId":"x","reservoirVersion":12,"index":3}', "table version 12, file 3"),
        ('{"reservoirId":"x","reservoirVersion":13,"index":-1,"isStartingVersion":false}', "table version 12"),
        ('{"reservoirId":"x","reservoirVersion":13,"index":-20}', "table version 12"),
        (
            '{"reservoirId":"x","reservoirVersion":2,"index":0,"isStartingVersion":true}',
            "snapshot of table version 2, file 0",
        ),
        ('{"reservoirId":"x","reservoirVersion":0,"index":-1}', "nothing read yet"),
        ('{"reservoirId":"x"}', '{"reservoirId":"x"}'),
        ("42", "offset 42"),
        ('["unknown"]', '["unknown"]'),
        ('{"logOffset":"x"}', '{"logOffset":"x"}'),
        ('{"gates":{"²":1}}', '{"gates":{"²":1}}'),
        ("no JSON", "no JSON"),
    ],
)
def test_offsets_in_words(offset: str | None, words: str) -> None:
    """Each kind of source is described in its own terms; an unknown one is shown as it is."""
    assert in_words(offset) == words


def test_operators(checkpoint: ss.Checkpoint, counted: tuple[Path, Path]) -> None:
    """One row per state table, by the names that the store has."""
    operators = checkpoint.operators()
    assert operators["table"].tolist() == ss.open_store(counted[1])["counts"].tables()
    assert operators[["operator", "name", "holds", "reads"]].iloc[0].tolist() == [
        0,
        "stateStoreSave",
        "one row per key",
        "changelog",
    ]


def test_the_doctor(checkpoint: ss.Checkpoint, counted: tuple[Path, Path]) -> None:
    """A report with a verdict on capture and on the next start."""
    found = checkpoint.doctor(counted[1])
    assert isinstance(found, DoctorReport)
    assert (found.can_capture, found.can_restart) == (True, True)
    assert found.store is not None
    assert found.store.name == "counts"


def test_capture_once(checkpoint: ss.Checkpoint, tmp_path: Path) -> None:
    """The folder names the query, unless it is named or the store has it already."""
    report = checkpoint.capture(tmp_path / "store", verify="never")
    assert isinstance(report, CaptureReport)
    assert (report.query, report.epochs) == ("checkpoint", (0, 1, 2, 3, 4))
    assert checkpoint.capture(tmp_path / "other", "delays", verify="never").query == "delays"
    again = checkpoint.capture(tmp_path / "other", verify="never")
    assert (again.query, again.epochs) == ("delays", ())


def test_follow_in_the_background(checkpoint: ss.Checkpoint, tmp_path: Path) -> None:
    """The capture is a handle."""
    capture = checkpoint.follow(tmp_path / "store", "delays", verify="never")
    assert capture.wait(4, timeout=300) == 4
    capture.stop()


def test_fork_knows_its_original(checkpoint: ss.Checkpoint, tmp_path: Path) -> None:
    """A fork is a checkpoint; so is its path."""
    fork = checkpoint.fork(tmp_path / "fork", at=2)
    assert isinstance(fork, ss.Checkpoint)
    assert (fork.epoch, fork.original, fork.path) == (2, checkpoint, str(tmp_path / "fork"))
    assert fork.query_id == ss.Checkpoint(tmp_path / "fork").query_id != checkpoint.query_id
    assert ss.Checkpoint(fork).original == checkpoint
    assert fork.epochs()["epoch"].max() == 2
    assert fork.linked_bytes > 0
    assert f"{fork!r}" == f"<Fork {fork} of {checkpoint} at epoch 2>"


def test_advice_on_partitions_finds_the_query_by_its_id(checkpoint: ss.Checkpoint, counted: tuple[Path, Path]) -> None:
    """The store's name of the query may be another one."""
    assert checkpoint.rescale_advice(counted[1], cores=2).facts.cores == 2
    assert checkpoint.rescale_advice(ss.open_store(counted[1]), cores=2).facts.cores == 2
