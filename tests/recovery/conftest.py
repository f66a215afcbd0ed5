"""A query and a fork of it that tests of promotions copy."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from recovery.promotable import Pair
from streamstate.operations.promotion import promoting
from streamstate.snapshots.spark.state_comparison import StateComparison


@pytest.fixture(scope="session")
def made(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """A query and a fork with other state, both stopped at epoch 1."""
    return Pair.made(spark, tmp_path_factory.mktemp("made"))


@pytest.fixture
def pair(made: Pair, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """A copy of the query and its fork."""
    return made.copied(tmp_path_factory.mktemp("pair"))


@pytest.fixture
def uncompared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Promotions do not compare the states, which takes most of their time and does not change what they do."""
    same = StateComparison((), {"op0": (3, 3)}, {"op0": (3, 3)})
    monkeypatch.setattr(promoting, "compare_states", lambda *_, **__: same)
