"""Fixtures for the exercises of the tutorials."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamstate.tutorials.exercises import attempts, construct
from teaching import departures_store


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """More time than a learner's function gets, because the machine may be slow."""
    in_time = attempts._time_limit
    monkeypatch.setattr(attempts, "_time_limit", lambda seconds: in_time(10 * seconds))
    monkeypatch.setattr(construct, "_BUDGET", 100.0)


@pytest.fixture(scope="session")
def departures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with the state of the query ``delays`` after 30 files."""
    folder = tmp_path_factory.mktemp("departures")
    departures_store.write(folder / "store", folder / "data")
    return folder / "store"
