"""Records of Kafka's topics that an epoch read and that are gone by now, in words."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from streamstate.errors import NotReplayableError
from streamstate.snapshots.checkpoint.source_offsets import kafka_topics
from streamstate.snapshots.checkpoint.source_progress import recorded_start
from streamstate.snapshots.spark.kafka_broker import SilentBrokerError, Topic, no_answer, topics

if TYPE_CHECKING:
    from streamstate.snapshots.checkpoint.filesystem import ReadableFiles
    from streamstate.state_inspect.inputs.epoch_offsets import SourceRange

Offsets: TypeAlias = "Mapping[str, Mapping[str, int]]"
"""By topic and partition, the offset after the last record."""
ReadOffsets: TypeAlias = "Mapping[str, Mapping[int, tuple[int, int]]]"
"""By topic and partition, the first offset that an epoch read, and the one after the last."""

_UNITS = (("day", 86_400_000), ("hour", 3_600_000), ("minute", 60_000), ("second", 1_000))
_ADVICE = (
    "Epochs whose records the topic still has can be read. To keep the records of later epochs, record the query's"
    " input (record_input=True, %%stream --record-input or streamstate.record), or raise the topic's retention.ms."
)


@dataclass(frozen=True)
class EpochRecords:
    """The records between an epoch's offsets, as the broker has them now."""

    read: ReadOffsets
    topics: Mapping[str, Topic | None]
    ids: Mapping[str, str]
    """The topics' ids when the epoch ran, as far as they are known."""

    @property
    def offsets(self) -> int:
        """The number of offsets that the epoch covers; transactions and compaction leave some without a record."""
        return sum(upto - after for partitions in self.read.values() for after, upto in partitions.values())

    @property
    def compacted(self) -> list[str]:
        """The topics of which records may have been removed between others."""
        return [name for name, topic in self.topics.items() if topic is not None and topic.compacted]

    def replaced(self) -> Iterator[str]:
        """Yield the topics that no longer have any of the records."""
        for name, partitions in self.read.items():
            topic = self.topics[name]
            if topic is None:
                yield f"the topic {name} has been deleted"
            elif _is_another(topic, self.ids.get(name), partitions):
                yield f"the topic {name} was deleted and created again, so that its offsets mean other records"

    def expired(self) -> Iterator[str]:
        """Yield the records that a topic has deleted, the oldest first."""
        for name, partitions in self.read.items():
            topic = self.topics[name]
            if topic is None or _is_another(topic, self.ids.get(name), partitions):
                continue
            if spans := list(_expired(name, topic, partitions)):
                yield f"records {' and '.join(spans)}{retention(topic)}"

    def gone(self) -> list[str]:
        """Return all that is gone for certain."""
        return [*self.replaced(), *self.expired()]


def records_now(
    jvm: Any,
    leaf: Any,
    source: SourceRange,
    files: ReadableFiles,
    checkpoint: str,
    *,
    epoch: str,
    ids: Mapping[str, str],
) -> EpochRecords:
    """Ask the broker of a source about the records between an epoch's offsets.

    Args:
        jvm: the JVM.
        leaf: the source, in an analysed plan.
        source: the range that the epoch read.
        files: those of the checkpoint.
        checkpoint: its path.
        epoch: the epoch, for messages.
        ids: the topics' ids at that time, as far as they are known.

    Raises:
        NotReplayableError: the broker does not answer.
    """
    if source.is_empty:
        return EpochRecords({}, {}, ids)
    start = recorded_start(files, f"{checkpoint}/{source.log}") if source.start is None else source.start
    read = read_offsets(kafka_topics(start) or {}, kafka_topics(source.end) or {})
    try:
        return EpochRecords(read, topics(jvm, leaf, read), ids)
    except SilentBrokerError as error:
        raise NotReplayableError(f"The input of {epoch} cannot be read: {no_answer(leaf, error)}") from error


def read_offsets(start: Offsets, end: Offsets) -> ReadOffsets:
    """Return the offsets of those partitions of which an epoch read records.

    A partition that was new to the query was read from its beginning.
    """
    found: dict[str, dict[int, tuple[int, int]]] = {}
    for topic, partitions in end.items():
        for partition, upto in partitions.items():
            after = start.get(topic, {}).get(partition, 0)
            if after < upto:
                found.setdefault(topic, {})[int(partition)] = after, upto
    return found


def last_loss(
    ends: Mapping[int, Offsets], topics: Mapping[str, Topic | None], ids: Callable[[int], Mapping[str, str]]
) -> tuple[int, list[str]] | None:
    """Return the last epoch of which records are gone, and which they are; None if all are there.

    Args:
        ends: the end offsets of a source by epoch, ascending; the start of the query as epoch −1. After a gap it is not
            known what an epoch read.
        topics: the topics as they are now.
        ids: returns the topics' ids at an epoch, as far as they are known.
    """
    for epoch in reversed([*ends]):
        if (before := ends.get(epoch - 1)) is None:
            continue
        if gone := EpochRecords(read_offsets(before, ends[epoch]), topics, ids(epoch)).gone():
            return epoch, gone
    return None


def input_gone(epoch: str, gone: list[str]) -> NotReplayableError:
    """Return the error for an epoch of which records are gone."""
    return NotReplayableError(f"Input that {epoch} read is gone: {'; '.join(gone)}.\n{_ADVICE}")


def _is_another(topic: Topic, known: str | None, partitions: Mapping[int, tuple[int, int]]) -> bool:
    shorter = any(topic.end.get(partition, -1) < upto for partition, (_, upto) in partitions.items())
    return shorter or (known is not None and known != topic.id)


def _expired(name: str, topic: Topic, partitions: Mapping[int, tuple[int, int]]) -> Iterator[str]:
    where = f"the topic {name}, partition"
    for partition, (after, upto) in sorted(partitions.items()):
        if (first := topic.first[partition]) > after:
            yield f"{after} to {min(first, upto) - 1} of {where} {partition}"
            where = "partition"


def retention(topic: Topic) -> str:
    """Return how long a topic keeps its records, as the end of a sentence; empty if that is not known."""
    if not topic.settings:
        return ""
    kept = keeps(topic)
    return f", since the topic {kept}" if kept else ", although the topic keeps records for ever: somebody deleted them"


def keeps(topic: Topic) -> str:
    """Return how long a topic keeps its records, in words; empty if for ever, or if that is not known.

    Example:
        >>> keeps(Topic("id", {}, {}, {"retention.ms": "604800000"}))
        'keeps records for 7 days (retention.ms=604800000)'
    """
    kept = ["only the newest record of each key (cleanup.policy=compact)"] * topic.compacted
    if topic.expires:
        time, size = (topic.settings.get(f"retention.{name}", "-1") for name in ("ms", "bytes"))
        kept += [f"records for {_span(int(time))} (retention.ms={time})"] if time != "-1" else []
        kept += [f"at most {int(size):,} bytes a partition (retention.bytes)"] if size != "-1" else []
    return f"keeps {' and '.join(kept)}" if kept else ""


def _span(milliseconds: int) -> str:
    for unit, length in _UNITS:
        if milliseconds >= length and milliseconds % length == 0:
            count = milliseconds // length
            return f"{count:,} {unit}{'s' * (count != 1)}"
    return f"{milliseconds:,} ms"
