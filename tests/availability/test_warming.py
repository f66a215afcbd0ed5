"""A standby runs an epoch of a fork several times at first, and then once in a while."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from streamstate.launch.standby_process import _FIRST_RUNS, _Warmth
from streamstate.operations.availability.standby import StandbyStatus


@pytest.fixture
def warmth(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> _Warmth:
    """The warmth of a standby that starts no query; its attribute ``ran`` has the epochs that it ran."""
    made: Any

    def note(epoch: int, _mode: str) -> None:
        made.ran.append(epoch)
        made.on_run()

    monkeypatch.setattr(_Warmth, "_step", lambda _self, *given: note(*given))
    monkeypatch.setattr(_Warmth, "_start_fork", lambda self, _mode: self.ran.append("start"))
    standby: Any = SimpleNamespace(
        task=SimpleNamespace(checkpoint=str(tmp_path / "checkpoint"), status="standby.1"),
        status=StandbyStatus(),
        records_input=False,
        prepare=lambda: made.ran.append("prepare"),
        report=lambda **changes: made.reports.append(changes),
    )
    no_session: Any = None
    no_query: Any = None
    made = _Warmth(standby, no_session, no_query)
    made.ran, made.reports, made.on_run = [], [], lambda: None
    warmth: _Warmth = made
    return warmth


def test_the_first_epoch_is_run_several_times(warmth: Any) -> None:
    """Java has then compiled what the epochs run; later runs only keep it so."""
    warmth._run([4, 5], "update")
    assert warmth.ran == [4] * _FIRST_RUNS + ["start", "prepare"]
    assert warmth.reports[-1]["epoch"] == 5
    warmth.ran.clear()
    warmth._run([30, 31], "update")
    assert warmth.ran == [30, "start", "prepare"]


def test_a_takeover_waits_for_one_run_at_most(warmth: Any) -> None:
    """Once the lease is acquired, no further run begins."""
    running = threading.Event()

    def hold() -> None:
        running.set()
        assert warmth._settling.wait(60)

    warmth.on_run = hold
    warmth._thread = threading.Thread(target=warmth._run, args=([4, 5], "update"))
    warmth._thread.start()
    assert running.wait(60)
    warmth.settle()
    assert warmth.ran == [4, "prepare"]
