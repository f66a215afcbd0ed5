"""``capture``, ``follow`` and ``doctor`` of several checkpoints, of globs and of all below a folder."""

from __future__ import annotations

import json
import os
import re
import signal
from pathlib import Path

import pytest
from fleet_checkpoints import copies

import streamstate as ss
from commands.test_follow_command import SECONDS, line_with
from streamstate.command_line import main


@pytest.fixture
def root(counted: tuple[Path, Path], tmp_path: Path) -> Path:
    """Three checkpoints, and a folder that is none."""
    copies(counted[0], tmp_path / "root", ["a/one", "a/two", "b/three"])
    (tmp_path / "root/a/other").mkdir()
    return tmp_path / "root"


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (["--root", "{root}"], ["one", "three", "two"]),
        (["{root}/*/t*"], ["three", "two"]),
        (["{root}/a/one", "{root}/b/three"], ["one", "three"]),
        (["{root}/a/*", "--root", "{root}/a"], ["one", "two"]),
    ],
)
def test_checkpoints_are_found(
    root: Path, tmp_path: Path, arguments: list[str], found: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """By their paths, by globs and below folders; each is captured once."""
    words = [word.format(root=root) for word in arguments]
    assert main(["capture", *words, "--store", str(tmp_path / "store"), "--json"]) == 0
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(query["query"], query["epochs"]) for query in printed] == [(name, [0, 1, 2, 3, 4]) for name in found]


def test_an_error_is_shown_and_in_the_status(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The others are captured."""
    words = [f"{root}/a/one", f"{root}/a/other", f"{root}/b/three"]
    assert main(["capture", *words, "--store", str(tmp_path / "store")]) == 1
    printed = capsys.readouterr()
    assert printed.err.startswith(f"streamstate: {root}/a/other is not the checkpoint of a streaming query")
    assert printed.out.splitlines()[-1] == "2 of 3 checkpoints are captured up to date."
    assert ss.open_store(tmp_path / "store").queries() == ["one", "three"]


def test_doctor_looks_at_each(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The exit status is that of the worst."""
    assert main(["doctor", "--root", str(root / "a")]) == 0
    printed = capsys.readouterr().out
    assert len(re.findall("^checkpoint", printed, re.MULTILINE)) == 2
    assert printed.splitlines()[-1] == "2 checkpoints: 0 with problems, 0 with warnings."
    assert main(["doctor", f"{root}/a/one", f"{root}/a/other"]) == 1


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ([], "expected a checkpoint, or --root FOLDER"),
        (["--root", ".", "--name", "q"], "--name is for one checkpoint"),
    ],
)
def test_invalid_arguments(arguments: list[str], error: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The status is that of invalid arguments."""
    with pytest.raises(SystemExit, match="2"):
        main(["capture", *arguments, "--store", "store"])
    assert error in capsys.readouterr().err


def test_nothing_found_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A mistyped folder would otherwise capture nothing for ever."""
    for command in ("capture", "follow"):
        assert main([command, f"{tmp_path}/*/x", "--store", str(tmp_path / "store")]) == 1
        assert "There is no checkpoint in" in capsys.readouterr().err
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(("broken", "status"), [(False, 0), (True, 1)])
def test_one_process_follows_all(root: Path, tmp_path: Path, broken: bool, status: int) -> None:
    """A line for each pass, metrics for each query, and a summary; a signal ends it."""
    import subprocess
    import sys

    if broken:
        (root / "b/three/metadata").write_text("{}")
    command = [sys.executable, "-m", "streamstate", "follow", "--root", str(root), "--store", str(tmp_path / "store")]
    with subprocess.Popen(
        [*command, "--metrics", "0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ}
    ) as process:
        try:
            line_with(process.stderr, "Metrics at")
            for _ in range(2 if broken else 3):
                line_with(process.stdout, "epochs 1 to 4 captured")
            process.send_signal(signal.SIGTERM)
            output, errors = process.communicate(timeout=SECONDS)
        finally:
            process.kill()
    assert process.returncode == status
    queries = 2 if broken else 3
    assert output.splitlines()[-1].endswith(f"stopped: {queries} queries, 0 behind; {int(broken)} failing")
    assert ("b/three/metadata has no id of a query" in errors) is broken
