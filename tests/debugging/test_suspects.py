"""Sources of nondeterminism are found in a query's plan and in its Python functions."""

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

from streamstate.replay.audit.report import Evidence, ranked
from streamstate.state_inspect.suspects.plan_suspects import suspects_of
from streamstate.state_inspect.suspects.python_suspects import suspects_in
from streamstate.state_inspect.suspects.suspect import Suspect, SuspectKind

COUNTER = [0]
SEEN = 0
RATES = {"a": 1}


def helper(v: int) -> float:
    """Use a random number."""
    return v * random.random()


def through_another(v: int) -> float:
    """Call another of the user's functions."""
    return helper(v)


def imports_itself(v: int) -> str:
    """Import a module inside the function."""
    from uuid import uuid4 as fresh

    return f"{v}{fresh()}"


def counts_in_a_list(v: int) -> int:
    """Change a module-level list."""
    COUNTER[0] += 1
    return v + COUNTER[0]


def counts_in_a_global(v: int) -> int:
    """Change a global variable."""
    global SEEN  # noqa: PLW0603 (this must be found)
    SEEN += 1
    return v + SEEN


def only_reads(v: int) -> int:
    """Use a module-level constant, the argument, and arithmetic on given times."""
    return v + RATES["a"] + dt.datetime.fromtimestamp(v, dt.UTC).year + int(time.strftime("%Y", (2026,) * 9))


FOUND: dict[str, tuple[Callable[..., Any], str, SuspectKind]] = {
    "random": (helper, "random.random", SuspectKind.RANDOM),
    "through another function": (through_another, "random.random", SuspectKind.RANDOM),
    "inside a list": (lambda v: [uuid.uuid4() for _ in range(v)], "uuid.uuid4", SuspectKind.RANDOM),
    "imported inside": (imports_itself, "uuid.uuid4", SuspectKind.RANDOM),
    "under another name": (lambda v: v + moment(), "time.time", SuspectKind.CLOCK),
    "datetime": (lambda _: dt.datetime.now(dt.UTC), "datetime.datetime.now", SuspectKind.CLOCK),
    "pandas": (lambda _: pd.Timestamp.now(), "pandas.Timestamp.now", SuspectKind.CLOCK),
    "the environment": (lambda _: os.environ["HOME"], "os.environ", SuspectKind.OUTSIDE),
    "a file": (lambda path: open(path).read(), "open", SuspectKind.OUTSIDE),  # noqa: PTH123, SIM115
    "a list of the module": (counts_in_a_list, "global COUNTER", SuspectKind.OUTSIDE),
    "a global": (counts_in_a_global, "global SEEN", SuspectKind.OUTSIDE),
}


@pytest.mark.parametrize("name", FOUND)
def test_nondeterministic_calls_in_python_are_found(name: str) -> None:
    """A suspect has the call's full name and its location."""
    function, what, kind = FOUND[name]
    found = suspects_in(function, "u")
    assert [(suspect.what, suspect.kind) for suspect in found] == [(what, kind)]
    assert "of test_suspects.py" in found[0].where


def test_deterministic_functions_are_not_suspected() -> None:
    """Constants and calculations with given times are deterministic."""
    assert suspects_in(only_reads, "u") == []


@F.udf(DoubleType())
def noisy(v: int) -> float:
    """Multiply by a random number."""
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
    """A streaming DataFrame with ``k`` and ``v``, which is not run."""
    return spark.readStream.format("rate").load().selectExpr("cast(value % 3 AS string) AS k", "value AS v")


@pytest.mark.parametrize("name", PLANS)
def test_nondeterministic_expressions_in_a_plan_are_found(stream: DataFrame, name: str) -> None:
    """Expressions that a replay repeats exactly are not suspected."""
    build, expected = PLANS[name]
    assert {suspect.what for suspect in suspects_of(build(stream)._jdf.queryExecution().analyzed())} == expected


def test_a_suspect_has_the_columns_it_flows_into(stream: DataFrame) -> None:
    """Columns are traced through projections to the buffer columns of the aggregate."""
    frame = stream.withColumn("r", F.rand()).withColumn("s", F.col("r") * 2).groupBy("k").agg(F.max("s"), F.min("v"))
    (suspect,) = suspects_of(frame._jdf.queryExecution().analyzed())
    assert suspect.columns == {"max"}


def _suspect(kind: SuspectKind, *columns: str) -> Suspect:
    return Suspect(kind.value, "somewhere", "it may", "not", kind, frozenset(columns))


def test_the_evidence_ranks_the_suspects() -> None:
    """Randomness is first if the replays disagree, outside data if they agree, order if the partitioning matters."""
    suspects = [_suspect(kind) for kind in SuspectKind]

    def first(**evidence: Any) -> SuspectKind:
        return ranked(suspects, Evidence(None, **evidence))[0].kind

    assert first(same_partitions=True, agree=False) in (SuspectKind.RANDOM, SuspectKind.CLOCK)
    assert first(same_partitions=True, agree=True) is SuspectKind.OUTSIDE
    assert first(same_partitions=False, agree=False) in (SuspectKind.ORDER, SuspectKind.PARTITION)
    column = Evidence("max_2", same_partitions=True, agree=False)
    assert (
        ranked([_suspect(SuspectKind.RANDOM, "min"), _suspect(SuspectKind.ORDER, "max")], column)[0].kind
        is SuspectKind.ORDER
    )
    assert _suspect(SuspectKind.PARTITION) not in ranked(suspects, column)
