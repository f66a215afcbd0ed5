"""Random types as SQL expressions over ``id``, with random values and nulls everywhere."""

from __future__ import annotations

from hypothesis import strategies as st

_DOUBLES = "'NaN', '-0.0', '0.0', 'Infinity', '-Infinity', '1e-310', '-1.5', '1.7976931348623157e308'"


def _one_of(texts: str, kind: str) -> str:
    values = f"array({texts})"
    return f"cast(element_at({values}, cast(1 + pmod({{h}}, size({values})) AS int)) AS {kind})"


LEAVES = {
    "tinyint": "cast(pmod({h}, 256) - 128 AS tinyint)",
    "smallint": "cast(pmod({h}, 65536) - 32768 AS smallint)",
    "int": "hash({h})",
    "bigint": "{h}",
    "boolean": "pmod({h}, 2) = 0",
    "float": _one_of(_DOUBLES.replace("1.7976931348623157e308", "3.1"), "float"),
    "double": _one_of(_DOUBLES, "double"),
    "string": "substr(repeat(concat(hex({h}), 'é😀'), 3), 1, cast(pmod({h}, 45) AS int))",
    "collated string": "substr(hex({h}), 1, cast(pmod({h}, 9) AS int)) COLLATE UNICODE_CI",
    "char": "cast(cast(pmod({h}, 999) AS string) AS char(5))",
    "binary": "unhex(substr(hex({h}), 1, cast(2 * pmod({h}, 9) AS int)))",
    "date": "date_add(DATE'1970-01-01', cast(pmod({h}, 2000000) - 600000 AS int))",
    "timestamp": "timestamp_micros(pmod({h}, 100000000000000000) - 50000000000000000)",
    "timestamp_ntz": "cast(timestamp_micros(pmod({h}, 100000000000000000)) AS timestamp_ntz)",
    "short decimal": "cast(pmod({h}, 1000000000000) - 500000000000 AS decimal(18, 3))",
    "decimal": "cast({h} AS decimal(28, 4)) * pmod(xxhash64({h}), 100000)",
    "long decimal": _one_of(f"'-{'9' * 38}', '{'9' * 38}', '0', '-1', '128', '-129', '32768', '-32769'", "decimal(38)"),
    "decimal of eight bytes": _one_of(
        "'9223372036854775807', '9223372036854775808', '-9223372036854775808', '-9223372036854775809'", "decimal(19)"
    ),
    "day-time interval": "make_dt_interval(cast(pmod({h}, 2000000) - 1000000 AS int), 0, 0,"
    " cast(pmod({h}, 999999999) AS decimal(18, 6)) / 1000000)",
    "hours": "cast(pmod({h}, 100) AS INTERVAL HOUR)",
    "year-month interval": "make_ym_interval(0, hash({h}))",
    "years": "cast(cast(pmod({h}, 100) AS int) AS INTERVAL YEAR)",
    "interval": "make_interval(0, hash({h}) div 2, 0, hash({h}, 1), 0, 0, cast(pmod({h}, 90000000000) - 45000000000"
    " AS decimal(18, 0)) / 1000000)",
    "round interval": "make_interval(0, cast(pmod({h}, 3) AS int), 0, 0, 0, 0, 10 * pmod(xxhash64({h}), 2))",
    "void": "null",
}
"""An expression for each type; ``{h}`` is a random long."""
KEYS = ("int", "bigint", "string", "date", "decimal", "day-time interval", "years", "binary")
"""Types of map keys: Spark makes -0.0 and NaN alike, so no floats."""


@st.composite
def columns(draw: st.DrawFn, depth: int = 3) -> str:
    """An expression of a random type."""
    seed = draw(st.integers(0, 10**6))
    kinds = ["leaf"] if depth == 0 else ["leaf", "struct", "array", "map"]
    kind = draw(st.sampled_from(kinds))
    nested = columns(depth=depth - 1)
    count = f"pmod(xxhash64(id, {seed}), 4)"
    if kind == "struct":
        names = draw(st.lists(st.sampled_from("abA"), min_size=1, max_size=3))
        fields = [f"'{name}', {draw(nested)}" for name in names]
        value = f"named_struct({', '.join(fields)})"
    elif kind == "array":
        value = f"slice({_repeated(draw(nested), 3)}, 1, cast({count} AS int))"
    elif kind == "map":
        key = LEAVES[draw(st.sampled_from(KEYS))].format(h=f"xxhash64(id, {seed}, 1)")
        value = f"map_filter(map_from_arrays(array({key}), {_repeated(draw(nested), 1)}), (k, v) -> {count} > 0)"
    else:
        value = LEAVES[draw(st.sampled_from(sorted(LEAVES)))].format(h=f"xxhash64(id, {seed})")
    return f"if(pmod(xxhash64(id, {seed}, 2), {draw(st.sampled_from([2, 5, 1000]))}) = 0, null, {value})"


def _repeated(value: str, times: int) -> str:
    """An array of values that differ."""
    return f"array({', '.join(value.replace('xxhash64(id,', f'xxhash64(id, {at},') for at in range(times))})"
