"""The notebook on replay and nondeterminism. It asserts what it claims."""

from __future__ import annotations

from pathlib import Path

import pytest

from notebooks.running import Shown, latest_run, output_of, run_answered

pytestmark = [pytest.mark.slow, pytest.mark.notebook, pytest.mark.timeout(5400)]  # may run all of it


@pytest.fixture(scope="module")
def replayed() -> Shown:
    """The outputs of the notebook on replay and nondeterminism."""
    return latest_run("04_replay_and_nondeterminism")


def test_the_notebook_on_replay_finds_the_bug(replayed: Shown) -> None:
    """A step reveals it, the audit names the line, and the fixed query is deterministic."""
    assert output_of(replayed, "report.reason").startswith("(1,")
    accused = output_of(replayed, "accused = ")
    assert accused.startswith("Not deterministic at epoch 1: 2 of 2 replays diverged.")
    assert "away_at" in accused
    assert "Likely: datetime.datetime.now in the processor" in accused
    assert "with the original line\n\nDeterministic at epoch 1:" in output_of(replayed, "trusted = ")


def test_with_the_bug_aircraft_only_accumulate(replayed: Shown) -> None:
    """As the text says, the numbers only grow; with the fix, some aircraft leave."""
    grown = [int(number) for number in output_of(replayed, "aircraft = [").strip("[]").split(", ")]
    assert grown == sorted(grown)
    rows = [line.split() for line in output_of(replayed, "counts = replay").splitlines()[1:]]
    assert [int(row[2]) for row in rows] == grown
    fixed = [int(row[3]) for row in rows]
    assert fixed != sorted(fixed)


def test_the_notebook_on_replay_waits_for_its_reader(replayed: Shown) -> None:
    """Predictions and the reader's own line are not answered yet, and nothing is revealed."""
    said = [text for source, text in replayed if "P04." in source and "P04.progress" not in source]
    assert {text.split()[0] for text in said} == {"…"}
    assert len(said) == 7


@pytest.mark.exhaustive
def test_the_readers_own_line_is_replayed_and_audited(tmp_path: Path) -> None:
    """A rule that passes the check takes the place of the original line, and the audit examines it."""
    rule = "    return max(departures) + AWAY_AFTER"
    empty = '    """Return the time at which an aircraft with these departures is away."""\n    ...'
    shown = run_answered("04_replay_and_nondeterminism", tmp_path, {empty: rule})
    assert output_of(shown, "P04.check(").startswith("✓")
    assert "with your line\n\nDeterministic at epoch 1:" in output_of(shown, "trusted = ")
