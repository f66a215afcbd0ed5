"""A query and a fork of it that tests of promotions copy."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from recovery.promotable import Pair


@pytest.fixture(scope="session")
def made(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """A query and a fork with other state, both stopped at epoch 1."""
    return Pair.made(spark, tmp_path_factory.mktemp("made"))


@pytest.fixture
def pair(made: Pair, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """A copy of the query and its fork."""
    return made.copied(tmp_path_factory.mktemp("pair"))
