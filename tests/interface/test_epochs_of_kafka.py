"""Epochs of queries over Kafka, from offsets alone: what each read, partition by partition."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from synthetic import copy_of

import streamstate as ss
from streamstate.command_line.program import main
from streamstate.operations.checkpoint_logs import EpochFrame
from streamstate.snapshots.checkpoint.epoch_reads import BySource, epoch_reads
from streamstate.snapshots.spark.kafka_lag import kafka_lag

Offsets = dict[str, dict[str, int]]

FLIGHTS: list[Offsets] = [
    {"flights": {"0": 20, "1": 20}},
    {"flights": {"0": 40, "1": 20, "10": 3}},
    {"flights": {"0": 41, "1": 30, "10": 0}, "gates": {"0": 0}},
]
START = {"kind": "offset", "start": {"flights": {"0": 0, "1": 15}}}
WORDS = [
    "flights: partition 0 from 0 to 19, partition 1 from 15 to 19",
    "flights: partition 0 from 20 to 39, partition 1 nothing (at 20), partition 10 up to 2",
    "flights: partition 0 only 40, partition 1 from 20 to 29, partition 10 back from 3 to 0; gates: partition 0 empty",
]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store with three epochs of a query over a topic."""
    facts: list[dict[str, Any]] = [{"offsets": json.dumps([at]), "sources": json.dumps([START])} for at in FLIGHTS]
    copy_of(tmp_path / "store", [{"a": 1}, {"a": 2}, {"a": 3}], facts=facts)
    return tmp_path / "store"


def test_an_epoch_says_from_which_offset_to_which_it_read(store: Path) -> None:
    """Of each partition; a topic that was recreated goes back. Without a known start there is no number of records."""
    epochs = ss.open_store(store)["q"].epochs()
    assert [read[0] for read in epochs["read"]] == WORDS
    assert epochs["records"].fillna(-1).tolist() == [25, -1, -1]


def test_the_epochs_of_a_checkpoint_say_the_same(
    counted: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where Spark has purged the epoch before, the start is not known."""
    copy = Path(shutil.copytree(counted[0], tmp_path / "copy"))
    shutil.rmtree(copy / "sources")
    (copy / "sources" / "0").mkdir(parents=True)
    (copy / "sources" / "0" / "0").write_text(f"\0v1\n{json.dumps(START['start'])}")
    for epoch, at in enumerate([*FLIGHTS[:1] * 2, *FLIGHTS]):
        log = copy / "offsets" / str(epoch)
        log.write_text("\n".join([*log.read_text().splitlines()[:2], json.dumps(at)]))
    found = ss.Checkpoint(copy).epochs()
    assert found["sources"][0] == {0: WORDS[0]}
    assert [words[0] for words in found["sources"]][3:] == WORDS[1:]
    assert found["records"].fillna(-1).tolist() == [25, 0, 0, -1, -1]
    assert isinstance(found, EpochFrame)
    for text in (repr(found), found._repr_html_()):
        assert all(words in text for words in WORDS)
        assert "offsets" not in text
    assert type(found[["epoch", "records"]]) is pd.DataFrame
    (copy / "offsets" / "0").unlink()
    (copy / "commits" / "0").unlink()
    assert ss.Checkpoint(copy).epochs()["sources"][0] == {0: "flights: partition 0 up to 19, partition 1 up to 19"}
    assert main(["epochs", str(copy)]) == 0
    assert WORDS[1] in capsys.readouterr().out


def test_the_commands_list_them(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """For people and for programs."""
    assert main(["ls", str(store), "q"]) == 0
    assert all(words in capsys.readouterr().out for words in WORDS[:1])
    assert main(["ls", str(store), "q", "--json"]) == 0
    assert [json.loads(line)["read"] for line in capsys.readouterr().out.splitlines()] == [
        {"0": text} for text in WORDS
    ]


def test_what_follows_a_gap_has_no_start() -> None:
    """The epoch before it is missing."""
    epochs: list[tuple[int, BySource, BySource]] = [(0, {0: FLIGHTS[0]}, {0: START}), (2, {0: FLIGHTS[1]}, {0: START})]
    assert [read.words[0] for read in epoch_reads(epochs)][1] == (
        "flights: partition 0 up to 39, partition 1 up to 19, partition 10 up to 2"
    )


def test_lag_is_what_an_epoch_left_unread() -> None:
    """In all partitions of all topics; sources of other kinds have none."""
    kafka = {"endOffset": {"f": {"0": 20, "1": 20}}, "latestOffset": {"f": {"0": 50, "1": 20, "2": 4}}}
    files = {"endOffset": {"logOffset": 1}, "latestOffset": None}
    assert kafka_lag({"sources": [kafka, files]}) == 34
    assert kafka_lag({"sources": [files]}) is None
    assert kafka_lag(None) is None
