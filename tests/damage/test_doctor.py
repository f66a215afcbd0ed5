"""``streamstate doctor`` names what is damaged, and says whether the checkpoint can restart and be captured."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from recorded.restarts import restarts

import streamstate as ss
from damage.kinds import damaged, deleted
from streamstate.command_line import main
from streamstate.errors import DamagedCheckpointError
from streamstate.operations.checkup import DoctorReport, examine


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The recorded checkpoints."""
    return restarts(tmp_path_factory.mktemp("restarts"))


def texts(found: DoctorReport, file: str | None = None) -> list[str]:
    """The findings, of one file or of all."""
    return [f"{finding.level}: {finding.text}" for finding in found.findings if file in (None, finding.file)]


VERDICTS: dict[tuple[str, str], tuple[bool | None, bool | None, str, str]] = {
    # kind and checkpoint: can be captured, can restart, the file, and what is said.
    ("nothing", "changelog-2/join"): (True, True, "", "6 can be captured, 0 to 5"),
    ("newest state deleted", "HDFS/plain"): (True, False, "state/0/1/6.delta", "5 of 6 can be captured, 0 to 4"),
    ("state 5 emptied silently", "HDFS/plain"): (True, False, "state/0/1/5.delta", "4 of 6 can be captured, 0 to 3"),
    ("partition gone", "HDFS/plain"): (False, False, "state/0/1/6.delta", "6 committed, none can be captured"),
    ("state ends at version 3", "HDFS/plain"): (True, False, "state", "3 of 6 can be captured, 0 to 2"),
    ("no state file", "changelog-1/plain"): (False, False, "state", "6 committed, none can be captured"),
    ("state/ gone", "changelog-2/plain"): (False, False, "state", "6 committed, none can be captured"),
    ("state/ gone", "HDFS/plain"): (False, None, "", "6 committed, none can be captured"),
    ("nothing", "HDFS/stateless"): (False, None, "", "6 committed, none can be captured"),
    ("commits/5 halved silently", "HDFS/plain"): (True, False, "commits/5", "5 of 6 can be captured, 0 to 4"),
    ("commits/4 emptied", "HDFS/plain"): (True, True, "commits/4", "6 can be captured, 0 to 5"),
    ("offsets/4 deleted", "HDFS/plain"): (True, False, "offsets/4", "5 of 6 can be captured, 0 to 5"),
    ("offsets/6 empty", "HDFS/plain"): (True, False, "offsets/6", "6 can be captured, 0 to 5"),
    ("offsets/3 emptied", "HDFS/plain"): (True, True, "offsets/3", "5 of 6 can be captured, 0 to 5"),
    ("metadata halved", "HDFS/plain"): (False, False, "metadata", "6 committed, none can be captured"),
    ("schema emptied", "HDFS/plain"): (False, False, "state/0/0/_metadata/schema", "none can be captured"),
    ("operator metadata emptied", "HDFS/plain"): (False, True, "state/0/_metadata/metadata", "none can be captured"),
    ("snapshot halved silently", "HDFS/snapshot"): (True, True, "state/0/1/4.snapshot", "6 can be captured, 0 to 5"),
    ("sources/0/3 emptied", "HDFS/plain"): (True, False, "sources/0/3", "6 can be captured, 0 to 5"),
}


@pytest.mark.parametrize("case", VERDICTS, ids=" in ".join)
def test_the_verdicts(recorded: Path, tmp_path: Path, case: tuple[str, str]) -> None:
    """The report says if any epoch can be captured, if Spark can restart, and which file is the reason."""
    can_capture, can_restart, file, text = VERDICTS[case]
    found = examine(damaged(case[0], recorded / case[1], tmp_path / "c"))
    assert (found.can_capture, found.can_restart) == (can_capture, can_restart)
    assert text in str(found)
    assert {finding.file for finding in found.findings if finding.file} == {file} - {""}
    assert all(f"{file} " in line for line in texts(found, file or None) if file)


def test_a_lost_file_before_a_snapshot_is_named(recorded: Path, tmp_path: Path) -> None:
    """Spark does not read it, but the epochs that need it cannot be captured."""
    checkpoint = Path(shutil.copytree(recorded / "HDFS/snapshot", tmp_path / "c"))
    deleted(checkpoint / "state/0/1/3.delta")
    found = examine(checkpoint)
    assert (found.can_restart, found.epochs, found.newest_epoch) == (True, 5, 5)
    assert texts(found, "state/0/1/3.delta") == [
        "warning: state/0/1/3.delta is missing. Epoch 2 cannot be captured. Restore the file from a backup."
    ]


def test_what_to_do(recorded: Path, tmp_path: Path) -> None:
    """The report says it: a backup, another checkpoint from an epoch that is whole, or from the store."""
    checkpoint = damaged("newest state deleted", recorded / "HDFS/plain", tmp_path / "c")
    with pytest.raises(DamagedCheckpointError):
        ss.Checkpoint(checkpoint).capture(tmp_path / "s", "q")
    found = examine(checkpoint, tmp_path / "s")
    file = "problem: state/0/1/6.delta is missing. Spark cannot restart. Restore the file from a backup."
    assert texts(found)[0] == file
    way_out = next(line for line in texts(found) if "Without a backup" in line)
    assert f"from epoch 4 in a new checkpoint: ss.Checkpoint('{checkpoint}').fork(to=…, at=4)" in way_out
    assert f"from epoch 4 of the store: streamstate restore {tmp_path}/s q --at 4 --to PATH" in way_out
    torn = examine(damaged("offsets/6 torn", recorded / "HDFS/plain", tmp_path / "c2"))
    assert texts(torn, "offsets/6")[0].startswith(
        "problem: offsets/6 ends within its second line, or is no JSON there. Spark cannot restart. Delete it, and its"
        " checksum file .6.crc: the epoch was not committed"
    )


def test_the_command(recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The status is 1 if Spark cannot restart; the JSON has the verdicts and the file."""
    checkpoint = damaged("newest state halved", recorded / "HDFS/plain", tmp_path / "c")
    assert main(["doctor", str(checkpoint), "--json"]) == 1
    said: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert (said["can_capture"], said["can_restart"], said["findings"][0]["file"]) == (True, False, "state/0/1/6.delta")
    assert main(["doctor", str(checkpoint)]) == 1
    assert "restart     Spark cannot restart\n" in capsys.readouterr().out
    whole = Path(shutil.copytree(recorded / "HDFS/plain", tmp_path / "c2"))
    assert main(["doctor", str(whole)]) == 0
    assert "restart     Spark can restart\n" in capsys.readouterr().out


def test_a_query_without_state_has_no_problem(recorded: Path) -> None:
    """There is nothing to capture, and nothing that says that a folder was deleted."""
    found = examine(recorded / "HDFS/stateless")
    assert not found.has("problem")
    assert "note: There is no state to capture." in texts(found)
    assert "note: Whether Spark can restart is not known. It has no folder state/: a query without state can" in str(
        found
    )


def test_nothing_is_committed(recorded: Path, tmp_path: Path) -> None:
    """There is no verdict then, unless the plan of the first epoch is torn."""
    checkpoint = Path(shutil.copytree(recorded / "HDFS/plain", tmp_path / "c"))
    for epoch in range(6):
        deleted(checkpoint / f"commits/{epoch}")
        if epoch:
            deleted(checkpoint / f"offsets/{epoch}")
    shutil.rmtree(checkpoint / "state")
    found = examine(checkpoint)
    assert (found.can_capture, found.can_restart) == (None, None)
    (checkpoint / "offsets/0").write_text("v1")
    assert examine(checkpoint).can_restart is False
