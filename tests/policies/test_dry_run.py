"""The dry run of a policy over recorded epochs."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
import synthetic

import streamstate as ss
from benchmarks.policies import LATENCY, run
from streamstate.errors import InvalidArgumentError
from streamstate.operations.policies.decision import Levers, Observed
from streamstate.snapshots.store.epoch_load import EpochLoad, SourceLoad

SHORT = ((60.0, 0.5, 0.5), (60.0, 1.6, 1.6), (60.0, 0.5, 0.5))


@pytest.fixture(scope="module")
def overloaded() -> list[Observed]:
    """The epochs of a query that nothing kept from falling behind."""
    return [epoch.observed for epoch in run(4, 0.0, phases=SHORT).epochs]


def test_it_says_what_a_policy_would_have_done(overloaded: list[Observed]) -> None:
    """More epochs hold than did; the report has the decisions and the model's error."""
    dry = ss.Policy(latency="5s", may_drop=0.6).dry_run(overloaded)
    recorded = sum(latency <= LATENCY for latency in dry.recorded_latencies) / len(dry.recorded_latencies)
    assert recorded < 0.95 < dry.within
    assert 0 < dry.dropped < 0.6
    assert 0 < dry.error < 0.2
    assert {decision.lever for _, decision in dry.decisions} >= {"shedding"}
    assert sum(epoch.rows for epoch in dry.epochs) <= sum(epoch.load.rows for epoch in overloaded)
    table = dry.to_pandas()
    assert list(table.columns)[:5] == ["epoch", "began", "rows", "dropped", "kept"]
    assert len(table) == len(dry.epochs)
    assert repr(dry).startswith("5.0 s hold for")
    assert "misses half of the recorded epochs by" in repr(dry)
    assert "<table" in dry._repr_html_()


def test_levers_can_be_given(overloaded: list[Observed]) -> None:
    """Without one, it says what would have held."""
    dry = ss.Policy(latency="5s", may_drop=0.6).dry_run(overloaded, levers=Levers())
    assert dry.dropped == 0
    assert any("may_drop" in decision.needs for _, decision in dry.decisions)


def test_a_history_without_loads_gives_rows_and_times(tmp_path: Path) -> None:
    """What the manifest knows of older captures is enough."""
    count = 30
    facts = [
        {
            "began_at": synthetic.START + timedelta(seconds=2 * epoch),
            "committed_at": synthetic.START + timedelta(seconds=2 * epoch + 1),
            "input_rows": 1000 + epoch,
            "run_id": "run",
        }
        for epoch in range(count)
    ]
    synthetic.write(tmp_path / "store", [{"a": epoch} for epoch in range(count)], facts=facts)
    dry = ss.Policy(latency="5s").dry_run(ss.open_store(tmp_path / "store")["q"])
    assert dry.within == 1
    assert dry.decisions == []
    assert dry.model.epochs == count - 2
    with pytest.raises(InvalidArgumentError, match="a dry run needs 3 or more"):
        ss.Policy(latency="5s").dry_run([])


def test_one_load_fits_any_policy() -> None:
    """An idle query has nothing to decide."""
    load = EpochLoad(0.1, sources=(SourceLoad("s", 10),))
    idle = [Observed(epoch, synthetic.START + timedelta(seconds=epoch), load) for epoch in range(10)]
    assert ss.Policy(latency="1s", may_drop=0.5, state_limit="1GB").dry_run(idle).decisions == []
