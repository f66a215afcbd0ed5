"""Every value that is shown or printed is the value that the store holds, whatever its type: Arrow is the oracle."""

from __future__ import annotations

import contextlib
import datetime as dt
import io
import json
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from html import escape, unescape
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

import streamstate as ss
from streamstate.command_line import main
from streamstate.command_line.output import plain as as_json
from streamstate.reports import History
from streamstate.snapshots.store.changelog import log_schema
from streamstate.snapshots.store.delta import append_once, open_or_create
from streamstate.snapshots.store.entries import Entry, TableEntry
from streamstate.snapshots.store.layout import CAPTURED, Layout
from streamstate.snapshots.store.manifest import Manifest
from streamstate.snapshots.store.registry import register
from streamstate.state_inspect.cell_text import canonical, cell
from streamstate.state_inspect.frames import as_column, frame_tuples
from streamstate.state_inspect.inputs.shown_rows import fetched_frame
from streamstate.widgets import DiffView, KeyHistoryView, StateBrowser
from streamstate.widgets.export.album import encoded

BEYOND_A_DOUBLE = 2**53 + 1
NAN = float("nan")
NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
HOUR = {"start": NOON, "end": NOON + dt.timedelta(hours=1)}
WINDOW = pa.struct([("start", pa.timestamp("us", "UTC")), ("end", pa.timestamp("us", "UTC"))])
INTEGERS, ARRAY = pa.struct([("v", pa.int64()), ("k", pa.string())]), pa.list_(pa.int64())
DEEP = pa.list_(pa.struct([("f", pa.float64()), ("m", pa.map_(ARRAY, pa.bool_()))]))
FIRST, LAST = dt.datetime(2, 1, 1), dt.datetime(9999, 1, 1)  # noqa: DTZ001 (times without a zone)
LEAVES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int8(): st.integers(-128, 127),
    pa.int64(): st.sampled_from([0, 1, -1, BEYOND_A_DOUBLE, -BEYOND_A_DOUBLE, 2**63 - 1, -(2**63)]),
    pa.float32(): st.floats(width=32),
    pa.float64(): st.sampled_from([NAN, -0.0, 0.1 + 0.2, 1e300, float("inf"), -float("inf"), 2.0**53]),
    pa.bool_(): st.booleans(),
    pa.string(): st.sampled_from(["", "null", "nan", "None", "a", "<b>&", 'quo"te', "\u202e\n"]),
    pa.binary(): st.sampled_from([b"", b"\x00\xff", b"null"]),
    pa.date32(): st.dates(),
    pa.timestamp("us", "UTC"): st.datetimes(FIRST, LAST, timezones=st.sampled_from([dt.UTC])),
    pa.timestamp("us"): st.datetimes(FIRST, LAST),
    pa.decimal128(38, 0): st.sampled_from([Decimal(10**38 - 1), Decimal(1 - 10**38), Decimal(0)]),
    pa.decimal128(38, 18): st.sampled_from([Decimal("0E-18"), Decimal("12345678901234567890.123456789012345678")]),
}
Row = tuple[Any, Any]


@dataclass(frozen=True)
class Example:
    """Types of two key and of two value columns, and the rows at two epochs."""

    types: Sequence[pa.DataType]
    epochs: Sequence[Sequence[tuple[Row, Row]]]


REPORTED = Example(
    (INTEGERS, pa.float64(), ARRAY, pa.int64()),
    (
        [
            (({"v": BEYOND_A_DOUBLE, "k": "a"}, NAN), ([1, None, BEYOND_A_DOUBLE], None)),
            (({"v": None, "k": None}, None), (None, 7)),
            ((None, 1.5), ([], BEYOND_A_DOUBLE)),
        ],
        [
            (({"v": BEYOND_A_DOUBLE, "k": "a"}, NAN), ([None], BEYOND_A_DOUBLE)),
            (({"v": None, "k": None}, None), ([BEYOND_A_DOUBLE], None)),
            (({"v": None, "k": None}, NAN), (None, None)),
        ],
    ),
)
NESTED = Example(
    (WINDOW, pa.string(), pa.map_(pa.string(), ARRAY), DEEP),
    (
        [
            ((HOUR, None), ([("a", [BEYOND_A_DOUBLE, None])], [{"f": NAN, "m": [([1], None)]}, None])),
            ((HOUR, ""), (None, [])),
        ],
        [((HOUR, None), ([("a", None)], [{"f": None, "m": []}])), ((HOUR, "null"), ([], None))],
    ),
)


