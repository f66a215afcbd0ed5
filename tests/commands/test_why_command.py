"""``streamstate why``: what changed a key in an epoch, from a terminal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import synthetic
from pyspark.sql import SparkSession

import streamstate as ss
from commands.test_new_checkpoint_commands import JOB
from streamstate.command_line import main

STATES: list[synthetic.State | None] = [{"a": 1}, {"a": 3, "b": 2}, {"b": 2}]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A store with three epochs of the query ``q``."""
    path = tmp_path_factory.mktemp("why") / "store"
    facts = [{"offsets": f"[{epoch}]"} for epoch in range(len(STATES))]
    synthetic.write(path, STATES, operator="stateStoreSave", facts=facts)
    return str(path)


def test_without_code_it_says_what_the_store_knows(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Needs neither Spark nor Java; on standard error it says what would show the input."""
    assert main(["why", store, "q", "1", "key=a"]) == 0
    output, errors = capsys.readouterr()
    assert output == "op0, key=a, epoch 1; cause: input\nbefore: key=a, value=1\nafter:  key=a, value=3\n"
    assert errors == "--code MODULE:FUNCTION shows the input rows behind it\n"
    assert main(["why", store, "q", "live", "--json", "key=b"]) == 0
    known = json.loads(capsys.readouterr().out)
    assert (known["epoch"], known["cause"], known["nearest"]) == (2, None, [1, None])
    assert known["before"] == known["after"] == {"key": "b", "value": 2}
    assert "input_rows" not in known


def test_with_code_it_prints_the_input_rows(
    counted: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], spark: SparkSession
) -> None:
    """As ``history.why`` has them; nothing is written into the store."""
    _, store = counted
    job = tmp_path / "job.py"
    job.write_text(JOB.format(folder=str(store.parent / "input"), more=""), encoding="utf-8")
    why = ["why", str(store), "counts", "2", "k=k1", "--code", f"{job}:build"]
    assert main(why) == 0
    output, errors = capsys.readouterr()
    lines = output.splitlines()
    assert lines[0] == "op0, k=k1, epoch 2: 3 input rows; cause: input"
    assert (lines[1].split(":")[0], lines[2].split()) == ("before", ["k", "v"])
    assert errors == ""
    assert main([*why, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["input_rows"], found["dropped"], found["cause"]) == (3, 0, "input")
    assert {row["k"] for row in found["rows"]["rows"]} == {"k1"}
    assert len(found["rows"]["rows"]) == 3
    assert not ss.open_store(store)["counts"].recorded.plans.recorded()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["q", "1", "key=a", "--table", "op7"], "State table names: op0"),
        (["q", "1"], "The key of op0 needs a value for: key.\n"),
        (["q", "1", "a"], "Invalid key 'a': expected COLUMN=VALUE"),
        (["q", "9", "key=a"], "nearest captured: 2"),
        (["q", "1", "key=a", "--mode", "update"], "--mode is the mode of the query that --code gives"),
    ],
)
def test_errors_say_what_would_be_right(
    store: str, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    """On standard error, with exit status 1."""
    assert main(["why", store, *arguments]) == 1
    assert message in capsys.readouterr().err
