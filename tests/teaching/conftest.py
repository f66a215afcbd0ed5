"""Fixtures for the exercises of the tutorials."""

from __future__ import annotations

from pathlib import Path

import pytest

from teaching import departures_store


@pytest.fixture(scope="session")
def departures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with the state of the query ``delays`` after 30 files."""
    folder = tmp_path_factory.mktemp("departures")
    departures_store.write(folder / "store", folder / "data")
    return folder / "store"
