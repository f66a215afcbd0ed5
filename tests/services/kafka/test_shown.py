"""What people see of queries over topics."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from pyspark.sql import functions as F

import streamstate as ss
from services.kafka.broker import Broker
from services.kafka.counting import Counting
from streamstate.command_line.command import WARNINGS
from streamstate.command_line.program import main
from streamstate.errors import InvalidArgumentError, QueryError
from streamstate.reports import Running
from streamstate.snapshots.spark import kafka_broker
from streamstate.snapshots.spark.kafka_lag import kafka_lags
from streamstate.snapshots.store.query_plans import plan_table
from streamstate.widgets.why import panel_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FLIGHTS = "departures-of-the-port-authority-of-new-york-and-new-jersey-2013"


@pytest.fixture(scope="module")
def running(spark: SparkSession, broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Flights and gates, joined and counted by key, in epochs of at most 40 records; one flight has headers."""
    for topic in (FLIGHTS, "gates"):
        broker.create(topic, retention_ms="604800000")
    broker.produce(FLIGHTS, ((n % 2, f"k{n % 5}", json.dumps({"n": n}, indent=2)) for n in range(60)))
    broker.produce(FLIGHTS, [(0, "k9", "x")])
    broker.produce("gates", ((n % 2, f"k{n % 5}", bytes([255, n])) for n in range(20)))
    producer = Producer({"bootstrap.servers": broker.servers})
    producer.produce(FLIGHTS, key=b"k3", value=b"delayed", headers=[("trace", b"7f"), ("raw", b"\xff")], partition=1)
    producer.flush(10)

    def records(topic: str, most: int) -> DataFrame:
        options = {"kafka.bootstrap.servers": broker.servers, "subscribe": topic, "startingOffsets": "earliest"}
        more = {"includeHeaders": "true", "maxOffsetsPerTrigger": str(most)}
        return spark.readStream.format("kafka").options(**options, **more).load()

    both = records(FLIGHTS, 40).unionByName(records("gates", 100))
    counted = both.withColumn("k", F.col("key").cast("string")).groupBy("k").count()
    started = ss.start(counted, "shown", tmp_path_factory.mktemp("shown") / "store", partitions=2)
    started.wait(epoch=1, timeout=300)
    while 1 not in kafka_lags(started.query):
        time.sleep(0.05)  # Spark reports on an epoch after its commit
    yield started
    started.stop()


def test_epochs_say_what_they_read_and_how_far_they_are_behind(running: Running) -> None:
    """Spark's own metrics give the average of the same numbers."""
    epochs = running.checkpoint.epochs()
    assert epochs["sources"].tolist() == [
        {0: f"{FLIGHTS}: partition 0 from 0 to 19, partition 1 from 0 to 19", 1: "gates: partition 0 from 0 to 9,"
         " partition 1 from 0 to 9"},
        {0: f"{FLIGHTS}: partition 0 from 20 to 30, partition 1 from 20 to 30", 1: "gates: partition 0 nothing (at 10),"
         " partition 1 nothing (at 10)"},
    ]  # fmt: skip
    assert epochs["records"].tolist() == [60, 22]
    assert epochs["lag"].tolist() == [22, 0]
    assert running.query is not None
    first = running.query.recentProgress[0]["sources"][0]["metrics"]
    assert 2 * float(first["avgOffsetsBehindLatest"]) == 22
    assert running.status().lag == 0
    assert running.history.epochs()["records"].tolist() == running.history.epochs()["input_rows"].tolist() == [60, 22]


def test_the_load_has_the_backlog_of_each_partition(running: Running) -> None:
    """What waited when an epoch was planned: a real broker's newest offsets less those that it read."""
    load = running.history.load()
    first = load.partitions().query("epoch == 0").set_index("partition")["backlog_rows"].to_dict()
    assert first == {f"{FLIGHTS}/0": 11, f"{FLIGHTS}/1": 11, "gates/0": 0, "gates/1": 0}
    assert load.to_pandas()["backlog_rows"].tolist() == [22, 0]
    assert load.to_pandas()["rows"].tolist() == [60, 22]


