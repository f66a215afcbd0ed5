"""How keys are read: with all others, or from the files that have them, as in a long history."""

from __future__ import annotations

import pytest

from streamstate.state_inspect import recorded_query


@pytest.fixture(params=[recorded_query._SOON_READ, -1], ids=["all keys", "from files"])
def read_either_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs a test twice."""
    monkeypatch.setattr(recorded_query, "_SOON_READ", request.param)


@pytest.fixture
def read_from_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys are read from the files that have them."""
    monkeypatch.setattr(recorded_query, "_SOON_READ", -1)
