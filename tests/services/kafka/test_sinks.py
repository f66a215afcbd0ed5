"""Results of queries in topics."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from confluent_kafka import Consumer
from notebook_shell import Shell, bare_shell  # noqa: F401 (a fixture)

import streamstate as ss
from services.kafka.broker import Broker
from streamstate.errors import InvalidArgumentError, QueryError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture(scope="module")
def numbers(spark: SparkSession, broker: Broker) -> DataFrame:
    """Counts of a topic's keys, as rows for a topic."""
    broker.create("numbers")
    broker.produce("numbers", ((n % 2, f"k{n % 3}", str(n)) for n in range(12)))
    options = {"kafka.bootstrap.servers": broker.servers, "subscribe": "numbers", "startingOffsets": "earliest"}
    records = spark.readStream.format("kafka").options(**options).load()
    return records.groupBy("key").count().selectExpr("key", "CAST(count AS string) AS value")


def consumed(broker: Broker, topic: str, count: int) -> list[tuple[bytes, bytes]]:
    """The first records of a topic, as another client reads them."""
    settings: dict[str, Any] = {"bootstrap.servers": broker.servers, "group.id": topic, "auto.offset.reset": "earliest"}
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    found = [consumer.poll(10) for _ in range(count)]
    consumer.close()
    return sorted((record.key() or b"", record.value() or b"") for record in found if record is not None)


def test_results_go_to_a_topic(numbers: DataFrame, broker: Broker, tmp_path: Path) -> None:
    """By the short form, and by the format with its options."""
    counted = [(b"k0", b"4"), (b"k1", b"4"), (b"k2", b"4")]
    servers = {"kafka.bootstrap.servers": broker.servers}
    forms: list[dict[str, Any]] = [
        {"sink": "kafka:short_form", "sink_options": servers},
        {"sink": "kafka", "sink_options": {**servers, "topic": "long_form"}},
    ]
    for name, form in zip(("short_form", "long_form"), forms, strict=True):
        broker.create(name, partitions=1)
        running = ss.start(numbers, name, tmp_path / "store", trigger="available-now", partitions=2, **form)
        running.wait(timeout=300)
        assert consumed(broker, name, 3) == counted
        assert broker.servers not in repr(running.launch)


def test_a_cell_writes_to_a_topic(
    numbers: DataFrame,
    broker: Broker,
    bare_shell: Shell,
    tmp_path: Path,
) -> None:
    """The options may be repeated."""
    broker.create("cell", partitions=1)
    bare_shell.names.update(spark=numbers.sparkSession, numbers=numbers, servers=broker.servers)
    options = "--sink kafka:cell --sink-option kafka.bootstrap.servers={servers} --sink-option kafka.linger.ms=1"
    cell = f"%%stream cell {options} --trigger available-now --partitions 2 --store {tmp_path / 'store'}\nnumbers"
    bare_shell.run(cell).wait(timeout=300)
    assert len(consumed(broker, "cell", 3)) == 3


def test_passwords_are_stored_nowhere(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    """Those of the source, also where its input is recorded, and of the sink."""
    broker.create("guarded", partitions=1)
    broker.create("out", partitions=1)
    broker.produce("guarded", [(0, "k", "v")])
    secret = {"kafka.bootstrap.servers": broker.servers, "kafka.sasl.jaas.config": 'Plain password="hushhush";'}
    reader = spark.readStream.format("kafka").options(**secret, subscribe="guarded", startingOffsets="earliest")
    counted = reader.load().groupBy("key").count().selectExpr("key", "CAST(count AS string) AS value")
    for name, recorded in (("read", False), ("kept", True)):
        ss.start(
            counted,
            name,
            tmp_path / "store",
            trigger="available-now",
            partitions=1,
            sink="kafka:out",
            sink_options=secret,
            record_input=recorded,
        ).wait(timeout=300)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any("_plans" in str(path) for path in files)
    for path in files:
        rows = str(pq.read_table(path).to_pylist()) if path.suffix == ".parquet" else ""
        assert "hushhush" not in path.read_bytes().decode("latin") + rows, path


def test_what_kafka_cannot_take_is_refused_before_the_start(numbers: DataFrame, broker: Broker, tmp_path: Path) -> None:
    """Without brokers, without a value, and without a topic."""
    servers = {"kafka.bootstrap.servers": broker.servers}
    with pytest.raises(InvalidArgumentError, match=r"needs the option kafka\.bootstrap\.servers"):
        ss.start(numbers, "no", tmp_path / "store", sink="kafka:out")
    with pytest.raises(QueryError, match=r"needs a column value of type string or binary; the query returns key, n"):
        ss.start(numbers.toDF("key", "n"), "no", tmp_path / "store", sink="kafka:out", sink_options=servers)
    with pytest.raises(QueryError, match="needs a topic"):
        ss.start(numbers, "no", tmp_path / "store", sink="kafka", sink_options=servers)
    assert not (tmp_path / "checkpoints").exists()


def test_a_sink_that_dies_at_its_start_is_an_error_of_the_start(numbers: DataFrame, tmp_path: Path) -> None:
    """Here Kafka's producer refuses an option; nothing goes on in the background."""
    options = {"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.key.serializer": "mine", "topic": "out"}
    with pytest.raises(QueryError, match=r"Spark did not start dies: .*key\.serializer"):
        ss.start(numbers, "dies", tmp_path / "store", sink="kafka", sink_options=options)
    assert not [query for query in numbers.sparkSession.streams.active if query.name == "dies"]