def test_records_are_text_with_their_place(running: Running) -> None:
    """In the answer's text, its HTML and its panel: topics whole, JSON in one line, headers as text."""
    why = running.history.why(1, k="k3")
    found = why.rows.sort_values("offset")
    assert [*found][:6] == ["topic", "partition", "offset", "timestamp", "key", "value"]
    assert found[["topic", "partition", "offset", "key", "value"]].values.tolist() == [
        [FLIGHTS, 1, 21, "k3", '{ "n": 43 }'],
        [FLIGHTS, 0, 24, "k3", '{ "n": 48 }'],
        [FLIGHTS, 1, 26, "k3", '{ "n": 53 }'],
        [FLIGHTS, 0, 29, "k3", '{ "n": 58 }'],
        [FLIGHTS, 1, 30, "k3", "delayed"],
    ]
    assert found["headers"].iloc[-1] == [{"key": "trace", "value": "7f"}, {"key": "raw", "value": b"\xff"}]
    texts = [str(why), why._repr_html_(), panel_of(why, {"k": "k3"}).html()]
    zone = found["timestamp"].iloc[0].to_pydatetime().astimezone().strftime("%z")
    for text in texts:
        assert FLIGHTS in text
        assert "{key: trace, value: 7f}" in text
        assert f"{zone[:3]}:{zone[3:]}" in text


def test_a_source_is_named_by_its_topic(running: Running) -> None:
    """Bytes that are no text stay as they are. The error names the topics."""
    gates = running.history.inputs(0, source="gates")
    assert gates.count() == running.history.inputs(0, source=1).count() == 20
    assert running.history.inputs(1, source=FLIGHTS).count() == 22
    with pytest.raises(InvalidArgumentError, match=rf"one of 0 \({FLIGHTS}\), 1 \(gates\)"):
        running.history.inputs(0)


def test_the_doctor_compares_the_topics_retention_with_the_kept_epochs(
    running: Running, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And proposes to record the input."""

    def said(code: Callable[[], DataFrame] | None = None) -> list[tuple[str, str]]:
        findings = running.checkpoint.doctor(running.store, build_query=code).findings
        return [(finding.level, finding.text) for finding in findings if FLIGHTS in finding.text]

    advice = "or record the input of the next query: %%stream --record-input, streamstate.start(…, record_input=True)."
    keeps = f"The topic {FLIGHTS} keeps records for 7 days (retention.ms=604800000); after that"
    [(level, text)] = said()
    assert (level, text.startswith(keeps)) == ("note", True)
    assert running.launch is not None
    frame = running.launch.frame
    without_plan = ss.Checkpoint(running.checkpoint.path).doctor(build_query=lambda: frame)
    assert keeps in str(without_plan)
    broker.expire(FLIGHTS, {0: 5})
    [(level, text)] = said()
    gone = f"Epochs before 1 can no longer be asked why: records 0 to 4 of the topic {FLIGHTS}, partition 0, since the"
    assert (level, text.startswith(gone), text.endswith(advice)) == ("warning", True, True)
    with monkeypatch.context() as patched:
        patched.setattr(plan_table, "_planned", {})  # as in another process
        assert said() == []
        assert said(lambda: frame) == [(level, text)]


def test_the_broker_says_how_far_a_query_that_runs_elsewhere_is_behind(
    spark: SparkSession,
    broker: Broker,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """If it is asked, once. Expired records cannot be read any more; those of a new partition can."""
    broker.create("behind")
    query = Counting(spark, broker, "behind", tmp_path, subscribe="behind")
    broker.produce("behind", ((n % 2, "k", "v") for n in range(20)))
    query.run()
    broker.produce("behind", ((n % 2, "k", "v") for n in range(20)))
    broker.add_partitions("behind", 3)
    broker.produce("behind", [(2, "k", "v")] * 3)
    broker.expire("behind", {0: 14})
    code = tmp_path / "job.py"
    code.write_text(
        "from pyspark.sql import SparkSession\n"
        "def build():\n"
        "    source = SparkSession.builder.getOrCreate().readStream.format('kafka')\n"
        f"    source = source.option('kafka.bootstrap.servers', '{broker.servers}')\n"
        "    return source.option('subscribe', 'behind').load().groupBy('key').count()\n"
    )
    assert query.checkpoint.epochs()["lag"].isna().all()
    assert query.checkpoint.epochs(query.build)["lag"].tolist() == [6 + 10 + 3]
    assert main(["epochs", str(query.path), "--code", f"{code}:build"]) == 0
    assert "19" in capsys.readouterr().out.splitlines()[-1].split()[-1:]
    assert main(["doctor", str(query.path), "--code", f"{code}:build"]) == WARNINGS
    assert "The query has yet to read 19 records of behind." in capsys.readouterr().out
    monkeypatch.setattr(kafka_broker, "ANSWERS_WITHIN", 1)
    with pytest.raises(QueryError, match=r"Kafka at 127.0.0.1:1 does not answer"):
        query.checkpoint.epochs(query.elsewhere("127.0.0.1:1"))
