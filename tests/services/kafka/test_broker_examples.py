"""The examples in the docstrings of the tutorials' broker."""

from __future__ import annotations

import doctest
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from examples.docstrings import BROKER, examples_of

import streamstate as ss
from streamstate.tutorials import broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.slow
def test_the_examples_of_the_broker_run(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker of its own gets the rows of a frame."""
    monkeypatch.chdir(tmp_path)
    flights = spark.range(3).selectExpr("CAST(id AS string) AS value")
    for test in examples_of(BROKER):
        test.globs |= {"ss": ss, "broker": broker, "flights": flights}
        assert doctest.DocTestRunner(verbose=False).run(test).failed == 0
