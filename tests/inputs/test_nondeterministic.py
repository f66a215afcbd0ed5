"""Answers that need the query's expressions again say which of them may give other rows."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from inputs.streams import read, rows_of_file, run, write_files
from streamstate.state_inspect.suspects.suspect import SuspectKind

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_nondeterministic_expressions_are_named(spark: SparkSession, tmp_path: Path) -> None:
    """Those below the operator are, in text and HTML; what stands above it makes no other rows."""
    write_files(tmp_path / "in", [rows_of_file(0, 0, 20)])

    @F.udf("double")
    def now(_: float) -> float:
        return time.time()

    rows = read(spark, tmp_path / "in").where(F.rand() < 2).where(now("x") > 0)
    query = rows.groupBy("user").agg(F.count("*").alias("n")).withColumn("noise", F.randn())
    history, _ = run(query, tmp_path, "update")
    why, late = history.why(0, table="op0", user="a"), history.late(0)
    for answer in (why, late):
        assert {suspect.kind for suspect in answer.nondeterministic} == {SuspectKind.RANDOM, SuspectKind.CLOCK}
        assert {suspect.what for suspect in answer.nondeterministic} == {"rand()", "time.time"}
        for text in (str(answer), answer._repr_html_()):
            assert "rand(), time.time may differ when run again" in text
            assert "randn" not in text
    assert why.count() == len(rows_of_file(0, 0, 20).query("user == 'a'"))
