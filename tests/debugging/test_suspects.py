"""What in a query may come out otherwise is found in its plan and in its Python functions."""

from __future__ import annotations

import datetime as dt
import os
import random
import time
import uuid
from collections.abc import Callable
from time import time as moment
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType

from streamstate.debugger.audit.plan import suspects_of
from streamstate.debugger.audit.python_code import suspects_in
from streamstate.debugger.audit.suspects import Evidence, Kind, Suspect, ranked

COUNTER = [0]
SEEN = 0
RATES = {"a": 1}


def helper(v: int) -> float:
    """Is called by others."""
    return v * random.random()


def through_another(v: int) -> float:
    """Calls a function of the user's own."""
    return helper(v)


def imports_itself(v: int) -> str:
    """Imports where it is needed."""
    from uuid import uuid4 as fresh

    return f"{v}{fresh()}"


def counts_in_a_list(v: int) -> int:
    """Changes a container of the module."""
    COUNTER[0] += 1
    return v + COUNTER[0]


def counts_in_a_global(v: int) -> int:
    """Changes a global."""
    global SEEN  # noqa: PLW0603 (what is to be found)
    SEEN += 1
    return v + SEEN


def only_reads(v: int) -> int:
    """A constant of the module, the row, and arithmetic on times that were given."""
    return v + RATES["a"] + dt.datetime.fromtimestamp(v, dt.UTC).year + int(time.strftime("%Y", (2026,) * 9))


FOUND: dict[str, tuple[Callable[..., Any], str, Kind]] = {
    "random": (helper, "random.random", Kind.RANDOM),
    "through another function": (through_another, "random.random", Kind.RANDOM),
    "inside a list": (lambda v: [uuid.uuid4() for _ in range(v)], "uuid.uuid4", Kind.RANDOM),
    "imported inside": (imports_itself, "uuid.uuid4", Kind.RANDOM),
    "under another name": (lambda v: v + moment(), "time.time", Kind.CLOCK),
    "datetime": (lambda _: dt.datetime.now(dt.UTC), "datetime.datetime.now", Kind.CLOCK),
    "pandas": (lambda _: pd.Timestamp.now(), "pandas.Timestamp.now", Kind.CLOCK),
    "the environment": (lambda _: os.environ["HOME"], "os.environ", Kind.OUTSIDE),
    "a file": (lambda path: open(path).read(), "open", Kind.OUTSIDE),  # noqa: PTH123, SIM115
    "a list of the module": (counts_in_a_list, "global COUNTER", Kind.OUTSIDE),
    "a global": (counts_in_a_global, "global SEEN", Kind.OUTSIDE),
}


@pytest.mark.parametrize("name", FOUND)
def test_what_python_reads_outside_is_found(name: str) -> None:
    """By the name that its module gives it, with the function and the line."""
    function, what, kind = FOUND[name]
    found = suspects_in(function, "u")
    assert [(one.what, one.kind) for one in found] == [(what, kind)]
    assert "of test_suspects.py" in found[0].where


def test_what_only_reads_its_arguments_is_not_suspected() -> None:
    """Constants and calculations with times are nobody's fault."""
    assert suspects_in(only_reads, "u") == []


@F.udf(DoubleType())
def noisy(v: int) -> float:
    """Draws a number."""
    return v * random.random()


PLANS: dict[str, tuple[Callable[[DataFrame], DataFrame], set[str]]] = {
    "rand": (lambda s: s.withColumn("r", F.rand()).groupBy("k").agg(F.max("r")), {"rand()"}),
    "uuid": (lambda s: s.withColumn("r", F.expr("uuid()")).groupBy("k").agg(F.max("r")), {"uuid()"}),
    "python": (lambda s: s.withColumn("r", noisy("v")).groupBy("k").agg(F.max("r")), {"random.random"}),
    "epoch's time": (lambda s: s.withColumn("r", F.current_timestamp()).groupBy("k").agg(F.max("r")), set()),
    "wall clock": (lambda s: s.withColumn("r", F.expr("now()")).groupBy("k").agg(F.max("r")), {"now()"}),
    "file name": (lambda s: s.withColumn("r", F.input_file_name()).groupBy("k").agg(F.max("r")), set()),
    "partition": (lambda s: s.withColumn("r", F.spark_partition_id()).groupBy("k").count(), {"SPARK_PARTITION_ID()"}),
    "sum of doubles": (lambda s: s.groupBy("k").agg(F.sum(F.col("v").cast("double"))), {"sum(CAST(v AS DOUBLE))"}),
    "sum of longs": (lambda s: s.groupBy("k").agg(F.sum("v")), set()),
    "orders": (lambda s: s.groupBy("k").agg(F.first("v"), F.collect_list("v")), {"first(v)", "collect_list(v)"}),
    "duplicates": (lambda s: s.dropDuplicates(["k"]), {"Deduplicate"}),
}


@pytest.fixture(scope="module")
def stream(spark: SparkSession) -> DataFrame:
    """Rows of ``k`` and ``v``; nothing is run."""
    return spark.readStream.format("rate").load().selectExpr("cast(value % 3 AS string) AS k", "value AS v")


@pytest.mark.parametrize("name", PLANS)
def test_what_a_plan_holds_is_found(stream: DataFrame, name: str) -> None:
    """Whatever may come out otherwise, and nothing that a replay repeats."""
    build, what = PLANS[name]
    assert {one.what for one in suspects_of(build(stream))} == what


def test_a_suspect_knows_the_columns_it_flows_into(stream: DataFrame) -> None:
    """Through projections, to the columns that the aggregate remembers."""
    frame = stream.withColumn("r", F.rand()).withColumn("s", F.col("r") * 2).groupBy("k").agg(F.max("s"), F.min("v"))
    (one,) = suspects_of(frame)
    assert one.columns == {"max"}


def _suspect(kind: Kind, *columns: str) -> Suspect:
    return Suspect(kind.value, "somewhere", "it may", "not", kind, frozenset(columns))


def test_what_was_found_decides_who_is_accused() -> None:
    """Chance where replays differ among themselves, the outside where they agree, order where partitions matter."""
    everyone = [_suspect(kind) for kind in Kind]

    def first(**evidence: Any) -> Kind:
        return ranked(everyone, Evidence(None, **evidence))[0].kind

    assert first(same_partitions=True, agree=False) in (Kind.RANDOM, Kind.CLOCK)
    assert first(same_partitions=True, agree=True) is Kind.OUTSIDE
    assert first(same_partitions=False, agree=False) in (Kind.ORDER, Kind.PARTITION)
    column = Evidence("max_2", same_partitions=True, agree=False)
    assert ranked([_suspect(Kind.RANDOM, "min"), _suspect(Kind.ORDER, "max")], column)[0].kind is Kind.ORDER
    assert _suspect(Kind.PARTITION) not in ranked(everyone, column)
