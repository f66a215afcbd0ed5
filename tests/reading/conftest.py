"""How histories are read: at once, or as a long one: in parts, and keys from the files that have them."""

from __future__ import annotations

import pytest

from streamstate.state_inspect import recorded_query


@pytest.fixture(params=[recorded_query._SOON_READ, -1], ids=["all keys", "from files"])
def read_either_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs a test twice; the second time each epoch is a part of the history."""
    monkeypatch.setattr(recorded_query, "_SOON_READ", request.param)
    if request.param < 0:
        monkeypatch.setattr(recorded_query, "_IN_A_PART", 0)


@pytest.fixture
def read_from_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys are read from the files that have them."""
    monkeypatch.setattr(recorded_query, "_SOON_READ", -1)
