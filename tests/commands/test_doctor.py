"""``streamstate doctor`` says what capturing a checkpoint costs and what to change, from its files alone."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from oracle import listed_sources
from pyspark.sql import SparkSession
from recorded.unpacked import VERSIONS, unpacked

import streamstate as ss
from streamstate.command_line import main
from streamstate.operations.checkup import examine
from streamstate.operations.checkup.state_tables import table_readings
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.spark.state_reader import StateReader


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The recorded checkpoints, a folder for each version of Spark."""
    return {version: unpacked(version, tmp_path_factory.mktemp("recorded")) for version in VERSIONS}


def with_offsets(checkpoint: Path, folder: Path, epochs: range, seconds: float) -> str:
    """A copy of a checkpoint whose logs have other epochs, planned at a regular pace."""
    copy = Path(shutil.copytree(checkpoint, folder))
    version, head, *sources = (checkpoint / "offsets" / "0").read_text().splitlines()
    commit = (checkpoint / "commits" / "0").read_text()
    for log in ("offsets", "commits"):
        shutil.rmtree(copy / log)
        (copy / log).mkdir()
    for epoch in epochs:
        planned = json.loads(head) | {"batchTimestampMs": 1_700_000_000_000 + int(1000 * seconds * epoch)}
        (copy / "offsets" / str(epoch)).write_text("\n".join([version, json.dumps(planned), *sources]))
        (copy / "commits" / str(epoch)).write_text(commit)
    return str(copy)


def settings(found: Any) -> dict[str, str]:
    """The settings that a checkup suggests."""
    return dict(finding.setting for finding in found.findings if finding.setting)


@pytest.mark.parametrize(
    ("version", "provider", "query", "written_by", "tables"),
    [
        ("3.4", "HDFS", "aggregation", "before 4.0", ["op0"]),
        ("3.5", "RocksDB-with-changelog", "session-window", "before 4.0", ["op0"]),
        ("4.0", "RocksDB-with-changelog", "two-operators", "4.0 or 4.1", ["op0", "op1"]),
        ("4.2", "RocksDB-with-changelog", "left-outer-join", "4.2", ["op0_left", "op0_right"]),
        ("4.2", "RocksDB-format-2", "aggregation", "4.2", ["op0"]),
    ],
)
def test_a_checkpoint_with_changes(
    recorded: dict[str, Path], version: str, provider: str, query: str, written_by: str, tables: list[str]
) -> None:
    """Its tables are read by their changes, and nothing has to change."""
    found = examine(recorded[version] / provider / query)
    assert found.spark == written_by
    assert found.provider == provider.split("-", maxsplit=1)[0]
    assert found.checkpoint_format == ("2" if provider.endswith("2") else "1")
    assert [(table.table, table.reads) for table in found.tables] == [(name, "changelog") for name in tables]
    assert not found.has("warning")


