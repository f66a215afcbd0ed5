"""Results computed from captured state, compared with what the query itself returned, and with batch queries."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from notebook_shell import Shell, bare_shell  # noqa: F401 (a fixture)
from pyspark.sql import functions as F

import streamstate as ss
from results.functions import COMPUTED, IN_ORDER, OPAQUE, SCHEMA, columns, rows
from streamstate.errors import NoResultError, QueryError, StoreError
from streamstate.reports import History
from streamstate.snapshots.store.layout import Layout
from streamstate.snapshots.store.query_plans import plan_table
from streamstate.snapshots.store.query_plans.plan_table import Plans, store_plan
from streamstate.snapshots.store.query_plans.query_plan import QueryPlan

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

EPOCHS = 3
Build = Callable[["DataFrame"], "DataFrame"]


@pytest.fixture(scope="module")
def files(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one file per epoch."""
    folder = tmp_path_factory.mktemp("files")
    for epoch in range(EPOCHS):
        frame = spark.createDataFrame(rows(200, epoch), SCHEMA).coalesce(1)
        frame.write.parquet(str(folder / f"_{epoch}"))
        [part] = (folder / f"_{epoch}").glob("part*")
        part.rename(folder / f"{epoch}.parquet")
    return folder


def streamed(spark: SparkSession, files: Path) -> DataFrame:
    """The files, one per epoch."""
    reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
    return reader.parquet(str(files)).withWatermark("ts", "2 days")


def captured(
    spark: SparkSession, files: Path, folder: Path, build: Build, mode: str = "complete"
) -> tuple[History, dict[int, list[tuple[Any, ...]]], list[str]]:
    """A query's history, the rows that it returned in each epoch, and their columns."""
    returned: dict[int, list[tuple[Any, ...]]] = {}
    frame = build(streamed(spark, files))

    def keep(batch: DataFrame, epoch: int) -> None:
        returned[epoch] = [tuple(row) for row in batch.collect()]

    writer = frame.writeStream.outputMode(mode).option("checkpointLocation", str(folder / "checkpoint"))
    writer.foreachBatch(keep).trigger(availableNow=True).start().awaitTermination()
    ss.Checkpoint(folder / "checkpoint").capture(folder / "store", "q")
    ss.open_store(folder / "store")["q"].describe(lambda: build(streamed(spark, files)), mode=mode)
    return ss.open_store(folder / "store")["q"], returned, frame.columns