@st.composite
def types(draw: st.DrawFn, depth: int = 2) -> pa.DataType:
    """A type that is nested up to twice."""
    kind = draw(st.sampled_from(["leaf", "leaf", "struct", "list", "map"])) if depth else "leaf"
    inner = types(depth=depth - 1)
    if kind == "struct":
        return pa.struct([(name, draw(inner)) for name in draw(st.sampled_from(["a", "ab", ("start", "end")]))])
    if kind == "list":
        return pa.list_(draw(inner))
    return pa.map_(pa.string(), draw(inner)) if kind == "map" else draw(st.sampled_from(list(LEAVES)))


def values(kind: pa.DataType) -> st.SearchStrategy[Any]:
    """Values of a type, and None."""
    if pa.types.is_struct(kind):
        some: st.SearchStrategy[Any] = st.fixed_dictionaries({field.name: values(field.type) for field in kind})
    elif pa.types.is_map(kind):
        some = st.lists(
            st.tuples(st.sampled_from("ab"), values(kind.item_type)), max_size=2, unique_by=lambda at: at[0]
        )
    elif pa.types.is_list(kind):
        some = st.lists(values(kind.value_type), max_size=3)
    else:
        some = LEAVES[kind]
    return st.one_of(some, some, st.none())


@st.composite
def examples(draw: st.DrawFn) -> Example:
    """Random types and rows. Spark has no -0.0 in a key."""
    kinds = [draw(types()) for _ in range(4)]
    keys = st.tuples(*map(values, kinds[:2])).filter(lambda key: "-0.0" not in repr(key))
    some = draw(st.lists(keys, min_size=1, max_size=4, unique_by=canonical))
    row = st.tuples(*map(values, kinds[2:]))
    return Example(kinds, [[(key, draw(row)) for key in some if draw(st.booleans())] for _ in range(2)])


def written(folder: Path, example: Example) -> History:
    """A store with the example as the query ``q``."""
    layout = Layout.at(folder)
    register(layout, "q", "id", "checkpoint")
    own = [("_epoch", pa.int64()), ("_change", pa.string()), ("_partition", pa.int32())]
    schema = pa.schema([*own, *zip("abcd", example.types, strict=True)])
    log = layout.changelog("q", "op0")
    open_or_create(log, log_schema(schema, ["a", "b"]), "log")
    manifest, before = Manifest(layout, "q"), dict[Any, tuple[Row, Row]]()
    for epoch, rows in enumerate(example.epochs):
        now = {canonical(key): (key, row) for key, row in rows}
        puts = [
            ("put", *row) for key, row in now.items() if key not in before or canonical(before[key]) != canonical(row)
        ]
        gone = [("delete", key, (None, None)) for at, (key, _) in before.items() if at not in now]
        changes = [
            dict(zip(schema.names, (epoch, change, 0, *key, *row), strict=True)) for change, key, row in puts + gone
        ]
        table = pa.Table.from_pylist(changes, schema=schema)
        append_once(log, "q/op0", epoch, lambda _stands, table=table: table)  # type: ignore[misc]
        facts = {"op0": TableEntry(len(now), len(changes), None)}
        manifest.append([Entry(epoch, CAPTURED, committed_at=NOON, offsets=f"[{epoch}]", tables=facts)], "q/_epochs")
        before = now
    return ss.open_store(folder)["q"]


