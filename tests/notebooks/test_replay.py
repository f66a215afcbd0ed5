"""The notebook on replay and nondeterminism. It asserts what it claims."""

from __future__ import annotations

import pytest

from notebooks.running import Shown, latest_run, output_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(5400)]  # the first test may run all of it


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
    assert output_of(replayed, "trusted = ").startswith("Deterministic at epoch 1:")


def test_with_the_bug_aircraft_only_accumulate(replayed: Shown) -> None:
    """As the text says, the numbers only grow; with the fix, some aircraft leave."""
    grown = [int(number) for number in output_of(replayed, "aircraft = [").strip("[]").split(", ")]
    assert grown == sorted(grown)
    rows = [line.split() for line in output_of(replayed, "counts = replay").splitlines()[1:]]
    assert [int(row[2]) for row in rows] == grown
    fixed = [int(row[3]) for row in rows]
    assert fixed != sorted(fixed)