def exactly(value: Any) -> Any:
    """A value as text that tells apart what is not the same bit for bit."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else repr(value)
    if isinstance(value, dict):
        return tuple(map(exactly, value.values()))
    if isinstance(value, (list, tuple)):
        return tuple(map(exactly, value))
    return repr(value.replace(tzinfo=None) if getattr(value, "tzinfo", None) else value)


def compared(found: pa.Table, expected: list[tuple[Any, ...]], columns: list[str]) -> None:
    """Compare a result, bit for bit."""
    assert found.column_names == columns
    ours = Counter(exactly(list(row.values())) for row in found.to_pylist())
    assert ours == Counter(map(exactly, expected))


QUERIES: dict[str, Build] = {
    "computed": lambda source: source.groupBy("g", F.col("h").alias("hh")).agg(*columns(COMPUTED)),
    "opaque above": lambda source: (
        source.groupBy(F.window("ts", "6 hours").alias("part"))
        .agg(F.collect_set("s").alias("who"), F.avg("y").alias("m"), F.max("ts").alias("last"))
        .where("array_contains(who, 'x') and m > 2.5")
        .select(
            (F.col("m") * 2).alias("twice"),
            F.udf(lambda m: f"about {m:.3f}", "string")("m").alias("text"),
            F.sort_array("who").alias("sorted"),
        )
    ),
    "opaque sessions": lambda source: source.groupBy(F.session_window("ts", "5 minutes").alias("visit"), "h").agg(
        F.collect_list("i").alias("all"), F.count("*").alias("n")
    ),
    "opaque without a key": lambda source: source.agg(F.median("y").alias("middle"), F.max("x").alias("m")),
    "windows": lambda source: source.groupBy(F.window("ts", "1 hour").alias("hour"), F.upper("g").alias("who")).agg(
        F.avg("x").alias("average")
    ),
    "sliding windows": lambda source: source.groupBy(F.window("ts", "2 hours", "1 hour"), "h").count(),
    "having": lambda source: (
        source.groupBy("g")
        .agg(F.avg("y").alias("m"), F.count("*").alias("n"))
        .where("n > 20 and m > 1")
        .select((F.col("m") * 2).alias("twice"), F.concat(F.lit("g="), "g").alias("label"))
    ),
    "sessions": lambda source: source.groupBy(F.session_window("ts", "5 minutes").alias("visit"), "h").agg(
        F.count("*").alias("n"), F.sum("i").alias("total")
    ),
    "no key": lambda source: source.agg(F.count("*").alias("n"), F.max("x").alias("m")),
    "cube": lambda source: source.cube("g", "h").agg(F.count("*").alias("n"), F.grouping_id().alias("level")),
    "expressions as keys": lambda source: source.groupBy(
        F.lit(1).alias("one"), "g", F.col("g").alias("again"), (F.col("h") + 1).alias("next")
    ).agg(F.sum("h").alias("sum")),
    "a struct as key": lambda source: source.groupBy(F.struct("g", "h").alias("key")).agg(F.first("s").alias("first")),
    "sorted": lambda source: source.groupBy("g").count().orderBy(F.desc("count")),
    "names that repeat": lambda source: source.groupBy("g").agg(F.sum("h").alias("count"), F.count("*").alias("sum")),
}
MARKS: dict[str, list[pytest.MarkDecorator]] = {"windows": []}
MARKS |= {name: [pytest.mark.slow] for name in ("computed", "having")}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=MARKS.get(name, [pytest.mark.exhaustive])) for name in QUERIES]
)
def test_a_result_equals_what_the_query_returned(name: str, spark: SparkSession, files: Path, tmp_path: Path) -> None:
    """Bit for bit, at every epoch, with Spark where DuckDB cannot compute a column or a condition."""
    history, returned, names = captured(spark, files, tmp_path, QUERIES[name])
    assert sorted(returned) == history.captured()
    for epoch, expected in returned.items():
        compared(history.at(epoch).result().to_arrow(), expected, names)
    statement = ss.open_store(tmp_path / "store").sql("FROM q.result VERSION AS OF 1", engine="spark", spark=spark)
    compared(statement.to_arrow(), returned[1], names)


Captured = tuple[Path, dict[int, list[tuple[Any, ...]]], list[str]]


def opaque(source: DataFrame) -> DataFrame:
    """A query with every function that only Spark computes."""
    return source.groupBy("g").agg(*columns(OPAQUE))


@pytest.fixture(scope="module")
def only_spark(spark: SparkSession, files: Path, tmp_path_factory: pytest.TempPathFactory) -> Captured:
    """A store with that query, what it returned in each epoch, and its columns."""
    folder = tmp_path_factory.mktemp("opaque")
    _, returned, names = captured(spark, files, folder, opaque)
    return folder / "store", returned, names


@pytest.mark.slow
def test_spark_computes_what_duckdb_cannot(
    spark: SparkSession, files: Path, only_spark: Captured, bare_shell: Shell
) -> None:
    """Bit for bit what the query returned; what does not depend on the order of rows, as in a batch query."""
    store, returned, names = only_spark
    kept = [name for name in names if name not in IN_ORDER]
    for epoch, expected in returned.items():
        found = ss.open_store(store)["q"].at(epoch).result().to_arrow()
        compared(found, expected, names)
        batch = spark.read.schema(SCHEMA).parquet(*[str(files / f"{before}.parquet") for before in range(epoch + 1)])
        theirs = [roughly(tuple(row)) for row in opaque(batch).select(*kept).collect()]
        ours = [roughly(list(row.values())) for row in found.select(kept).to_pylist()]
        assert sorted(ours, key=str) == sorted(theirs, key=str)
    live = ss.open_store(store)["q"].live().result()
    first = live.head(1)["g"][0]
    row = live.lookup(g=first)
    assert row is not None
    assert row["distinct"] == live.page(where="g IS NOT DISTINCT FROM " + repr(first))["distinct"][0]
    largest = live.page(limit=1, order_by="distinct", descending=True)["distinct"][0]
    assert largest == max(live.to_pandas()["distinct"])
    assert bare_shell.run(f"%state q at live --store {store} --limit 1 --by distinct")["distinct"][0] == largest
    other = spark.newSession()
    statement = ss.open_store(store).sql("FROM q.result VERSION AS OF 1", engine="spark", spark=other)
    compared(statement.to_arrow(), returned[1], names)


def test_without_the_plan_columns_say_what_they_need(
    spark: SparkSession, only_spark: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So they do in what never uses Spark: tables by name, and SQL in DuckDB."""
    store = ss.open_store(only_spark[0])
    by_name = store["q"].live().table("result")
    monkeypatch.setattr(plan_table, "_planned", {})
    in_sql = store.sql("FROM q.result").to_arrow()
    for found in (store["q"].live().result().to_arrow(), by_name.to_arrow(), in_sql):
        assert [name for name in found.column_names if "needs Spark" not in str(found[name][0])] == ["g", "mean"]
    with pytest.raises(NoResultError, match=r"the query's plan is not known here[^$]*describe"):
        store.sql("FROM q.result", engine="spark", spark=spark)


