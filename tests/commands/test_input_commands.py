"""``streamstate inputs`` and ``late`` read the input of an epoch again; ``fork`` makes a checkpoint."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import streamstate as ss
from commands.test_new_checkpoint_commands import JOB
from streamstate.command_line import main
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles


def test_inputs_and_late_print_what_the_history_returns(
    counted: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], spark: SparkSession
) -> None:
    """``inputs`` prints some rows and counts all; a query without a watermark drops none."""
    _, store = counted
    job = tmp_path / "job.py"
    job.write_text(JOB.format(folder=str(store.parent / "input"), more=""), encoding="utf-8")
    line = [str(store), "counts", "2", "--code", f"{job}:build", "--json"]
    assert main(["inputs", *line, "--limit", "2"]) == 0
    output, errors = capsys.readouterr()
    assert [sorted(json.loads(row)) for row in output.splitlines()] == [["k", "v"]] * 2
    assert errors == "2 of 18 rows of epoch 2; --limit shows more\n"
    assert main(["late", *line]) == 0
    late = json.loads(capsys.readouterr().out)
    assert (late["epoch"], late["operator"], late["dropped"]) == (2, 0, 0)
    assert main(["late", str(store), "counts", "1..2", "--code", f"{job}:build", "--json"]) == 0
    assert [json.loads(row)["epoch"] for row in capsys.readouterr().out.splitlines()] == [1, 2]


def test_the_code_of_the_query_is_required(capsys: pytest.CaptureFixture[str]) -> None:
    """The error is that of invalid usage."""
    for command in ("inputs", "late"):
        with pytest.raises(SystemExit) as raised:
            main([command, "store", "q", "1"])
        assert raised.value.code == 2
        assert "--code" in capsys.readouterr().err


def test_fork_makes_a_checkpoint(
    counted: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """At the epoch given; the report has the public attributes of a ``Fork``."""
    checkpoint, _ = counted
    new = tmp_path / "what_if"
    assert main(["fork", str(checkpoint), "--to", str(new), "--at", "3", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["path"], report["original"], report["epoch"]) == (str(new), str(checkpoint), 3)
    assert report["query_id"] == CheckpointFiles(str(new)).query_id
    assert report.keys() <= {*dir(ss.Checkpoint(new).fork(tmp_path / "again"))}
    assert CheckpointFiles(str(new)).committed() == [3]
    assert main(["fork", str(checkpoint), "--to", str(new)]) == 1
    assert "already exists" in capsys.readouterr().err