def as_kept(value: Any, kind: pa.DataType) -> Any:
    """A value of Arrow's with its maps as dicts; those whose keys Python cannot hash stay pairs."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {field.name: as_kept(value[field.name], field.type) for field in kind}
    if pa.types.is_map(kind):
        pairs = [(as_kept(key, kind.key_type), as_kept(item, kind.item_type)) for key, item in value]
        return pairs if pa.types.is_nested(kind.key_type) else dict(pairs)
    return [as_kept(item, kind.value_type) for item in value] if pa.types.is_list(kind) else value


def oracle(example: Example, epoch: int) -> dict[Any, list[Any]]:
    """The rows of an epoch as Arrow has them, by key."""
    columns = [[*key, *row] for key, row in example.epochs[epoch]]
    arrays = [pa.array([row[at] for row in columns], kind).to_pylist() for at, kind in enumerate(example.types)]
    rows = [[as_kept(*pair) for pair in zip(row, example.types, strict=True)] for row in zip(*arrays, strict=True)]
    return {canonical(row[:2]): row for row in rows}


def differences(example: Example) -> Iterator[tuple[str, list[Any], list[Any], list[Any]]]:
    """Each key that differs between the two epochs: how, the key, and its values before and after."""
    before, after = oracle(example, 0), oracle(example, 1)
    for at in before.keys() | after.keys():
        old, new = before.get(at), after.get(at)
        if canonical(old) != canonical(new):
            change = "added" if old is None else "removed" if new is None else "changed"
            key = (new or old or [])[:2]
            yield change, key, [None] * 2 if old is None else old[2:], [None] * 2 if new is None else new[2:]


def exact(value: Any) -> str:
    """A text that differs for values that differ."""
    if value is None or value is pd.NA or value is pd.NaT:
        return "missing"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{exact(name)}: {exact(part)}' for name, part in value.items())}}}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(exact, value))}]"
    if isinstance(value, dt.datetime):
        return f"time {value.replace(tzinfo=None).isoformat()} {value.utcoffset()}"
    return f"{type(value).__name__} {value!r}"


def exactly(rows: Iterable[Iterable[Any]]) -> list[list[str]]:
    """Rows whose order does not matter."""
    return sorted([exact(value) for value in row] for row in rows)


def of_frame(frame: pd.DataFrame, *columns: str) -> list[list[str]]:
    """Some columns of a frame."""
    return exactly(frame[[*columns]].astype(object).to_numpy().tolist())


def texts(rows: Iterable[Iterable[Any]]) -> list[list[str]]:
    """Rows as cells show them."""
    return sorted([cell(value).text for value in row] for row in rows)


def printed(*words: object) -> list[dict[str, Any]]:
    """The objects that a command prints with ``--json``."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        assert main([*map(str, words), "--json"]) == 0
    return [json.loads(line) for line in out.getvalue().splitlines()]


def in_json(rows: Iterable[Iterable[Any]]) -> list[str]:
    """Rows as commands print them."""
    return sorted(json.dumps([as_json(value) for value in row]) for row in rows)


def check_state(folder: Path, history: History, example: Example, epoch: int) -> None:
    """A page, a look-up, a statement, the browser, a saved file and ``streamstate show`` have the same rows."""
    rows, table = oracle(example, epoch).values(), history.at(epoch).table()
    assert of_frame(table.head(), *"abcd") == of_frame(table.to_pandas(), *"abcd") == exactly(rows)
    statement = ss.open_store(folder).sql(f"FROM q VERSION AS OF {epoch}")
    assert of_frame(statement.to_pandas(), *"abcd") == exactly(rows)
    shown = StateBrowser(history, epoch=epoch)
    drawing = shown.model.drawing(shown.selection)
    assert sorted([part["text"] for part in row["cells"]] for row in drawing.message["page"]["rows"]) == texts(rows)
    assert len(table.lookup_many(drawing.kept.page.keys)) == len(rows)
    pages = [unescape(page) for page in (shown.model.html(drawing), statement._repr_html_())]
    for row in rows:
        assert exact(table.lookup(a=row[0], b=row[1])) == exact(dict(zip("abcd", row, strict=True)))
        assert all(cell(value).text in page for value in row for page in pages)
    command = printed("show", folder, "q", "--at", epoch)
    assert in_json(row.values() for row in command) == in_json(rows)
    summary = table.summary().set_index("column")
    assert summary["nulls"].tolist() == [sum(row[at] is None for row in rows) for at in range(4)]


def check_difference(folder: Path, history: History, example: Example) -> None:
    """A diff as a frame, as a view, as a summary and as text."""
    found = [*differences(example)]
    diff = history.diff(0, 1)
    expected = [[change, *key, *old, *new] for change, key, old, new in found]
    assert of_frame(diff.page(), "_change", "a", "b", "c_old", "d_old", "c_new", "d_new") == exactly(expected)
    command = printed("diff", folder, "q", 0, 1)
    assert in_json([row["_change"], row["a"], row["b"], row["c_new"]] for row in command) == in_json(
        [change, *key, new[0]] for change, key, _, new in found
    )
    view = DiffView(history, 0, 1)
    page = view.model.drawing(view.selection).message["page"]["rows"]
    assert sorted([part["text"] for part in row["keys"]] for row in page) == texts(key for _, key, *_ in found)
    now = [[value["now"]["text"] for value in row["values"]] for row in page]
    assert sorted(now) == texts(old if change == "removed" else new for change, _, old, new in found)
    changed = [(old, new) for change, _, old, new in found if change == "changed"]
    counts = [sum(canonical(old[at]) != canonical(new[at]) for old, new in changed) for at in range(2)]
    summary = diff.summary().columns.set_index("column")
    assert [summary["changed"][name] for name in "cd"] == counts


