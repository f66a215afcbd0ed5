"""Stateful queries without Python functions, over a stream of ``k, v, t``."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from operators.running import JOIN, Query

LATE = "1 hour"

KEYS = {
    "several of all sorts": ["k", "v % 3 AS `odd name`", "v % 2 = 0 AS `a.b`", "cast(v % 4 AS tinyint) AS K"],
    "a struct": ["named_struct('A', k, 'a2', named_struct('b', v % 3, 'c', array(v % 2, null)))"],
    "a struct with one name twice": ["named_struct('a', v % 3, 'A', k, 'a', true) AS s"],
    "an array": ["array(k, null, cast(v % 3 AS string))"],
    "a map": ["map(coalesce(k, '-'), v % 3, 'z', null)"],
    "a decimal": ["cast(v % 3 AS decimal(38, 18)) / 7", "cast(v AS decimal(5, 2))"],
    "a timestamp with a zone": ["t"],
    "a timestamp without a zone": ["cast(t AS timestamp_ntz) AS local"],
    "a date": ["cast(t AS date) AS d"],
    "a day-time interval": ["make_dt_interval(v, 1, 2, 3.000004) AS i", "INTERVAL '-5' HOUR AS h"],
    "a year-month interval": ["make_ym_interval(0, cast(v AS int)) AS i", "INTERVAL -'3' YEAR AS y"],
    "a binary": ["cast(k AS binary) AS b", "array(cast('x' AS binary)) AS bs"],
    "a float": ["cast(v AS float) / 3 AS f", "if(v % 2 = 0, double('NaN'), double('-0.0')) AS d"],
    "a void beside others": ["null AS nothing", "k"],
    "nothing but a void": ["null AS nothing"],
    "nested voids": ["named_struct('a', null, 'b', v % 3) AS s", "array(null) AS a", "map('x', null) AS m"],
    "nested intervals": [
        "named_struct('d', make_dt_interval(v), 'y', array(make_ym_interval(0, cast(v AS int)))) AS s",
        "map(make_dt_interval(coalesce(v, 0)), make_ym_interval(1, cast(v AS int))) AS m",
        "if(v % 2 = 0, null, named_struct('d', make_dt_interval(v))) AS maybe",
    ],
    "names of ours": [
        *(f"v % {number} AS {name}" for number, name in enumerate(("_epoch", "_change", "_partition", "_position"), 2)),
        *(f"v % {number} AS {name}" for number, name in enumerate(("_row", "_valid_from", "_valid_to", "_key"), 2)),
    ],
    "a char and a varchar": ["cast(k AS char(8)) AS c", "cast(k AS varchar(8)) AS w"],
}
"""Grouping keys with unusual types and names, as SQL expressions."""

VALUES = {
    "the counts of two functions": ["avg(v)", "count(v)", "stddev(v)", "corr(v, v * v)"],
    "all plain types": [
        "max(cast(v % 100 AS tinyint))",
        "max(cast(v AS smallint))",
        "sum(cast(v AS float))",
        "last(if(v % 2 = 0, double('-0.0'), double('NaN')))",
        "max(v > 3)",
        "sum(cast(v AS decimal(20, 4)))",
        "max(t)",
        "min(cast(t AS timestamp_ntz))",
        "max(cast(t AS date))",
        "last(cast(k AS binary))",
    ],
    "intervals": [
        "sum(make_dt_interval(v, 1, 2, 3.000004))",
        "last(make_ym_interval(0, cast(-v AS int)))",
        "last(INTERVAL '1' DAY * v)",
        "last(array(named_struct('i', make_dt_interval(0, v), 'y', INTERVAL '2' MONTH)))",
        "last(map('a', make_dt_interval(-v)))",
        "last(make_interval(1, cast(coalesce(v, -5) AS int), 0, 3))",  # Spark refuses the nulls that it wrote itself
        "last(timestampdiff(DAY, t, t) * INTERVAL '106751991' DAY - INTERVAL '106751991' DAY)",
    ],
    "collated strings": [
        "last(k COLLATE UTF8_LCASE)",
        "max(k COLLATE UNICODE_CI)",
        "last(named_struct('c', array(k COLLATE UNICODE_CI)))",
        "last(map(coalesce(k, '-') COLLATE UTF8_LCASE, k))",
    ],
    "nested values": [
        "last(named_struct('A', k, 'a2', named_struct('b', v, 'c', array(v, null))))",
        "last(array(array(v), null, array()))",
        "last(map(coalesce(k, '-'), array(v), 'z', null))",
        "last(map(struct(k, v), struct(v AS w)))",
        "last(named_struct('a', v, 'A', k, 'a', array(named_struct('x', v, 'X', k))))",
        "last(named_struct('a.b', v, 'c d', k))",
        "last(if(v % 2 = 0, null, named_struct('a', v, 'i', make_dt_interval(0, v))))",
    ],
    "voids": [
        "last(null)",
        "last(named_struct('a', null, 'b', v))",
        "last(array(null))",
        "last(map('a', null))",
        "last(named_struct('a', null))",
        "last(array(named_struct('x', named_struct('a', null), 'b', v)))",
    ],
    "variants": [
        "last(parse_json(to_json(struct(k, v))))",
        "last(array(parse_json('[1, 2.50, null, \"x\"]')))",
        "last(named_struct('p', parse_json(cast(v AS string)), 'm', map('a', parse_json('{\"b\": 1, \"a\": 2}'))))",
    ],
    "buffers of functions": ["collect_list(v)", "collect_set(k)", "percentile(v, 0.5)", "approx_count_distinct(v)"],
    "names that SQL has to quote": ["max(v) AS `a.b`", 'max(k) AS `say "x"`', "min(v) AS `{a}=(b);\n`"],
}
"""Aggregates with unusual types and names, as SQL expressions."""


def grouped(*keys: str) -> Query:
    """A count grouped by expressions; duplicate column names get a number."""

    def build(stream: DataFrame) -> DataFrame:
        named = stream.selectExpr(*keys, "v AS input")
        names: list[str] = []
        for name in named.columns:
            names.append(f"{name}{len(names)}" if name.lower() in map(str.lower, names) else name)
        unique = named.toDF(*names)
        return unique.groupBy(*(F.col(f"`{name}`") for name in names[:-1])).agg(F.count("*"), F.max("input"))

    return Query(build, ("op0",))


def aggregated(*values: str) -> Query:
    """Aggregates grouped by ``k``."""
    return Query(lambda stream: stream.groupBy("k").agg(*map(F.expr, values)), ("op0",))


def watermarked(stream: DataFrame) -> DataFrame:
    """The stream with a watermark."""
    return stream.withWatermark("t", LATE)


def windowed(stream: DataFrame) -> DataFrame:
    """A sum by hour and key."""
    return watermarked(stream).groupBy(F.window("t", "1 hour"), "k").agg(F.sum("v"))


WINDOWS = {
    "tumbling window": Query(windowed, ("op0",)),
    "sliding window": Query(
        lambda s: watermarked(s).groupBy(F.window("t", "1 hour", "20 minutes"), "k").count(), ("op0",)
    ),
    "session window": Query(
        lambda s: watermarked(s).groupBy(F.session_window("t", "10 minutes"), "k").agg(F.sum("v")), ("op0",), "append"
    ),
    "tumbling window, append": Query(windowed, ("op0",), "append"),
}

OTHERS = {
    "global aggregation": Query(lambda s: s.agg(F.count("*"), F.max("v")), ("op0",), "complete"),
    "distinct": Query(lambda s: s.select("k").distinct(), ("op0",), "append"),
    "dropDuplicates": Query(lambda s: s.dropDuplicates(["k"]), ("op0",), "append"),
    "dropDuplicates with a watermark": Query(lambda s: watermarked(s).dropDuplicates(["k", "t"]), ("op0",), "append"),
    "dropDuplicatesWithinWatermark": Query(
        lambda s: watermarked(s).dropDuplicatesWithinWatermark(["k"]), ("op0",), "append"
    ),
    "limit": Query(lambda s: s.limit(25), ("op0",), "append"),
    "two aggregations": Query(
        lambda s: (
            watermarked(s)
            .groupBy(F.window("t", "20 minutes"), "k")
            .count()
            .groupBy(F.window("window", "1 hour"))
            .agg(F.sum("count"))
        ),
        ("op0", "op1"),
        "append",
    ),
    "join, deduplication and aggregation": Query(
        lambda s: joined_sides(s, "inner").dropDuplicates(["k", "t"]).groupBy(F.window("t", "1 hour")).count(),
        ("op0", "op1", "op2_left", "op2_right"),
        "append",
    ),
}


def joined_sides(stream: DataFrame, how: str) -> DataFrame:
    """A join of two streams of the same input with watermarks, on the key and a range of time."""
    left = watermarked(stream.where("v IS NULL OR v % 3 > 0"))
    right = stream.where("v % 2 = 0").selectExpr("k AS k2", "v AS v2", "t AS t2").withWatermark("t2", LATE)
    near = F.expr("k = k2 AND t >= t2 - INTERVAL 30 MINUTES AND t <= t2 + INTERVAL 1 HOUR")
    return left.join(right, near, how)


def with_itself(stream: DataFrame) -> DataFrame:
    """A stream joined with itself, without a watermark."""
    return stream.alias("a").join(stream.alias("b"), F.expr("a.k = b.k AND a.v < b.v"))


JOINS = {
    how: Query(lambda s, how=how: joined_sides(s, how), ("op0_left", "op0_right"), "append")  # type: ignore[misc]
    for how in ("inner", "left_outer", "right_outer", "full_outer", "left_semi")
} | {"self": Query(with_itself, ("op0_left", "op0_right"), "append")}


def in_format(version: int) -> dict[str, str]:
    """The setting for a state format of joins."""
    return {JOIN: str(version)}


def all_joins(stream: DataFrame) -> DataFrame:
    """Five joins in one query, so that one run covers them."""
    sides = [joined_sides(stream, how) for how in ("inner", "left_outer", "right_outer", "full_outer")]
    outputs = [side.select(F.concat_ws("/", "k", "k2"), F.coalesce("v", "v2")) for side in sides]
    outputs.append(joined_sides(stream, "left_semi").select("k", "v"))
    union = outputs[0]
    for output in outputs[1:]:
        union = union.union(output)
    return union


ALL_JOINS = Query(
    all_joins, tuple(f"op{operator}_{side}" for operator in range(5) for side in ("left", "right")), "append"
)
