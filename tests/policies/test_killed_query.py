"""A process that runs a query with a policy is killed, with its JVM, where its controller decides and acts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import streamstate as ss
from policies.levelled import ROWS, add, levelled
from policies.planned_epochs import planned_epochs
from streamstate.state_inspect import control

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TESTS = Path(__file__).parents[1]
GOAL = 12


def life(folder: Path, point: str, times: int) -> int:
    """Run the process, and return its exit status."""
    command = [sys.executable, "-m", "policies.killed_process", str(folder), point, str(times), str(GOAL)]
    return subprocess.run(command, cwd=TESTS, start_new_session=True, check=False, timeout=240).returncode


@pytest.mark.exhaustive
@pytest.mark.parametrize("point", ["decided", "written", "moved", "decided on"])
def test_a_kill_leaves_results_as_of_the_recorded_levels(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    """Two kills, then an end: no decision is doubled, each says when it acted, and an audit finds the same state."""
    monkeypatch.setattr(control, "LEVEL", "_level")
    for number in range(30):
        add(tmp_path / "input", number)
    assert life(tmp_path, point, 1) < 0
    assert life(tmp_path, point, 2) < 0
    assert life(tmp_path, "", 0) == 0
    history = ss.open_store(tmp_path / "store")["q"]
    found = history.decisions()
    assert not found.duplicated(["epoch", "lever", "policy"]).any()
    shed: list[Any] = found[found["lever"] == "shedding"].dropna(subset=["acted"]).to_dict("records")
    assert len(shed) >= 2
    bound = dict(zip(*(history.bindings()[name] for name in ("epoch", "version")), strict=True))
    versions = ss.shared(tmp_path / "store", "q_level").history()
    by, value = (dict(zip(versions["version"], versions[name], strict=True)) for name in ("by", "value"))
    for row in shed:
        assert by[bound[row["acted"]]] == f"decision {row['number']}"
        assert row["epoch"] < row["acted"]
    kept, read, checkpoint = 0, list[str](), tmp_path / "checkpoints" / "q"
    for epoch, planned in planned_epochs(checkpoint, "q_level").items():
        read += planned.files
        firsts = [int(Path(name).stem) * ROWS for name in planned.files]
        kept += sum(v * 7919 % 10_000 < value[planned.version] for first in firsts for v in range(first, first + ROWS))
        if epoch <= history.live().epoch:  # later ones may have been committed while the query stopped
            assert history.at(epoch).table().to_pandas()["count"].sum() == kept, epoch
    assert read == [f"{number:04}.json" for number in range(len(read))]
    frame = levelled(spark, tmp_path / "input", ss.shared(tmp_path / "store", "q_level"), files=1)
    audit = ss.Checkpoint(checkpoint).audit(lambda: frame, replays=1)
    assert audit.clean, audit
