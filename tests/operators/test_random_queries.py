"""Random queries, inputs, restarts and captures: every table at every epoch equals Spark's reader.

Drawn are the operators and the types of keys and values; the state store provider; the distribution of keys, the
number of rows per epoch and their lateness; restarts and repartitions of the query; and when it is captured, with the
number of epochs per pass and the minimum size of keyframes. ``STREAMSTATE_RANDOM_QUERIES=100`` sets the number of
examples.
"""

from __future__ import annotations

import datetime as dt
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from operators.processors import PANDAS_STATE, TRANSFORM
from operators.queries import JOINS, KEYS, OTHERS, VALUES, WINDOWS, aggregated, grouped
from operators.running import CHANGELOG_OFF, FORMAT_1, HDFS, INPUT, ROCKSDB, START, Query, Run
from streamstate.snapshots.capture import epoch_commit
from streamstate.snapshots.store import keyframes

EXAMPLES = int(os.environ.get("STREAMSTATE_RANDOM_QUERIES", "3"))
STATE = {"RocksDB": ROCKSDB, "format 1": FORMAT_1, "changelog off": CHANGELOG_OFF, "HDFS": HDFS}
# Spark fails if interval arithmetic on drawn numbers overflows.
SAFE = sorted(set(VALUES) - {"intervals"})
KEYED = sorted(set(KEYS) - {"nothing but a void"})


@dataclass(frozen=True)
class Step:
    """One start of the query: its input, an optional repartition before it, and whether it is captured after it."""

    epochs: list[pa.Table] = field(repr=False)
    repartition: int | None
    captured: bool

    def __repr__(self) -> str:
        """The numbers of rows instead of the rows."""
        sizes = [table.num_rows for table in self.epochs]
        return f"Step(rows={sizes}, repartition={self.repartition}, captured={self.captured})"


@st.composite
def inputs(draw: st.DrawFn, epoch: int) -> pa.Table:
    """The rows of one epoch, with many or few keys, late rows and nulls."""
    names = (
        st.sampled_from(["a", "b", "A", "", "ü", "long " * 9]) if draw(st.booleans()) else st.text("abc", max_size=4)
    )
    row = st.tuples(st.none() | names, st.none() | st.integers(0, 40), st.integers(-90, 60))
    rows = draw(st.lists(row, min_size=1, max_size=draw(st.sampled_from([2, 12, 40]))))
    times = [START + dt.timedelta(hours=epoch, minutes=minutes) for _, _, minutes in rows]
    return pa.table([[key for key, _, _ in rows], [number for _, number, _ in rows], times], schema=INPUT)


@st.composite
def queries(draw: st.DrawFn) -> tuple[str, Query, Mapping[str, str]]:
    """A description, the query, and the settings of its state store."""
    kind = draw(st.sampled_from(["grouped", "aggregated", "window", "other", "join", "pandas", "transform"]))
    if kind == "grouped":
        chosen = [draw(st.sampled_from(KEYED))]
        keys = [key if " AS " in key else f"({key}) AS key{index}" for index, key in enumerate(KEYS[chosen[0]])]
        query = grouped(*keys)
    elif kind == "aggregated":
        chosen = draw(st.lists(st.sampled_from(SAFE), min_size=1, max_size=3, unique=True))
        query = aggregated(*(value for name in chosen for value in VALUES[name]))
    else:
        operators = {"window": WINDOWS, "other": OTHERS, "join": JOINS, "pandas": PANDAS_STATE, "transform": TRANSFORM}[
            kind
        ]
        chosen = [draw(st.sampled_from(sorted(operators)))]
        query = operators[chosen[0]]
    provider = draw(st.sampled_from(sorted(STATE)))
    if kind == "transform" and provider == "HDFS":
        provider = "RocksDB"  # HDFS does not support transformWithState
    return f"{kind}: {', '.join(chosen)}; {provider}", query, STATE[provider]


@st.composite
def steps(draw: st.DrawFn) -> list[Step]:
    """One to three starts of one to three epochs each."""
    result: list[Step] = []
    epoch = 0
    for number in range(draw(st.integers(1, 3))):
        count = draw(st.integers(1, 3))
        tables = [draw(inputs(epoch + offset)) for offset in range(count)]
        epoch += count
        repartition = draw(st.sampled_from([None, None, None, 1, 3])) if number else None
        result.append(Step(tables, repartition, draw(st.booleans())))
    return result


@pytest.mark.slow
@pytest.mark.timeout(0 if EXAMPLES > 20 else 1800)
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(queries(), steps(), st.integers(1, 50), st.sampled_from([0, 10, 50_000]))
def test_every_epoch_of_any_query(
    spark: SparkSession,
    drawn: tuple[str, Query, Mapping[str, str]],
    starts: list[Step],
    epochs_a_pass: int,
    smallest_keyframe: int,
) -> None:
    """Whatever runs, whenever it is captured, each visible epoch is exactly Spark's."""
    _, query, kept = drawn
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(epoch_commit, "_EPOCHS_A_PASS", epochs_a_pass)
        patch.setattr(keyframes, "SMALLEST_KEYFRAME", smallest_keyframe)
        run = Run(spark, Path(folder) / "run")
        for step in starts:
            if step.repartition is not None and kept is ROCKSDB and not query.conf:
                spark._streamingCheckpointManager.repartition(str(run.checkpoint), step.repartition, False)
            run.start_with(query, step.epochs, kept)
            if step.captured:
                run.capture()
        run.capture()
        history = run.history
        assert history.captured() == list(range(history.captured()[-1] + 1))
        assert run.check() == sum(len(history.at(epoch).tables()) for epoch in history.captured())