@pytest.mark.slow
def test_what_differs_from_one_time_to_the_next_is_not_computed(
    spark: SparkSession, files: Path, tmp_path: Path
) -> None:
    """Random numbers, and the time at which an epoch ran, are in neither the state nor the plan."""
    captured(spark, files, tmp_path, QUERIES["sorted"])
    for added, message in ((F.rand(), "random"), (F.unix_timestamp(F.current_timestamp()), "time")):

        def build(added: Column = added) -> DataFrame:
            return streamed(spark, files).groupBy("g").count().withColumn("added", added)

        ss.open_store(tmp_path / "store")["q"].describe(build, mode="complete")
        store = ss.open_store(tmp_path / "store")
        [text] = set(store["q"].live().result().to_arrow()["added"].to_pylist())
        assert "needs Spark" in text or "time" in text
        with pytest.raises(NoResultError, match=message):
            store.sql("FROM q.result", engine="spark", spark=spark)


_KEYS = ["g", "h", "b", "h % 2 as odd", "upper(s) as big", "window(ts, '6 hours') as w"]
_HAVING = [None, "count(*) > 5", "max(i) is not null", "sum(n) > 0 or min(h) = 0"]


@pytest.mark.exhaustive
@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    keys=st.lists(st.sampled_from(_KEYS), min_size=0, max_size=3, unique=True),
    names=st.lists(st.sampled_from(sorted(COMPUTED)), min_size=1, max_size=6, unique=True),
    having=st.sampled_from(_HAVING),
    scale=st.sampled_from(["", "h + 1", "coalesce(i, 0) * 2"]),
)
def test_random_queries_equal_batch_queries(
    spark: SparkSession,
    files: Path,
    tmp_path_factory: pytest.TempPathFactory,
    keys: list[str],
    names: list[str],
    having: str | None,
    scale: str,
) -> None:
    """Rows that arrive in another order may change the last bits of floating-point numbers, and what is first."""
    names = [name for name in names if name not in ("fi", "la", "anyv", "mb", "nb")]

    def build(source: DataFrame) -> DataFrame:
        made = columns({name: COMPUTED[name] for name in names})
        if scale:
            made.append(F.expr(f"sum({scale})").alias("scaled"))
        made.append(F.count("*").alias("rows"))
        if having:
            made.append(F.expr(having).alias("kept"))
        found = source.groupBy(*map(F.expr, keys)).agg(*made)
        return found.where("kept").drop("kept") if having else found

    history, _, shown = captured(spark, files, tmp_path_factory.mktemp("random"), build)
    for epoch in history.captured():
        batch = spark.read.schema(SCHEMA).parquet(*[str(files / f"{before}.parquet") for before in range(epoch + 1)])
        expected = [tuple(row) for row in build(batch).collect()]
        found = history.at(epoch).result().to_arrow()
        assert found.column_names == shown
        ours = sorted((roughly(list(row.values())) for row in found.to_pylist()), key=str)
        theirs = sorted((roughly(row) for row in expected), key=str)
        assert ours == theirs, f"epoch {epoch}"


