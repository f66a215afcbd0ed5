"""Records of Kafka's topics that an epoch read and that are gone by now, in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from streamstate.errors import NotReplayableError
from streamstate.snapshots.checkpoint.source_offsets import kafka_topics
from streamstate.snapshots.checkpoint.source_progress import recorded_start
from streamstate.snapshots.spark.kafka_broker import SilentBrokerError, Topic, no_answer, topics

if TYPE_CHECKING:
    from streamstate.snapshots.checkpoint.filesystem import ReadableFiles
    from streamstate.state_inspect.inputs.epoch_offsets import SourceRange

_UNITS = (("day", 86_400_000), ("hour", 3_600_000), ("minute", 60_000), ("second", 1_000))
_ADVICE = (
    "Epochs whose records the topic still has can be read. To keep the records of later epochs, record the query's"
    " input (record_input=True, %%stream --record-input or streamstate.record), or raise the topic's retention.ms."
)


def check_kept(
    jvm: Any,
    leaf: Any,
    source: SourceRange,
    files: ReadableFiles,
    checkpoint: str,
    *,
    epoch: int,
    name: str,
    ids: Mapping[str, str],
) -> list[str]:
    """Check that a source's topics still have all records of an epoch; return the topics that are compacted.

    Args:
        jvm: the JVM.
        leaf: the source, in an analysed plan.
        source: the range that the epoch read.
        files: those of the checkpoint.
        checkpoint: its path.
        epoch: the epoch.
        name: the query, for messages.
        ids: the topics' ids at that time, as far as they are known.

    Raises:
        NotReplayableError: records are gone, or the broker does not answer.
    """
    if source.is_empty:
        return []
    end = kafka_topics(source.end) or {}
    start = kafka_topics(recorded_start(files, f"{checkpoint}/{source.log}") if source.start is None else source.start)
    read = _partitions(start or {}, end)
    try:
        found = topics(jvm, leaf, read)
    except SilentBrokerError as error:
        raise NotReplayableError(
            f"The input of epoch {epoch} of {name} cannot be read: {no_answer(leaf, error)}"
        ) from error
    if gone := list(gone_records(found, read, ids)):
        raise NotReplayableError(f"Input that epoch {epoch} of {name} read is gone: {'; '.join(gone)}.\n{_ADVICE}")
    return [topic for topic, now in found.items() if now is not None and now.compacted]


def _partitions(
    start: Mapping[str, Mapping[str, int]], end: Mapping[str, Mapping[str, int]]
) -> dict[str, dict[int, tuple[int, int]]]:
    """Return the offsets between which an epoch read, of those partitions of which it read records.

    A partition that was new to the query was read from its beginning.
    """
    found: dict[str, dict[int, tuple[int, int]]] = {}
    for topic, partitions in end.items():
        for partition, upto in partitions.items():
            after = start.get(topic, {}).get(partition, 0)
            if after < upto:
                found.setdefault(topic, {})[int(partition)] = after, upto
    return found


def gone_records(
    found: Mapping[str, Topic | None], read: Mapping[str, Mapping[int, tuple[int, int]]], ids: Mapping[str, str]
) -> Iterator[str]:
    """Yield what is gone of the records that were read: ``read`` has the offsets by topic and partition."""
    for name, partitions in read.items():
        topic = found[name]
        if topic is None:
            yield f"the topic {name} has been deleted"
        elif (ids.get(name) or topic.id) != topic.id or any(
            topic.end.get(partition, -1) < upto for partition, (_, upto) in partitions.items()
        ):
            yield f"the topic {name} was deleted and created again, so that its offsets mean other records"
        elif expired := list(_expired(topic, partitions)):
            yield f"records {' and '.join(_spans(name, expired))}{retention(topic)}"


def _expired(topic: Topic, partitions: Mapping[int, tuple[int, int]]) -> Iterator[tuple[int, int, int]]:
    for partition, (after, upto) in sorted(partitions.items()):
        if topic.first[partition] > after:
            yield partition, after, min(topic.first[partition], upto) - 1


def _spans(name: str, expired: list[tuple[int, int, int]]) -> Iterator[str]:
    for at, (partition, first, last) in enumerate(expired):
        yield f"{first} to {last} of {f'partition {partition}' if at else f'the topic {name}, partition {partition}'}"


def retention(topic: Topic) -> str:
    """Return how long a topic keeps its records, as the end of a sentence; empty if that is not known."""
    time, size = (topic.settings.get(f"retention.{name}", "-1") for name in ("ms", "bytes"))
    kept = [f"{_span(int(time))} (retention.ms={time})"] if time != "-1" else []
    kept += [f"{int(size):,} bytes a partition (retention.bytes)"] if size != "-1" else []
    if kept:
        return f", since the topic keeps {' and at most '.join(kept)}"
    return ", although the topic keeps records for ever: somebody has deleted them" if topic.settings else ""


def _span(milliseconds: int) -> str:
    for unit, length in _UNITS:
        if milliseconds >= length and milliseconds % length == 0:
            count = milliseconds // length
            return f"{count:,} {unit}{'s' * (count != 1)}"
    return f"{milliseconds:,} ms"
