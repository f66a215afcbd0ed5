"""Offsets of sources: Kafka's, Delta's and the file source's, in the JSON that each source writes to the offset log."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeAlias

from streamstate.snapshots.checkpoint.delta_offsets import DeltaOffset, is_delta

Partitions: TypeAlias = "Mapping[str, int]"
"""Kafka's offsets of one topic, by partition."""


def parsed(offset: Any) -> Any:
    """Return an offset as the value that its JSON holds; other text and values as they are."""
    try:
        return json.loads(offset) if isinstance(offset, str) else offset
    except ValueError:
        return offset


def kafka_topics(offset: Any) -> dict[str, Partitions] | None:
    """Return the offsets of a Kafka source by topic and partition; None for offsets of other sources.

    Example:
        >>> kafka_topics('{"flights":{"0":812,"1":790}}')
        {'flights': {'0': 812, '1': 790}}
        >>> kafka_topics('{"logOffset":9}')
    """
    topics = parsed(offset)
    return topics if isinstance(topics, dict) and topics and all(map(_has_partitions, topics.values())) else None


def read_topics(offset: Any) -> dict[str, Partitions] | None:
    """Return how far Kafka was read, by topic and partition: by a source, or by the recorder of a recording.

    Example:
        >>> read_topics({"recording": "store/q/_inputs/0", "batch": 3, "source": {"flights": {"0": 812}}})
        {'flights': {'0': 812}}
    """
    known = parsed(offset)
    return kafka_topics(known["source"] if is_recording(known) and "source" in known else known)


def is_recording(offset: Any) -> bool:
    """Return whether a parsed offset is of a recording, whose batches it counts."""
    return isinstance(offset, dict) and {"recording", "batch"} <= offset.keys()


def first_offset(offset: Any, facts: object) -> Any:
    """Return where a query, or the recorder of its recording, began to read a source; None if it is not known.

    ``facts`` are what the manifest knows of the source.
    """
    known = parsed(offset)
    if is_recording(known):
        return known.get("began")
    return facts.get("start") if isinstance(facts, dict) else None


def _has_partitions(topic: Any) -> bool:
    return isinstance(topic, dict) and all(
        partition.isdecimal() and isinstance(offset, int) for partition, offset in topic.items()
    )


def file_batch(offset: Any) -> int | None:
    """Return the number of the source's own batch that an epoch ends at; None for sources other than file sources."""
    known = parsed(offset)
    batch = known["logOffset"] if isinstance(known, dict) and [*known] == ["logOffset"] else None
    return batch if isinstance(batch, int) else None


def in_words(offset: Any, files: int | None = None) -> str:
    """Return an offset in words.

    Args:
        offset: the source's own JSON, as text or parsed; None before its first rows.
        files: the number of files that a file source had read, if it is known.

    Example:
        >>> in_words('{"flights":{"0":812,"1":790}}')
        'flights: partition 0 at offset 812, partition 1 at offset 790'
    """
    if offset is None:
        return "nothing read yet"
    if files is not None:
        return f"{files:,} file{'s' * (files != 1)}"
    known = parsed(offset)
    if (batch := file_batch(known)) is not None:
        return f"files up to the source's batch {batch}"
    if (topics := kafka_topics(known)) is not None:
        return "; ".join(_topic(topic, partitions) for topic, partitions in topics.items())
    if is_delta(known):
        return str(DeltaOffset.of(known))
    return f"recording up to batch {known['batch']}" if is_recording(known) else _number_or_text(offset, known)


def _number_or_text(offset: Any, known: Any) -> str:
    text = offset if isinstance(offset, str) else json.dumps(offset)
    return f"offset {known}" if isinstance(known, int) else text


def _topic(topic: str, partitions: Partitions) -> str:
    numbers = sorted(partitions, key=int)
    parts = [f"partition {number} at offset {partitions[number]}" for number in numbers]
    return f"{topic}: {', '.join(parts) or 'no partitions'}"