def roughly(value: Any) -> Any:
    """A value whose doubles have nine digits."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else f"{value + 0.0:.9g}" if abs(value) > 1e-9 else "0"
    if isinstance(value, dict):
        return tuple(map(roughly, value.values()))
    if isinstance(value, (list, tuple)):
        return tuple(map(roughly, value))
    return exactly(value)


@pytest.fixture(scope="module")
def delays(spark: SparkSession, files: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a query whose result is known."""
    folder = tmp_path_factory.mktemp("delays")

    def build(source: DataFrame) -> DataFrame:
        found = source.groupBy(F.coalesce("g", F.lit("none")).alias("carrier"))
        return found.agg(F.avg("y").alias("average_delay"), F.count("*").alias("flights"))

    captured(spark, files, folder, build, mode="update")
    return folder / "store"


def test_sql_has_the_result_at_any_epoch(delays: Path) -> None:
    """A result is a relation like a state table, and can be joined with it."""
    store = ss.open_store(delays)
    now = store.sql("SELECT carrier, average_delay FROM q.result WHERE flights > 1 ORDER BY carrier")
    table = store["q"].live().result().to_arrow()
    assert now.to_arrow()["average_delay"].to_pylist() == table["average_delay"].to_pylist()
    then = store.sql("SELECT sum(flights) AS n FROM q.result VERSION AS OF 1").to_arrow()
    assert then["n"].to_pylist() == [400]
    both = store.sql('SELECT r.carrier FROM q.op0.result r JOIN q s ON s."count" = r.flights').to_arrow()
    assert both.num_rows >= table.num_rows
    with pytest.raises(Exception, match="average_delay"):
        store.sql("SELECT averag_delay FROM q.result").to_arrow()


def test_a_result_is_read_without_loading_spark(delays: Path) -> None:
    """Loading PySpark would take longer than the answer."""
    program = (
        "import sys, streamstate as ss\n"
        f"print(ss.open_store({str(delays)!r})['q'].live().result().to_arrow().num_rows)\n"
        "print('pyspark' in sys.modules)\n"
    )
    completed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    rows, loaded = completed.stdout.split()
    assert (int(rows) > 0, loaded) == (True, "False")


def test_a_state_table_of_results(delays: Path) -> None:
    """A result has the methods of a state table."""
    snapshot = ss.open_store(delays)["q"].at(1)
    table = snapshot.result()
    assert (table.key_columns, table.value_columns) == (["carrier"], ["average_delay", "flights"])
    assert table.schema.field("average_delay").type == pa.float64()
    row = table.lookup(carrier="a")
    assert row is not None
    assert row["average_delay"] == table.page(where="carrier = 'a'")["average_delay"][0]
    assert table.lookup(carrier="nobody") is None
    assert table.count() == 5
    assert table.count(where="flights > 1000") == 0
    top = table.page(limit=1, order_by="average_delay", descending=True)
    assert top["average_delay"][0] == max(table.to_pandas()["average_delay"])
    assert list(table.lookup_many([{"carrier": "b"}, {"carrier": "a"}])["carrier"]) == ["b", "a"]
    assert table.summary()["column"].tolist() == ["carrier", "average_delay", "flights"]
    assert snapshot.has_result()
    assert repr(table).startswith("<StateTable result at epoch 1: 5 rows, key carrier; average_delay, flights>")


def test_a_diff_of_results(delays: Path) -> None:
    """Differences, their causes and the largest movers are those of the query's columns."""
    history = ss.open_store(delays)["q"]
    diff = history.diff(0, 2, result=True)
    assert (diff.key_columns, diff.value_columns) == (["carrier"], ["average_delay", "flights"])
    page = diff.page(limit=1)
    before, after = (history.at(epoch).result().lookup(carrier=page["carrier"][0]) for epoch in (0, 2))
    assert before is not None
    assert after is not None
    assert page["average_delay_delta"][0] == after["average_delay"] - before["average_delay"]
    assert page["_cause"][0] == "input"
    assert list(page["_epochs"][0]) == [1, 2]
    assert diff.counts == history.diff(0, 2).counts
    moved = diff.to_pandas().assign(by=lambda rows: (rows["average_delay_new"] - rows["average_delay_old"]).abs())
    assert diff.movers("average_delay", n=1)["carrier"][0] == moved.sort_values("by")["carrier"].iloc[-1]


