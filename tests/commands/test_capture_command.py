"""``streamstate capture``: what it says of a query whose plan is not known, and how that is mended."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import streamstate as ss
from streamstate.command_line import main

CODE = """
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

def build():
    frame = SparkSession.active().readStream.schema("k string, v long").parquet({folder!r})
    return frame.groupBy("k").agg(F.count("*").alias("n"), F.avg("v").alias("mean"), F.max("v").alias("most"))
"""


@pytest.fixture
def checkpoint(counted: tuple[Path, Path]) -> str:
    """A query of five epochs that nobody has described."""
    return str(counted[0])


def test_unknown_names_are_said_with_the_line_that_mends_them(
    checkpoint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The state has the columns sum and count; the query returns n, mean and most."""
    assert main(["capture", checkpoint, "--store", str(tmp_path / "store"), "--name", "counts"]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert "plan is not known" in last
    assert "--code MODULE:FUNCTION" in last


def test_code_records_the_plan(
    spark: SparkSession, checkpoint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The query's result is then known, with its names; nothing more is said."""
    (tmp_path / "job.py").write_text(CODE.format(folder=str(Path(checkpoint).parent / "input")))
    store = str(tmp_path / "store")
    words = ["--name", "counts", "--code", f"{tmp_path / 'job.py'}:build"]
    assert main(["capture", checkpoint, "--store", store, *words]) == 0
    assert "plan is not known" not in capsys.readouterr().out
    history = ss.open_store(store)["counts"]
    assert history.results() == ["result"]
    assert history.live().result().value_columns == ["n", "mean", "most"]
