"""Inputs of epochs over topics with transactions, new partitions, compaction and expired records.

An independent consumer reads each epoch's range right after it ran, and again when all is over. `inputs` and `why`
return what it read at first, or refuse; and they refuse only where it no longer reads the same.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from services.kafka.broker import Broker
from services.kafka.counting import Counting
from streamstate.errors import NotReplayableError
from streamstate.snapshots.checkpoint.source_offsets import kafka_topics
from streamstate.snapshots.checkpoint.source_progress import recorded_start
from streamstate.snapshots.store.query_plans import plan_table
from streamstate.state_inspect.inputs.kafka_losses import read_offsets

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Record: TypeAlias = "tuple[str, int, int, bytes]"
"""Topic, partition, offset and key."""

_KEYS = 6


@pytest.mark.parametrize(
    ("seed", "runs", "isolation"),
    [
        (1, 3, "read_committed"),
        pytest.param(2, 30, "read_uncommitted", marks=pytest.mark.exhaustive),
        pytest.param(3, 30, "read_committed", marks=pytest.mark.exhaustive),
        pytest.param(4, 30, "read_committed", marks=pytest.mark.exhaustive),
        pytest.param(5, 30, "read_uncommitted", marks=pytest.mark.exhaustive),
    ],
)
def test_inputs_and_why_are_those_of_an_independent_consumer(
    spark: SparkSession, broker: Broker, tmp_path: Path, seed: int, runs: int, isolation: str
) -> None:
    """Or refused, only if records are gone."""
    dice = random.Random(seed)
    topics = _Topics(broker, f"random{seed}", dice)
    options = {"subscribePattern": f"random{seed}-.*", "maxOffsetsPerTrigger": "15", "kafka.isolation.level": isolation}
    query = Counting(spark, broker, f"random{seed}", tmp_path, **options)
    read: dict[int, set[Record]] = {}
    for _ in range(runs):
        topics.grow()
        query.run()
        for epoch, ranges in _ranges(query):
            if epoch not in read:
                read[epoch] = _consumed(broker, ranges, isolation)
    topics.expire()
    ranges_of = dict(_ranges(query))
    refused = 0
    for epoch, records in read.items():
        try:
            found = query.history.inputs(epoch)
        except NotReplayableError:
            assert _consumed(broker, ranges_of[epoch], isolation) != records
            refused += 1
            continue
        rows = found.select("topic", "partition", "offset", "key").collect()
        assert {(row.topic, row.partition, row.offset, bytes(row.key)) for row in rows} == records
        key = f"k{dice.randrange(_KEYS)}"
        why = query.history.why(epoch, k=key)
        assert why.count() == sum(record[3] == key.encode() for record in records)
    assert 0 < refused < len(read)


class _Topics:
    """Topics to which anything happens."""

    def __init__(self, broker: Broker, prefix: str, dice: random.Random) -> None:
        self._broker, self._prefix, self._dice = broker, prefix, dice
        self._partitions: dict[str, int] = {}
        self._number = 0

    def grow(self) -> None:
        """Append records, aborted ones too; sometimes create a topic or a partition first."""
        dice = self._dice
        if not self._partitions or dice.random() < 0.3:
            self._partitions[name := f"{self._prefix}-{len(self._partitions)}"] = 1
            self._broker.create(name, partitions=1)
        if dice.random() < 0.5:
            name = dice.choice(sorted(self._partitions))
            self._partitions[name] += 1
            self._broker.add_partitions(name, self._partitions[name])
        for kind in dice.choices(["plain", "commit", "abort"], k=4):
            name = dice.choice(sorted(self._partitions))
            self._append(name, kind, dice.randint(1, 12))

    def _append(self, topic: str, kind: str, count: int) -> None:
        records = [
            (self._dice.randrange(self._partitions[topic]), f"k{self._dice.randrange(_KEYS)}", "v")
            for _ in range(count)
        ]
        if kind == "plain":
            self._broker.produce(topic, records)
            return
        self._number += 1
        producer = Producer(
            {"bootstrap.servers": self._broker.servers, "transactional.id": f"{self._prefix}-{self._number}"}
        )
        producer.init_transactions()
        producer.begin_transaction()
        for partition, key, value in records:
            producer.produce(topic, value=value, key=key, partition=partition)
        producer.flush(30)
        (producer.commit_transaction if kind == "commit" else producer.abort_transaction)()

    def expire(self) -> None:
        """Delete the oldest records of the first topic."""
        self._broker.expire(f"{self._prefix}-0", {0: 3})


def _ranges(query: Counting) -> Iterator[tuple[int, Mapping[str, Mapping[int, tuple[int, int]]]]]:
    """Return the offsets that each epoch read, from the checkpoint's files."""
    files = query.checkpoint_files
    before = kafka_topics(recorded_start(files.files, f"{files.path}/sources/0")) or {}
    for epoch in files.committed():
        planned = files.planned(epoch)
        assert planned is not None
        end = kafka_topics(planned.offsets[0]) or {}
        yield epoch, read_offsets(before, end)
        before = end