def test_the_history_of_a_key_in_the_result(delays: Path) -> None:
    """Each change has the values that the query returned."""
    history = ss.open_store(delays)["q"]
    found = history.key_history(carrier="a", result=True)
    assert found.columns.tolist() == ["epoch", "change", "committed_at", "average_delay", "flights", "cause"]
    assert found["epoch"].tolist() == [0, 1, 2]
    expected = [history.at(epoch).result().lookup(carrier="a") for epoch in range(3)]
    assert found["average_delay"].tolist() == [row and row["average_delay"] for row in expected]


def test_rows_that_do_not_meet_a_condition_are_not_in_the_result(
    spark: SparkSession, files: Path, tmp_path: Path
) -> None:
    """They enter and leave the result in a diff."""
    history, returned, names = captured(spark, files, tmp_path, QUERIES["having"])
    counts = [history.at(epoch).result().count() for epoch in history.captured()]
    assert counts == [len(rows) for _, rows in sorted(returned.items())]
    table = history.live().result()
    assert (table.key_columns, table.value_columns) == ([], names)
    entered = history.diff(0, 2, result=True)
    assert entered.counts["added"] - entered.counts["removed"] == counts[2] - counts[0]


@pytest.mark.slow
def test_deduplication_and_joins_have_the_querys_names(spark: SparkSession, files: Path, tmp_path: Path) -> None:
    """The sides of a join are named; there is no result of the join itself."""
    history, _, _ = captured(
        spark, files, tmp_path / "unique", lambda source: source.dropDuplicates(["g", "h"]).select("g", "h"), "append"
    )
    assert history.live().result().to_arrow().num_rows == history.live().table().count()
    assert history.live().result().key_columns == ["g", "h"]

    def joined(source: DataFrame) -> DataFrame:
        other = streamed(spark, files).select(F.col("n").alias("number"), F.col("ts").alias("time"), "d")
        left = source.select((F.col("n") + 0).alias("n"), "ts", "g")
        return left.join(other, F.expr("n = number and ts = time"))

    history, _, _ = captured(spark, files, tmp_path / "joined", joined, "append")
    right = history.live().result("op0_right")
    assert right.to_arrow().column_names == ["number", "time", "d"]
    assert right.count() == history.live().table("op0_right").count()
    assert history.live().result("op0_left").to_arrow().column_names == ["n", "ts", "g"]
    for engine in ("duckdb", "spark"):
        store = ss.open_store(tmp_path / "joined" / "store")
        rows = store.sql("SELECT number, time, d FROM q.op0_right.result", engine=engine, spark=spark).to_arrow()
        compared(rows, [tuple(row.values()) for row in right.to_arrow().to_pylist()], ["number", "time", "d"])
    with pytest.raises(NoResultError, match=r"Name one: .*op0_left"):
        history.live().result()


def test_each_epoch_uses_its_own_plan(spark: SparkSession, files: Path, tmp_path: Path) -> None:
    """Also by a history that was opened before the plan changed."""
    history, _, _ = captured(spark, files, tmp_path, QUERIES["sorted"])
    assert history.live().result().to_arrow().column_names == ["g", "count"]

    def renamed() -> DataFrame:
        return streamed(spark, files).groupBy("g").agg((F.count("*") * 10).alias("tens"))

    ss.open_store(tmp_path / "store")["q"].describe(renamed, since=2)
    for each in (history, ss.open_store(tmp_path / "store")["q"]):
        assert each.at(1).result().to_arrow().column_names == ["g", "count"]
        assert each.at(2).result().to_arrow().column_names == ["g", "tens"]
        with pytest.raises(NoResultError, match="another way"):
            each.diff(0, 2, result=True)
        assert each.diff(0, 1, result=True).value_columns == ["count"]
        with pytest.raises(NoResultError, match="another way"):
            each.key_history(g="a", result=True)
        assert each.results() == []  # the views show what there is at every epoch
        assert each.first("count > 1") == 0  # so do conditions without a table


