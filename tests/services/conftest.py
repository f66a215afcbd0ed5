"""The Spark session of a group of tests, with the jars of its service. ``scripts/services.py`` runs the groups."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from quick_files import use_quick_files
from spark_settings import SHARED

import streamstate as ss

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SERVICE = os.environ.get("STREAMSTATE_SERVICE")
HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests, and skip those of other groups than the one that runs."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker("services")
            if item.path.relative_to(HERE).parts[0] != SERVICE:
                item.add_marker(pytest.mark.skip(reason="scripts/services.py runs it, with the jars that it needs"))


@pytest.fixture(scope="session")
def service_settings() -> dict[str, str]:
    """Settings of Spark for the service; a group overrides the fixture."""
    return {}


@pytest.fixture(scope="session")
def spark(service_settings: dict[str, str]) -> Iterator[SparkSession]:
    """A session with the service's jars."""
    session = ss.session(**SHARED | {"spark.jars": os.environ["STREAMSTATE_JARS"]} | service_settings)
    use_quick_files(session)
    yield session
    session.stop()
