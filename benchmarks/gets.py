"""Direct gets and SQL over snapshots, at the sizes for which S-QUERY published figures.

S-QUERY (Verheijde, Karakoidas, Fragkoulis, Katsifodimos, ICDE 2022) ran on seven nodes; here one process asks on one
machine, so that the two say how far apart they are and not which design is the faster one.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

import streamstate as ss
from benchmarks.harness import Measurement, timed
from benchmarks.inspect import captured
from benchmarks.size import Size

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PUBLISHED = {1: 115_037, 10: 23_186, 100: 3_133, 1_000: 906, 10_000: 362, 100_000: 81}
"""Queries a second for gets of so many keys."""
_PUBLISHED_SQL = {1_000: 0.021, 10_000: 0.093, 100_000: 0.157}
"""Median seconds of SQL over a snapshot of so many keys."""
_ASKED = 31


def gets(spark: SparkSession, folder: Path, size: Size) -> Iterator[Measurement]:
    """Keys of a pinned past epoch by ``lookup`` (one) and ``lookup_many``; then SQL over whole snapshots."""
    captured(spark, folder / "gets", size)
    table = ss.open_store(folder / "gets" / "store")["load"].at(size.epochs // 2).table()
    random = np.random.default_rng(22)
    for count, published in _PUBLISHED.items():
        names = [f"key-{key}" for key in random.choice(size.keys, count, replace=False)]
        get = (
            partial(table.lookup, key=names[0]) if count == 1 else partial(table.lookup_many, pa.table({"key": names}))
        )
        seconds = _median(get)
        against = "S-QUERY, 7 nodes, published"
        yield Measurement(f"get {count:,} keys", "one process", seconds, against, 1 / published, _ASKED, str(size))
    for keys, latency in _PUBLISHED_SQL.items():
        yield _sql(spark, folder / str(keys), Size(keys, keys // 20, size.epochs), latency)


def _sql(spark: SparkSession, folder: Path, size: Size, published: float) -> Measurement:
    captured(spark, folder, size)
    store = ss.open_store(folder / "store")
    past = size.epochs // 2
    statement = (
        f"SELECT now.count, count(*) AS keys, sum(now.sum - past.sum) AS more FROM load AS now"
        f" JOIN load VERSION AS OF {past} AS past USING (key) GROUP BY now.count"
    )
    seconds = _median(lambda: store.sql(statement).to_arrow())
    name = f"SQL over snapshots of {size.keys:,} keys: two epochs joined and grouped"
    return Measurement(name, "one process", seconds, "S-QUERY, 7 nodes, published", published, _ASKED, str(size))


def _median(ask: Callable[[], object]) -> float:
    ask()
    return statistics.median([timed(ask) for _ in range(_ASKED)])