def test_a_started_query_needs_no_description(spark: SparkSession, files: Path, tmp_path: Path) -> None:
    """Its plan is recorded when it starts."""
    frame = streamed(spark, files).groupBy("g").agg(F.avg("y").alias("average"))
    running = ss.start(frame, "q", tmp_path / "store", trigger="available-now")
    running.wait(timeout=300)
    running.stop()
    history = ss.open_store(tmp_path / "store")["q"]
    assert history.at(0).result().to_arrow().column_names == ["g", "average"]


def test_a_followed_query_needs_no_description(spark: SparkSession, files: Path, tmp_path: Path) -> None:
    """Its plan is read from the running query."""
    frame = streamed(spark, files).groupBy("g").agg(F.avg("y").alias("average"))
    query = frame.writeStream.format("noop").outputMode("update").option("checkpointLocation", str(tmp_path / "cp"))
    started = query.start()
    capture = ss.Checkpoint(started).follow(tmp_path / "store", "q")
    started.processAllAvailable()
    capture.wait(2, timeout=300)
    started.stop()
    capture.stop()
    assert ss.open_store(tmp_path / "store")["q"].at(0).result().value_columns == ["average"]


@pytest.mark.exhaustive
def test_a_stepped_fork_needs_no_description(spark: SparkSession, files: Path, tmp_path: Path) -> None:
    """Its own epochs have the plan that they were run with, those before the fork that of the original."""
    captured(spark, files, tmp_path, QUERIES["computed"], "update")

    def changed() -> DataFrame:
        made = {name: f"({text})" for name, text in COMPUTED.items()} | {"n_": "count(*) * 10"}
        return streamed(spark, files).groupBy("g", F.col("h").alias("hh")).agg(*columns(made))

    fork = ss.Checkpoint(tmp_path / "checkpoint").fork(tmp_path / "forked", at=1)
    fork.step(changed, epochs=1, store=tmp_path / "store", name="what_if")
    store = ss.open_store(tmp_path / "store")
    tens = store.sql("SELECT sum(n_) AS n FROM what_if.result").to_arrow()["n"].to_pylist()
    assert tens == [10 * 200 * EPOCHS]
    assert store["what_if"].at(0).result().to_arrow()["n_"].to_pylist() == (
        store["q"].at(0).result().to_arrow()["n_"].to_pylist()
    )


def test_a_condition_on_a_result_without_its_key(spark: SparkSession, files: Path, tmp_path: Path) -> None:
    """The key can be given, although the query does not return it."""
    history, _, _ = captured(
        spark, files, tmp_path, lambda source: source.groupBy("g").agg(F.avg("y").alias("average")).select("average")
    )
    assert history.results() == []
    assert history.first("average IS NOT NULL", table="result") == 0
    assert history.first("average IS NOT NULL", table="result", g="a") == 0