def check_keys(folder: Path, history: History, example: Example) -> None:
    """The history of each key as a frame, as a view, and in the browser."""
    both = oracle(example, 0), oracle(example, 1)
    for at, row in (both[0] | both[1]).items():
        key = dict(zip("ab", row[:2], strict=True))
        found = history.key_history(key=key)
        states = [side.get(at) for side in both]
        puts = [
            side[2:]
            for side, old in zip(states, [None, *states], strict=False)
            if side and canonical(side) != canonical(old)
        ]
        assert of_frame(found[found["change"] == "put"], "c", "d") == exactly(puts)
        view = KeyHistoryView(history, "op0", key)
        drawing = view.model.drawing(view.selection)
        assert drawing.kept.key == f"a {cell(key['a']).text}, b {cell(key['b']).text}"
        values = [[part["text"] for part in change["cells"]] for change in drawing.message["page"]["rows"]]
        assert sorted(row for row in values if row) == texts(puts)
        browser = StateBrowser(history)
        browser.look(key=key)
        panel = browser.model.drawing(browser.selection).message["history"]
        assert sorted(
            [part["text"] for part in change["cells"]] for change in panel["changes"] if change["cells"]
        ) == texts(puts)


def check(example: Example) -> None:
    """Everything that shows values shows those of the example."""
    with tempfile.TemporaryDirectory() as folder:
        history = written(Path(folder), example)
        for epoch in (0, 1):
            check_state(Path(folder), history, example, epoch)
        check_difference(Path(folder), history, example)
        check_keys(Path(folder), history, example)


@pytest.mark.parametrize("example", [REPORTED, NESTED], ids=["integers", "nested"])
def test_values_are_shown_as_they_are(example: Example) -> None:
    """Integers beyond 2⁵³ beside nulls, NaN beside null, windows, maps and what is nested in them."""
    check(example)


@pytest.mark.parametrize("example", [REPORTED, NESTED], ids=["integers", "nested"])
def test_a_saved_file_has_the_values_as_they_are(example: Example, tmp_path: Path) -> None:
    """Of each view; the file's page shows the texts that the kernel made."""
    history = written(tmp_path / "store", example)
    views: dict[int, Any] = {0: StateBrowser(history, epoch=0), 1: StateBrowser(history), 2: DiffView(history, 0, 1)}
    for at, view in views.items():
        view.save(tmp_path / f"{at}.html")
        saved = (tmp_path / f"{at}.html").read_text()
        rows = oracle(example, at % 2).values() if at < 2 else [new for *_, new in differences(example)]
        for text in (cell(value).text for row in rows for value in row if value is not None):
            assert encoded(text) in saved


def test_a_column_of_python_values_loses_nothing() -> None:
    """Watched expressions and versions of variables: numbers beside missing ones, and values of several types."""
    assert exactly([as_column([BEYOND_A_DOUBLE, None]).tolist()]) == exactly([[BEYOND_A_DOUBLE, None]])
    assert exactly([as_column([NAN, None, 1.5]).tolist()]) == exactly([[NAN, None, 1.5]])
    assert as_column(["a", 1]).tolist() == ["a", 1]


@pytest.mark.slow
@pytest.mark.parametrize("example", [REPORTED, NESTED], ids=["integers", "nested"])
def test_spark_returns_values_as_they_are(spark: SparkSession, example: Example, tmp_path: Path) -> None:
    """Its engine for SQL, and the rows of a source, which ``inputs``, ``why`` and ``late`` show."""
    written(tmp_path, example)
    result = ss.open_store(tmp_path).sql("FROM q VERSION AS OF 0", engine="spark", spark=spark)
    rows = oracle(example, 0).values()
    assert of_frame(result.to_pandas(), *"abcd") == of_frame(fetched_frame(result.to_spark()), *"abcd") == exactly(rows)
    assert all(escape(cell(value).text) in result._repr_html_() for row in rows for value in row)


def test_types_that_arrow_lacks_are_fetched_as_text(spark: SparkSession) -> None:
    """A source may have them; columns may share a name."""
    columns = [
        "parse_json('{\"a\": 1}') AS v",
        "make_interval(0, 1) AS v",
        "1 AS n",
        "timestamp'2026-01-01T00:00:00Z' AS t",
    ]
    row = spark.sql(f"SELECT {', '.join(columns)}")
    [found] = frame_tuples(fetched_frame(row))
    assert found == ('{"a":1}', "1 months", 1, dt.datetime(2026, 1, 1, tzinfo=dt.UTC))


@settings(max_examples=5, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(examples())
def test_random_values_are_shown_as_they_are(example: Example) -> None:
    """Columns of random types, nested up to twice."""
    check(example)


@pytest.mark.exhaustive
@settings(max_examples=500, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(examples())
def test_many_random_values_are_shown_as_they_are(example: Example) -> None:
    """As above."""
    check(example)
