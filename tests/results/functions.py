"""Input rows and aggregations whose results are computed from the state."""

from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

SCHEMA = (
    "g string, h int, x double, y double, i int, d decimal(12,2), ts timestamp, s string, b boolean, n long, z short"
)


def rows(count: int, seed: int) -> list[tuple[Any, ...]]:
    """Random rows of the schema, with nulls, NaN, negative zeros and quotes."""
    made = random.Random(seed)
    return [
        (
            made.choice(["a", "b", "c", None, "d'e"]),
            made.randrange(4),
            made.choice([None, made.gauss(0, 10), float("nan") if made.random() < 0.02 else 1.5, -0.0]),
            made.gauss(3, 5),
            made.choice([None, made.randrange(-100, 100)]),
            made.choice([None, Decimal(made.randrange(-(10**8), 10**8)).scaleb(-2)]),
            dt.datetime(2024, 1, 1, tzinfo=dt.UTC) + dt.timedelta(seconds=made.randrange(86_400)),
            made.choice(["x", "y", "zz", None]),
            made.choice([True, False, None]),
            made.randrange(-(10**12), 10**12),
            made.choice([None, made.randrange(-99, 99)]),
        )
        for _ in range(count)
    ]


COMPUTED = {
    "n_": "count(*)",
    "cx": "count(x)",
    "sx": "sum(x)",
    "si": "sum(i)",
    "sd": "sum(d)",
    "sz": "sum(z)",
    "ax": "avg(x)",
    "ai": "avg(i)",
    "an": "avg(n)",
    "ad": "avg(d)",
    "mn": "min(x)",
    "mx": "max(d)",
    "mxs": "max(s)",
    "mnt": "min(ts)",
    "fi": "first(s)",
    "la": "last(x, true)",
    "sdv": "stddev(x)",
    "sdp": "stddev_pop(y)",
    "var": "variance(i)",
    "vp": "var_pop(d)",
    "cov": "covar_pop(x, y)",
    "cvs": "covar_samp(x, y)",
    "cor": "corr(x, y)",
    "sk": "skewness(y)",
    "ku": "kurtosis(y)",
    "cif": "count_if(x > 0)",
    "ba": "bool_and(b)",
    "bo": "bool_or(b)",
    "mb": "max_by(s, x)",
    "nb": "min_by(i, ts)",
    "ratio": "sum(x) / count(x) + 1",
    "idiv": "sum(i) div count(*)",
    "imod": "sum(i) % 7",
    "tsum": "try_sum(i)",
    "rs": "regr_slope(x, y)",
    "rr": "regr_r2(x, y)",
    "bx": "bit_xor(i)",
    "fmt": "round(avg(y), 2)",
    "cond": "if(count(x) > 3, max(s), 'few')",
    "anyv": "any_value(h)",
    "pos": "count(*) filter (where x > 0)",
    "top": "max(struct(i, s))",
    "nested": "coalesce(max(i), -1) * 2 - count(*)",
    "chosen": "case when sum(i) > 10 then 'much' when sum(i) is null then null else 'little' end",
    "half": "avg(z) >= 0.5 and not bool_or(b)",
    "field": "max(struct(i, s)).i",
    "dec": "sum(d) + 1.25",
    "text": "concat('n=', cast(count(*) as string))",
    "cut": "cast(avg(y) as int)",
}
"""Aggregations that DuckDB computes from their buffers, by the names of their columns."""

OPAQUE = {
    "distinct": "approx_count_distinct(i)",
    "listed": "collect_list(i)",
    "unique": "sort_array(collect_set(s))",
    "joined": "listagg(s, ',')",
    "quartile": "percentile(y, 0.25)",
    "middle": "median(h)",
    "usual": "mode(h)",
    "roughly": "percentile_approx(x, 0.5)",
    "sketch": "hll_sketch_agg(i)",
    "estimate": "hll_sketch_estimate(hll_sketch_agg(i))",
    "kll": "kll_sketch_get_quantile_double(kll_sketch_agg_double(y), 0.5)",
    "theta": "theta_sketch_estimate(theta_sketch_agg(i))",
    "bins": "histogram_numeric(y, 3)",
    "bits": "bitmap_count(bitmap_construct_agg(bitmap_bit_position(h)))",
    "counts": "count_min_sketch(n, 0.1d, 0.9d, 1)",
    "frequent": "approx_top_k(h, 1)[0].count",
    "loud": "upper(max(s))",
    "day": "date_trunc('day', max(ts))",
    "mean": "avg(y)",
}
"""Aggregations that only Spark computes, except for the last."""

IN_ORDER = {"listed", "joined", "usual", "kll", "bins", "sketch"}
"""Those that depend on the order of rows, or on chance."""


def columns(aggregations: dict[str, str]) -> list[Column]:
    """The aggregations as columns."""
    return [F.expr(text).alias(name) for name, text in aggregations.items()]
