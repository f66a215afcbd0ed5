"""``Checkpoint.check`` and replays of a damaged checkpoint: the file is named, and the way out leads on."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from recorded.restarts import NEXT, add_input, configured, query_of, restarts, rows, run
from sampling import sampled

import streamstate as ss
from damage.kinds import damaged, deleted
from damage.spark import committed
from streamstate.errors import DamagedCheckpointError, EpochGoneError
from streamstate.operations.code_check import CheckReport
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.checkpoint.damage.next_start import next_start

Build = Callable[[], DataFrame]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The recorded checkpoints, and the next file of their input."""
    folder = restarts(tmp_path_factory.mktemp("restarts"))
    for source in (folder / "input").iterdir():
        add_input(source, NEXT)
    return folder


def builds(spark: SparkSession, recorded: Path, checkpoint: str) -> Build:
    """The query of a recorded checkpoint."""
    query = query_of(checkpoint)
    reader = spark.readStream.schema("id string, v long").option("maxFilesPerTrigger", 1)
    return lambda: query.build(reader.json(str(recorded / "input" / str(query.epochs))))


def kinds(report: CheckReport, level: str) -> list[str]:
    """The findings of a level, as kinds and changes."""
    return [f"{finding.kind}: {finding.change}" for finding in report.findings if finding.level == level]


def test_a_damaged_file_is_refused(spark: SparkSession, recorded: Path, tmp_path: Path) -> None:
    """It is the only finding that matters: nothing is planned, nor rehearsed."""
    build = builds(spark, recorded, "HDFS/plain")
    for number, (kind, file) in enumerate(
        (
            ("newest state deleted", "state/0/1/6.delta is missing."),
            ("commits/5 emptied", "commits/5 is empty."),
            ("offsets/6 empty", "offsets/6 is empty."),
            ("offsets/4 deleted", "offsets/4 is missing."),
            ("metadata halved", "metadata has no id of a query."),
            ("schema emptied", "state/0/0/_metadata/schema is empty."),
        )
    ):
        report = ss.Checkpoint(damaged(kind, recorded / "HDFS/plain", tmp_path / str(number))).check(build, replay=1)
        assert not report.ok
        assert kinds(report, "refused") == [f"damaged: {file}"]
        assert not kinds(report, "changed")
        assert report.replayed == ()


def test_code_without_state_reads_no_state(spark: SparkSession, recorded: Path, tmp_path: Path) -> None:
    """A query that was restarted with stateless code goes on; with the old code it does not."""
    checkpoint = damaged("state ends at version 3", recorded / "HDFS/plain", tmp_path / "c")
    stateful = builds(spark, recorded, "HDFS/plain")
    refused = kinds(ss.Checkpoint(checkpoint).check(stateful), "refused")
    assert len(refused) == 1
    assert refused[0].startswith("damaged: state ends at epoch 2, but epochs 3 to 5 are committed")
    stateless = ss.Checkpoint(checkpoint).check(builds(spark, recorded, "HDFS/stateless"), mode="append")
    assert "damaged" not in {finding.kind for finding in stateless.findings}
    assert "damaged_unread" in {finding.kind for finding in stateless.findings}


def test_a_rehearsal_begins_after_what_is_damaged(spark: SparkSession, recorded: Path, tmp_path: Path) -> None:
    """The report says which file keeps it from beginning earlier; Spark is not asked to read it."""
    checkpoint = damaged("state 3 deleted", recorded / "HDFS/snapshot", tmp_path / "c")
    report = ss.Checkpoint(checkpoint).check(builds(spark, recorded, "HDFS/snapshot"), replay=4)
    assert report.replayed == (4, 5)
    shorter = next(finding for finding in report.findings if finding.kind == "replay_shorter")
    assert shorter.effect == "The state of epoch 2 cannot be read: state/0/1/3.delta is missing."