def _consumed(broker: Broker, ranges: Mapping[str, Mapping[int, tuple[int, int]]], isolation: str) -> set[Record]:
    """Return the records between offsets, as a consumer reads them now."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.servers, "group.id": "independent", "enable.partition.eof": True,
            "isolation.level": isolation, "auto.offset.reset": "earliest", "enable.auto.commit": False,
        }
    )  # fmt: skip
    places = {(topic, part): upto for topic, parts in ranges.items() for part, (_, upto) in parts.items()}
    consumer.assign([TopicPartition(topic, part, ranges[topic][part][0]) for topic, part in places])
    found: set[Record] = set()
    waiting = set(places)
    until = time.monotonic() + 30
    while waiting:
        assert time.monotonic() < until, waiting
        message = consumer.poll(1)
        if message is None:
            continue
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        assert topic is not None
        assert partition is not None
        place = topic, partition
        if (ended := message.error()) is not None:
            assert ended.code() == KafkaError._PARTITION_EOF
            waiting.discard(place)
            continue
        assert offset is not None
        if offset < places[place]:
            found.add((*place, offset, message.key() or b""))
        if offset >= places[place] - 1:
            waiting.discard(place)
    consumer.close()
    return found


@pytest.mark.slow
def test_a_compacted_topic_is_read_as_long_as_it_has_all_records(
    spark: SparkSession, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Part of an epoch is never returned as the whole; a run without a store says that records may be missing."""
    broker.create("compacted", 1, cleanup_policy="compact", segment_ms="100", min_cleanable_dirty_ratio="0.0")
    query = Counting(spark, broker, "compacted", tmp_path, subscribe="compacted")
    for _ in range(2):
        broker.produce("compacted", ((0, f"k{n % 5}", "v") for n in range(20)))
        query.run()
    first = dict(_ranges(query))[0]
    broker.produce("compacted", [(0, "other", "v")])  # rolls the segment
    until = time.monotonic() + 60
    while len(_consumed(broker, first, "read_committed")) == 20:
        assert time.monotonic() < until
        broker.produce("compacted", [(0, "other", "v")])
    left = r"records are left, and it read 20. The topic compacted is compacted"
    with pytest.raises(NotReplayableError, match=left):
        query.history.inputs(0)
    with pytest.raises(NotReplayableError, match=left):
        query.checkpoint.replay(query.build, epochs=(0, 0))
    monkeypatch.setattr(plan_table, "_layouts", {})  # no store says how many records the epoch read
    run = query.checkpoint.replay(query.build, epochs=(0, 0)).steps.epochs[0]
    assert run.input_rows is not None
    assert run.input_rows < 20
    said = f"{run.input_rows} records of 20 offsets are left: others may have been compacted away since"
    assert said in (run.doubt or "")
    report = query.checkpoint.check(query.build, replay=1)
    assert "records of 20 offsets are left" in next(
        finding.change for finding in report.findings if finding.kind == "input_uncertain"
    )


@pytest.mark.slow
def test_an_epoch_that_lost_records_itself_is_marked(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    """It read 15 of the 20 records between its offsets, and these are still there; the first epoch's are not."""
    broker.create("holes", 1)
    query = Counting(spark, broker, "holes", tmp_path, subscribe="holes", failOnDataLoss="false")
    for expired in (0, 15):
        broker.produce("holes", ((0, f"k{n % 5}", "v") for n in range(10)))
        if expired:
            broker.produce("holes", ((0, f"k{n % 5}", "v") for n in range(10)))
            broker.expire("holes", {0: expired})
        query.run()
    with pytest.raises(NotReplayableError, match="records 0 to 9 of the topic holes, partition 0"):
        query.history.inputs(0)
    rows = query.history.inputs(1)
    assert rows.count() == 15
    assert "Lost before the epoch read them, and never in the state: records 10 to 14" in rows.notes[0]
    assert rows.notes[0] in repr(query.history.why(1, k="k3"))
    replay = query.checkpoint.replay(query.build, epochs=(1, 1))
    assert (replay.same, replay.steps.epochs[0].input_rows) == (True, 15)
    with pytest.raises(NotReplayableError, match="records 0 to 9 of the topic holes, partition 0"):
        query.checkpoint.replay(query.build, epochs=(0, 0))


def test_an_epoch_with_transactions_is_marked(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    """Aborted records and the marks of transactions have offsets, and are no loss."""
    broker.create("paid", 1)
    query = Counting(spark, broker, "paid", tmp_path, subscribe="paid", **{"kafka.isolation.level": "read_committed"})
    topics = _Topics(broker, "paid", random.Random(0))
    topics._partitions["paid"] = 1
    topics._append("paid", "abort", 5)
    topics._append("paid", "commit", 7)
    query.run()
    rows = query.history.inputs(0)
    assert rows.count() == 7
    assert len(rows.notes) == 1
    assert rows.notes[0].startswith("The epoch's offsets cover 14 records, and it read 7. None were lost")
    assert query.checkpoint.replay(query.build, epochs=(0, 0)).same
    broker.expire("paid", {0: 6})  # only what was aborted
    rows = query.history.inputs(0)
    assert rows.count() == 7
    assert "Gone, and never read: records 0 to 5 of the topic paid" in rows.notes[0]
    with pytest.raises(NotReplayableError, match="records 0 to 5 of the topic paid"):  # where Spark fails
        query.checkpoint.replay(query.build, epochs=(0, 0))