def test_rocksdb_without_a_changelog(recorded: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    """Whole states are read; the setting that changes this is printed as a line of Python. The status is 3."""
    assert main(["doctor", str(recorded["3.5"] / "RocksDB" / "left-outer-join")]) == 3
    text = capsys.readouterr().out
    assert "op0_left   symmetricHashJoin: reads whole state, because: RocksDB writes no changelog" in text
    setting = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
    assert f'    spark.conf.set("{setting}", "true")' in text


def test_the_report_as_json(recorded: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    """One object with the fields that the help lists."""
    checkpoint = recorded["4.2"] / "HDFS" / "aggregation"
    assert main(["doctor", str(checkpoint), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    with pytest.raises(SystemExit):
        main(["doctor", "--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert f"one object: {', '.join(found)}" in text
    assert (found["checkpoint"], found["first_epoch"], found["last_epoch"]) == (str(checkpoint), 0, 3)


def test_epochs_of_a_checkpoint_with_offsets_in_words(
    counted: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """The rows of ``Checkpoint.epochs``, as the help lists them; ``--json`` also has the sources' own offsets."""
    assert main(["epochs", str(counted[0])]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["epoch", "status", "began_at", "committed_at", "watermark", "partitions", "sources"]
    assert [line.split()[:2] for line in lines[-5:]] == [[str(epoch), "committed"] for epoch in range(5)]
    assert lines[-1].endswith("5 files")
    assert main(["epochs", str(counted[0]), "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["sources"] for row in rows] == [{"0": f"{number} file{'s' * (number > 1)}"} for number in range(1, 6)]
    assert json.loads(rows[0]["offsets"][0]) == {"logOffset": 0}
    with pytest.raises(SystemExit):
        main(["epochs", "--help"])
    assert f"an object for each row: {', '.join(rows[0])}" in " ".join(capsys.readouterr().out.split())


def test_sources_have_their_names_if_there_are_several(
    recorded: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """Or their places in the query if they have no names."""
    assert main(["epochs", str(recorded["4.2"] / "RocksDB-with-changelog" / "left-outer-join")]) == 0
    assert re.search(r"0: \S.*; 1: \S", capsys.readouterr().out)


@pytest.mark.parametrize("command", ["doctor", "epochs"])
def test_a_path_without_a_checkpoint_is_an_error(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The status is 1."""
    assert main([command, str(tmp_path)]) == 1
    assert "is not the checkpoint of a streaming query" in capsys.readouterr().err


def test_a_query_without_state_cannot_be_captured(recorded: dict[str, Path], tmp_path: Path) -> None:
    """The report is printed, and the status is 1."""
    checkpoint = Path(shutil.copytree(recorded["4.2"] / "HDFS" / "aggregation", tmp_path / "c"))
    shutil.rmtree(checkpoint / "state")
    assert main(["doctor", str(checkpoint)]) == 1


def test_a_query_that_has_committed_nothing(recorded: dict[str, Path], tmp_path: Path) -> None:
    """It is a warning: look again later."""
    checkpoint = with_offsets(recorded["4.2"] / "HDFS" / "aggregation", tmp_path / "c", range(0), 1)
    found = examine(checkpoint)
    assert (found.epochs, found.tables, found.has("warning")) == (0, (), True)
    assert "none committed yet" in str(found)


def test_rare_captures_risk_gaps(recorded: dict[str, Path], tmp_path: Path) -> None:
    """A pass that takes most of what the checkpoint keeps is a warning, in epochs or in time."""
    checkpoint = with_offsets(recorded["4.2"] / "HDFS" / "aggregation", tmp_path / "c", range(50, 150), 10)
    retain = "spark.sql.streaming.minBatchesToRetain"
    assert settings(examine(checkpoint, every=10)) == {}
    assert settings(examine(checkpoint, every=60)) == {retain: "240"}
    assert settings(examine(checkpoint, every="15m")) == {retain: "360"}
    assert examine(checkpoint, every=60).has("warning")


def test_epochs_that_are_purged_soon_risk_gaps(recorded: dict[str, Path], tmp_path: Path) -> None:
    """Once Spark has purged some, the warning has the number to keep; before that it is a note."""
    aggregation = recorded["4.2"] / "HDFS" / "aggregation"
    purged = examine(with_offsets(aggregation, tmp_path / "purged", range(50, 150), 0.5))
    assert purged.has("warning")
    assert settings(purged) == {"spark.sql.streaming.minBatchesToRetain": "1200"}
    whole = examine(with_offsets(aggregation, tmp_path / "whole", range(50), 0.5))
    assert not whole.has("warning")
    assert settings(whole) == settings(purged)


def test_a_new_store_can_be_written(recorded: dict[str, Path], tmp_path: Path) -> None:
    """It need not exist yet, and is not created."""
    found = examine(recorded["4.2"] / "HDFS" / "aggregation", tmp_path / "folder" / "store")
    assert found.store is not None
    assert (found.store.name, found.store.behind, found.has("problem")) == (None, 4, False)
    assert not (tmp_path / "folder").exists()


def test_a_place_that_is_no_store_is_an_error(recorded: dict[str, Path], tmp_path: Path) -> None:
    """A file, for example."""
    (tmp_path / "file").write_text("")
    assert main(["doctor", str(recorded["4.2"] / "HDFS" / "aggregation"), "--store", str(tmp_path / "file")]) == 1


@pytest.mark.exhaustive
def test_the_state_tables_are_those_that_spark_lists(spark: SparkSession, recorded: dict[str, Path]) -> None:
    """For every recorded checkpoint, with the same names in the same order."""
    compared = 0
    for folder in recorded.values():
        for path in folder.glob("*/*/commits"):
            checkpoint = CheckpointFiles(path.parent)
            epoch = checkpoint.committed()[-1]
            sources = listed_sources(StateReader(spark, checkpoint).session(epoch), checkpoint, epoch)
            assert [(table.table, table.operator) for table in table_readings(checkpoint, epoch)] == [
                (source.table, source.operator) for source in sources
            ]
            compared += 1
    assert compared >= 30


@pytest.mark.slow
def test_how_far_a_store_is_behind(spark: SparkSession, recorded: dict[str, Path], tmp_path: Path) -> None:
    """Epochs that Spark purged since the last capture will be a gap."""
    aggregation = recorded["4.2"] / "RocksDB-with-changelog" / "aggregation"
    ss.Checkpoint(aggregation).capture(tmp_path / "store", "q", spark=spark)
    found = examine(aggregation, tmp_path / "store").store
    assert found is not None
    assert (found.name, found.newest, found.behind, found.lost) == ("q", 3, 0, 0)
    later = examine(with_offsets(aggregation, tmp_path / "later", range(6, 10), 1), tmp_path / "store")
    assert later.store is not None
    assert (later.store.behind, later.store.lost) == (4, 2)
    assert later.has("warning")


def test_what_will_become_of_the_state_is_a_note(counted: tuple[Path, Path]) -> None:
    """From the checkpoint alone, and with evidence from the epochs of a store; the exit status stays."""
    checkpoint, store = counted
    why = "op0 can never shrink, because it keeps every key, and the key (k) has no event time."
    for found, text in (
        (examine(checkpoint), why),
        (examine(checkpoint, store), f"{why} It grew from 7 rows at epoch 0 to 12 at epoch 4, and lost none."),
    ):
        assert [finding.level for finding in found.findings if finding.text == text] == ["note"]
        assert not found.has("warning")
