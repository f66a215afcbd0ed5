"""The notebook on replay and nondeterminism; it, too, asserts what it claims."""

from __future__ import annotations

import pytest

from notebooks.running import Shown, of, run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # the first test runs all of it


@pytest.fixture(scope="module")
def replayed(tmp_path_factory: pytest.TempPathFactory) -> Shown:
    """The notebook on replay and nondeterminism; it, too, asserts what it claims."""
    return run("04_replay_and_nondeterminism", tmp_path_factory.mktemp("replayed"))


def test_the_notebook_on_replay_finds_the_bug(replayed: Shown) -> None:
    """The step shows it, the audit names the line, and the mended query is deterministic."""
    assert of(replayed, "report.reason").startswith("(1,")
    accused = of(replayed, "accused = ss.audit")
    assert accused.startswith("Not deterministic at epochs 1 to 2: 2 of 2 replays came out otherwise.")
    assert "away_at" in accused
    assert "Likely: datetime.datetime.now in the processor" in accused
    assert of(replayed, "trusted = ss.audit").startswith("Deterministic at epochs 1 to 2")
    assert "intact" in of(replayed, "check = ss.check_certificate")


def test_with_the_bug_aircraft_only_gather(replayed: Shown) -> None:
    """As the prose says of the numbers: they only grow; mended, some aircraft leave."""
    grown = [int(number) for number in of(replayed, "aircraft = [").strip("[]").split(", ")]
    assert grown == sorted(grown)
    rows = [line.split() for line in of(replayed, "counts = replay").splitlines()[1:]]
    assert [int(row[2]) for row in rows] == grown
    mended = [int(row[3]) for row in rows]
    assert mended != sorted(mended)
