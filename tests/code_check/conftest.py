"""The queries before a change, which all files share."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from code_check.started import Started


@pytest.fixture(scope="session")
def started(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Started:
    """The queries before the change."""
    return Started(spark, tmp_path_factory.mktemp("checked"))