HOSTILE: dict[str, dict[str, Any]] = {
    "a method's name": {"is": "Column", "of": []},
    "no arguments": {"is": "Divide", "of": []},
    "SQL in a type": {"is": "Cast", "of": [{"is": "Literal", "type": "long", "value": "1"}], "type": "long); DROP"},
    "SQL in a number": {"is": "Literal", "type": "long", "value": "1); DROP TABLE x; --"},
    "SQL in a string": {"is": "Literal", "type": "string", "value": "'); DROP TABLE x; --"},
    "a column out of range": {"is": "State", "part": "value", "at": 99, "type": "long"},
    "a column before the first": {"is": "State", "part": "value", "at": -1, "type": "long"},
    "no place": {"is": "State", "part": "value", "type": "long"},
    "an unknown function": {"is": "ReadFile", "of": [{"is": "Literal", "type": "string", "value": "/etc/passwd"}]},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_plan_computes_nothing(name: str, spark: SparkSession, files: Path, tmp_path: Path) -> None:
    """A column of a damaged record is text; a string is a string."""
    captured(spark, files, tmp_path, QUERIES["sorted"])
    layout = Layout.at(tmp_path / "store")
    plan = json.loads(Plans(layout, "q").recorded()[0].plan.to_json())
    plan["tables"]["op0"]["columns"][1]["expression"] = HOSTILE[name]
    store_plan(layout, "q", QueryPlan.from_json(json.dumps(plan)), 0)
    found = set(ss.open_store(tmp_path / "store")["q"].live().result().to_arrow()["count"].to_pylist())
    [text] = found
    assert "Spark" in str(text) or "damaged" in str(text) or text == HOSTILE[name].get("value")


def test_a_record_that_is_no_plan_is_an_error() -> None:
    """So is one that is nested so deeply that reading it would exhaust the stack, and one of a later version."""
    tree: dict[str, Any] = {"is": "Not", "of": []}
    for _ in range(250):
        tree = {"is": "Not", "of": [tree]}
    table = {"keys": None, "values": [], "same": [], "columns": [], "where": [tree], "needs_spark": None, "ansi": True}
    whole = {"format": 1, "mode": "update", "spark": "4.3.0", "settings": {}, "tables": {"op0": table}}
    for text in ("", "{}", "[1]", "{" * 100_000, json.dumps(whole), json.dumps(whole | {"format": 2})):
        with pytest.raises(StoreError):
            QueryPlan.from_json(text)


def test_integers_that_wrap_around_are_left_to_spark(spark: SparkSession, files: Path, tmp_path: Path) -> None:
    """Without ANSI mode, an overflow gives another number and no error."""
    spark.conf.set("spark.sql.ansi.enabled", "false")
    try:
        history, returned, names = captured(
            spark,
            files,
            tmp_path,
            lambda source: source.groupBy("g").agg(F.expr("sum(n) * 2 as twice"), F.expr("avg(n) as mean")),
        )
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")
    row = history.live().table("result").to_arrow().to_pylist()[0]
    assert row["twice"] == "multiply of long needs Spark"
    assert isinstance(row["mean"], float)
    compared(history.live().result().to_arrow(), returned[EPOCHS - 1], names)


def test_bad_descriptions(spark: SparkSession, files: Path, tmp_path: Path) -> None:
    """Another query is refused, and nothing is recorded of it."""
    frame = streamed(spark, files).groupBy("g").agg(F.avg("y").alias("average"))
    frame.writeStream.format("noop").outputMode("update").option("checkpointLocation", str(tmp_path / "cp")).trigger(
        availableNow=True
    ).start().awaitTermination()
    ss.Checkpoint(tmp_path / "cp").capture(tmp_path / "store", "q")
    history = ss.open_store(tmp_path / "store")["q"]
    with pytest.raises(NoResultError, match=r"\.describe\("):
        history.live().result()
    assert not history.live().has_result()
    source = streamed(spark, files)
    for build, message in (
        (lambda: source.groupBy("h").agg(F.avg("y").alias("average")), "not the query q: op0 has the columns"),
        (
            lambda: source.dropDuplicates(["g"]).groupBy("g").agg(F.avg("y")),
            "not the query q: it has the stateful op",
        ),
        (lambda: source.select("g"), "not the query q"),
        (lambda: spark.range(3), "not a streaming DataFrame"),
    ):
        with pytest.raises(QueryError, match=message):
            ss.open_store(tmp_path / "store")["q"].describe(build)
    with pytest.raises(ss.StreamStateError, match="mode"):
        ss.open_store(tmp_path / "store")["q"].describe(lambda: frame, mode="always")
    with pytest.raises(ss.StreamStateError, match="nobody"):
        ss.open_store(tmp_path / "store")["nobody"].describe(lambda: frame)


@pytest.mark.exhaustive
def test_a_join_above_the_state_is_left_to_spark(spark: SparkSession, files: Path, tmp_path: Path) -> None:
    """It makes rows that the state does not have; SQL returns them with Spark."""
    names = spark.createDataFrame([("a", "Ana"), ("a", "Ada"), ("b", "Bo")], "g string, name string")
    history, returned, columns = captured(
        spark, files, tmp_path, lambda source: source.groupBy("g").count().join(names, "g"), "complete"
    )
    with pytest.raises(NoResultError, match=r"needs Spark[^$]*engine="):
        history.live().result()
    assert not history.live().has_result()
    found = ss.open_store(tmp_path / "store").sql("FROM q.result VERSION AS OF 1", engine="spark", spark=spark)
    compared(found.to_arrow(), returned[1], columns)