def test_a_fork_at_a_damaged_epoch(recorded: Path, tmp_path: Path) -> None:
    """It says which file is missing, and does not speak of a purge."""
    checkpoint = damaged("newest state deleted", recorded / "HDFS/plain", tmp_path / "c")
    with pytest.raises(
        EpochGoneError, match=r"epoch 5 of .* is damaged: state/0/1/6\.delta is missing\.\nFork at a comp"
    ):
        ss.Checkpoint(checkpoint).fork(tmp_path / "f")
    assert ss.Checkpoint(checkpoint).fork(tmp_path / "f", at=4).epoch == 4


def totals(spark: SparkSession, checkpoint: Path) -> dict[str, int]:
    """The newest state."""
    state = spark.read.format("statestore").load(str(checkpoint))
    return {row.key.id: row.value[0] for row in state.collect()}


def expected() -> dict[str, int]:
    """Return the result of a batch over all of the input."""
    found: dict[str, int] = {}
    for epoch in (*range(6), NEXT):
        for row in rows(epoch):
            found[row["id"]] = found.get(row["id"], 0) + row["v"]
    return found


@pytest.mark.slow
@pytest.mark.parametrize("kind", sampled(["offsets/5 halved", "offsets/4 deleted"], 1))
def test_a_fork_makes_up_for_a_plan(spark: SparkSession, recorded: Path, tmp_path: Path, kind: str) -> None:
    """At the newest epoch that is whole: the plan before it is asked for, and need not be there."""
    name = "HDFS/plain"
    spark = configured(spark, name)
    checkpoint = damaged(kind, recorded / name, tmp_path / "c")
    whole = next_start(CheckpointFiles(checkpoint)).whole
    assert whole == (5 if kind == "offsets/4 deleted" else 4)
    ss.Checkpoint(checkpoint).fork(tmp_path / "fork", at=whole)
    run(spark, name, recorded / "input/6", tmp_path / "fork", trigger={"availableNow": True}).awaitTermination()
    assert totals(spark, tmp_path / "fork") == expected()


@pytest.mark.slow
@pytest.mark.parametrize("name", sampled(["HDFS/plain", "changelog-2/plain"], 1))
def test_the_ways_out_lead_on(spark: SparkSession, recorded: Path, tmp_path: Path, name: str) -> None:
    """From a fork at the newest whole epoch, or from the store, the query goes on as if nothing had been lost."""
    spark = configured(spark, name)
    source = recorded / "input/6"
    checkpoint = damaged("newest state deleted", recorded / name, tmp_path / "c")
    with pytest.raises(DamagedCheckpointError):
        ss.Checkpoint(checkpoint).capture(tmp_path / "s", "q")
    ss.Checkpoint(checkpoint).fork(tmp_path / "fork", at=4)
    ss.open_store(tmp_path / "s")["q"].at(4).restore(to=tmp_path / "restored", spark=spark)
    for started in (tmp_path / "fork", tmp_path / "restored"):
        run(spark, name, source, started, trigger={"availableNow": True}).awaitTermination()
        assert totals(spark, started) == expected()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["commits/5 emptied", "offsets/6 empty", "metadata halved"])
def test_what_is_advised_leads_on(spark: SparkSession, recorded: Path, kind: str) -> None:
    """Deleting a torn commit, or a torn plan that was not committed; writing the metadata again."""
    name = "HDFS/plain"
    spark = configured(spark, name)
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = damaged(kind, recorded / name, Path(folder) / "c")
        deleted(checkpoint / kind.partition(" ")[0])
        if kind.startswith("metadata"):
            (checkpoint / "metadata").write_text('{"id": "59d5f2eb-1d0b-4660-a0a7-62d2c44104cd"}')
        query: Any = run(spark, name, recorded / "input/6", checkpoint, trigger={"availableNow": True})
        query.awaitTermination()
        assert committed(checkpoint)[-1] == 6
        assert totals(spark, checkpoint) == expected()
        shutil.rmtree(checkpoint)
