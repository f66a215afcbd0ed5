"""Records of Kafka's topics that are gone, in words."""

from __future__ import annotations

import pytest

from streamstate.errors import first_line
from streamstate.snapshots.spark.kafka_broker import Topic
from streamstate.state_inspect.inputs.kafka_losses import EpochRecords, retention

TOPIC = Topic("one", {0: 10, 1: 0}, {0: 40, 1: 40}, {"retention.ms": "5400000", "retention.bytes": "-1"})
KEPT = ", since the topic keeps records for 90 minutes (retention.ms=5400000)"


@pytest.mark.parametrize(
    ("read", "ids", "gone"),
    [
        ({0: (10, 40), 1: (0, 40)}, {}, []),
        ({0: (10, 40), 1: (0, 40)}, {"t": "one"}, []),
        ({0: (0, 20)}, {}, [f"records 0 to 9 of the topic t, partition 0{KEPT}"]),
        ({0: (2, 5), 1: (0, 9)}, {}, [f"records 2 to 4 of the topic t, partition 0{KEPT}"]),
        ({0: (10, 41)}, {}, ["the topic t was deleted and created again, so that its offsets mean other records"]),
        ({2: (0, 1)}, {}, ["the topic t was deleted and created again, so that its offsets mean other records"]),
        (
            {1: (0, 9)},
            {"t": "two"},
            ["the topic t was deleted and created again, so that its offsets mean other records"],
        ),
    ],
)
def test_the_offsets_of_an_epoch_are_compared_with_those_of_the_topic(
    read: dict[int, tuple[int, int]], ids: dict[str, str], gone: list[str]
) -> None:
    """Only what the epoch read counts."""
    assert EpochRecords({"t": read}, {"t": TOPIC}, ids).gone() == gone


def test_a_deleted_topic() -> None:
    """All of its records are gone."""
    assert EpochRecords({"t": {0: (0, 1)}}, {"t": None}, {}).gone() == ["the topic t has been deleted"]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, ""),
        ({"retention.ms": "604800000", "retention.bytes": "-1"}, "7 days (retention.ms=604800000)"),
        ({"retention.ms": "90500", "retention.bytes": "1000"}, "at most 1,000 bytes a partition (retention.bytes)"),
        ({"retention.ms": "-1", "retention.bytes": "-1"}, "somebody deleted them"),
        (
            {"retention.ms": "604800000", "cleanup.policy": "compact"},
            ", since the topic keeps only the newest record of each key (cleanup.policy=compact)",
        ),
        (
            {"retention.ms": "604800000", "cleanup.policy": "compact,delete"},
            "of each key (cleanup.policy=compact) and records for 7 days (retention.ms=604800000)",
        ),
    ],
)
def test_retention_in_words(settings: dict[str, str], words: str) -> None:
    """A user may be forbidden to read the settings, which is no reason to fail."""
    assert words in retention(Topic("one", {}, {}, settings))


def test_the_reason_that_kafka_gives_is_kept() -> None:
    """Spark's first line says that data may be lost; which is in a later one."""
    text = (
        "Some data may have been lost;\neither aged out\nReason: Partitions Set(a-0) have been deleted. SQLSTATE: XXKST"
    )
    assert first_line(text) == "Some data may have been lost. Reason: Partitions Set(a-0) have been deleted."
