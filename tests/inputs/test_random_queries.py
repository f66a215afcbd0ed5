"""Random queries over random inputs: every epoch's input and the rows behind a key equal those filtered by hand.

``STREAMSTATE_RANDOM_QUERIES=100`` sets the number of examples.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import functions as F

from inputs.streams import ids, read, rows_of_file, run, watermark_before, write_files

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

pytestmark = pytest.mark.slow

OfRows = Callable[[pd.DataFrame], Any]
# By name: the condition or key in SQL, and the same on the rows of a file.
FILTERS: dict[str, tuple[str, OfRows]] = {
    "all": ("true", lambda rows: rows.id >= 0),
    "most": ("x > 0.3", lambda rows: rows.x > 0.3),
    "some users": ("upper(user) IN ('A', 'C')", lambda rows: rows.user != "b"),
    "none": ("id < 0", lambda rows: rows.id < 0),
}
KEYS: dict[str, tuple[str, OfRows]] = {
    "user": ("user", lambda rows: rows.user),
    "upper": ("upper(user)", lambda rows: rows.user.str.upper()),
    "remainder": ("id % 7", lambda rows: rows.id % 7),
    "null": ("if(x > 0.5, user, null)", lambda rows: rows.user.mask(rows.x <= 0.5)),
}
WINDOWS = {"none": None, "hour": (60, 60), "sliding": (60, 20), "late start": (30, 30)}


@dataclass(frozen=True)
class Drawn:
    """A query and its input."""

    where: str
    keys: tuple[str, ...]
    window: str
    mode: str
    sizes: tuple[int, ...]
    seed: int

    def query(self, rows: DataFrame) -> DataFrame:
        """The query over a stream."""
        columns: list[Column] = [F.expr(KEYS[key][0]).alias(key) for key in self.keys]
        if (span := WINDOWS[self.window]) is not None:
            columns.append(F.window("ts", *(f"{minutes} minutes" for minutes in span)).alias("w"))
        return rows.where(FILTERS[self.where][0]).groupBy(*columns).agg(F.count("*").alias("n"), F.max("x").alias("x"))

    def falls_on(self, rows: pd.DataFrame, row: pd.Series[Any], watermark: pd.Timestamp) -> pd.DataFrame:
        """The rows of an epoch that fall on the key of one of its rows."""
        kept = FILTERS[self.where][1](rows)
        for key in self.keys:
            values = KEYS[key][1](rows)
            kept &= values.isna() if pd.isna(values[row.name]) else values == values[row.name]
        if (window := self.window_of(row)) is not None:
            kept &= (rows.ts >= window["start"]) & (rows.ts < window["end"])
            if self.mode != "complete" and window["end"] <= watermark:
                kept &= False
        return pd.DataFrame(rows[kept])

    def key_of(self, rows: pd.DataFrame, row: pd.Series[Any]) -> dict[str, Any]:
        """The key of a row, in the last of its windows."""
        key: dict[str, Any] = {name: KEYS[name][1](rows)[row.name] for name in self.keys}
        key = {
            name: None if pd.isna(value) else getattr(value, "item", lambda value=value: value)()
            for name, value in key.items()
        }
        window = self.window_of(row)
        return key if window is None else key | {"w": window}

    def window_of(self, row: pd.Series[Any]) -> dict[str, pd.Timestamp] | None:
        """The last of a row's windows."""
        if (span := WINDOWS[self.window]) is None:
            return None
        start = row.ts.floor(f"{span[1]}min")
        return {"start": start, "end": start + pd.Timedelta(minutes=span[0])}


@st.composite
def drawn(draw: st.DrawFn) -> Drawn:
    """A query that Spark can run: without a window nothing is ever complete."""
    window = draw(st.sampled_from(sorted(WINDOWS)))
    return Drawn(
        where=draw(st.sampled_from(sorted(FILTERS))),
        keys=tuple(draw(st.lists(st.sampled_from(sorted(KEYS)), min_size=1, max_size=2, unique=True))),
        window=window,
        mode=draw(st.sampled_from(["update", "complete", *["append"] * (window != "none")])),
        sizes=tuple(draw(st.lists(st.integers(1, 60), min_size=2, max_size=3))),
        seed=draw(st.integers(0, 10**6)),
    )


def check(spark: SparkSession, drawn_query: Drawn) -> None:
    """Run a query, and ask of every epoch about the key of its first and its last row."""
    files = [rows_of_file(epoch, drawn_query.seed, size) for epoch, size in enumerate(drawn_query.sizes)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_files(folder / "in", files)
        history, progress = run(drawn_query.query(read(spark, folder / "in")), folder, drawn_query.mode)
        for epoch, rows in enumerate(files):
            assert history.inputs(epoch).count() == progress[epoch]["numInputRows"] == len(rows)
            watermark = watermark_before(history, epoch)
            for at in {0, len(rows) - 1}:
                row = rows.iloc[at]
                why = history.why(epoch, key=drawn_query.key_of(rows, row))
                expected = drawn_query.falls_on(rows, row, watermark)
                assert ids(why.sides) == [sorted(expected.id)]
                assert why.count() == len(expected)
                if drawn_query.window == "none":  # a window can also end in the epoch
                    assert (why.cause == "input") == bool(len(expected))


def test_one_query(spark: SparkSession) -> None:
    """A query with all of it: a filter, a key with nulls, a window, late rows."""
    check(spark, Drawn("most", ("null",), "sliding", "update", (40, 30), 1))


@pytest.mark.exhaustive
def test_why_of_any_query(spark: SparkSession) -> None:
    """Whatever is drawn."""
    examples = int(os.environ.get("STREAMSTATE_RANDOM_QUERIES", "30"))

    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate])
    @given(drawn())
    def any_query(chosen: Drawn) -> None:
        check(spark, chosen)

    any_query()
