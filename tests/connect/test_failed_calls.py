"""Calls that fail beside Spark Connect leave no process, however often they are made."""

from __future__ import annotations

from pathlib import Path

import pytest

from connect.conftest import outcome

pytestmark = [pytest.mark.slow, pytest.mark.timeout(7200)]
LONG = pytest.mark.exhaustive

WORKER = 2
"""The processes of a worker: Python and Java."""


@pytest.mark.parametrize("repetitions", [2, pytest.param(50, marks=LONG)])
@pytest.mark.parametrize(
    "kind", ["nowhere", *(pytest.param(kind, marks=LONG) for kind in ("local[2]", "SPARK_REMOTE", "SPARK_API_MODE"))]
)
def test_failed_calls_leave_no_process(recorded_query: Path, tmp_path: Path, kind: str, repetitions: int) -> None:
    """There is at most one worker, and none once it has ended."""
    arguments = [kind, repetitions, recorded_query / "checkpoint", tmp_path / "made"]
    found = outcome("failing_program.py", *arguments, timeout=7000)
    assert found["left"] == []
    assert [new for new, _ in found["rounds"] if len(new) > WORKER] == []
