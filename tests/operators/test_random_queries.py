"""Random queries, inputs, restarts and captures: every table at every epoch is what Spark's reader says.

What is drawn: the operators and the types of keys and values; how Spark keeps the state; how keys are spread, how many
rows an epoch has and how late they are; how often the query stops and starts again, or is repartitioned in between; and
when it is captured, by how long a pass, with how small a keyframe. ``STREAMSTATE_RANDOM_QUERIES=100`` draws so many
instead of a few.
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
from streamstate.snapshots import capture, table_capture

EXAMPLES = int(os.environ.get("STREAMSTATE_RANDOM_QUERIES", "3"))
STATE = {"RocksDB": ROCKSDB, "format 1": FORMAT_1, "changelog off": CHANGELOG_OFF, "HDFS": HDFS}
# Interval arithmetic on drawn numbers overflows, which is Spark's to refuse.
SAFE = sorted(set(VALUES) - {"intervals"})
KEYED = sorted(set(KEYS) - {"nothing but a void"})


@dataclass(frozen=True)
class Step:
    """One start of the query: the epochs' rows, what comes before it and after it."""

    epochs: list[pa.Table] = field(repr=False)
    repartition: int | None
    captured: bool

    def __repr__(self) -> str:
        """Short enough for a report."""
        sizes = [table.num_rows for table in self.epochs]
        return f"Step(rows={sizes}, repartition={self.repartition}, captured={self.captured})"


@st.composite
def inputs(draw: st.DrawFn, epoch: int) -> pa.Table:
    """One epoch's rows: many keys or few, in order or late, with nulls."""
    names = (
        st.sampled_from(["a", "b", "A", "", "ü", "long " * 9]) if draw(st.booleans()) else st.text("abc", max_size=4)
    )
    row = st.tuples(st.none() | names, st.none() | st.integers(0, 40), st.integers(-90, 60))
    rows = draw(st.lists(row, min_size=1, max_size=draw(st.sampled_from([2, 12, 40]))))
    moments = [START + dt.timedelta(hours=epoch, minutes=minutes) for _, _, minutes in rows]
    return pa.table([[key for key, _, _ in rows], [number for _, number, _ in rows], moments], schema=INPUT)


@st.composite
def queries(draw: st.DrawFn) -> tuple[str, Query, Mapping[str, str]]:
    """What runs, its description, and how Spark keeps its state."""
    kind = draw(st.sampled_from(["grouped", "aggregated", "window", "other", "join", "pandas", "transform"]))
    if kind == "grouped":
        chosen = [draw(st.sampled_from(KEYED))]
        names = [f"({one}) AS key{at}" if " AS " not in one else one for at, one in enumerate(KEYS[chosen[0]])]
        query = grouped(*names)
    elif kind == "aggregated":
        chosen = draw(st.lists(st.sampled_from(SAFE), min_size=1, max_size=3, unique=True))
        query = aggregated(*(one for name in chosen for one in VALUES[name]))
    else:
        of = {"window": WINDOWS, "other": OTHERS, "join": JOINS, "pandas": PANDAS_STATE, "transform": TRANSFORM}[kind]
        chosen = [draw(st.sampled_from(sorted(of)))]
        query = of[chosen[0]]
    kept = draw(st.sampled_from(sorted(STATE)))
    if kind == "transform" and kept == "HDFS":
        kept = "RocksDB"  # Spark has no transformWithState there
    return f"{kind}: {', '.join(chosen)}; {kept}", query, STATE[kept]


@st.composite
def steps(draw: st.DrawFn) -> list[Step]:
    """Two or three starts of one to three epochs each."""
    found: list[Step] = []
    epoch = 0
    for number in range(draw(st.integers(1, 3))):
        count = draw(st.integers(1, 3))
        tables = [draw(inputs(epoch + at)) for at in range(count)]
        epoch += count
        repartition = draw(st.sampled_from([None, None, None, 1, 3])) if number else None
        found.append(Step(tables, repartition, draw(st.booleans())))
    return found


@pytest.mark.slow
@pytest.mark.timeout(0 if EXAMPLES > 20 else 600)
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
        patch.setattr(capture, "_EPOCHS_A_PASS", epochs_a_pass)
        patch.setattr(table_capture, "_SMALLEST_KEYFRAME", smallest_keyframe)
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
