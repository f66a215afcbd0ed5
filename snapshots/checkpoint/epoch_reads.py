"""The input that each epoch read from its sources: for Kafka, the range of offsets in each partition."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from streamstate.snapshots.checkpoint.bindings import FORMAT as BINDING
from streamstate.snapshots.checkpoint.source_offsets import Partitions, first_offset, in_words, parsed, read_topics
from streamstate.snapshots.checkpoint.source_progress import recorded_by_source

if TYPE_CHECKING:
    from streamstate.snapshots.store.entries import Entry

BySource: TypeAlias = "Mapping[str | int, Any]"
"""Facts or offsets by the source's name or, if it has none, by its place in the query."""


@dataclass(frozen=True)
class EpochReads:
    """The input of one epoch."""

    words: dict[str | int, str]
    """Of each source, in words."""
    records: int | None
    """The number of Kafka's records between its offsets; None if the query reads no topic, or if it is not known."""
    reads_kafka: bool


def epoch_reads(epochs: Iterable[tuple[int, BySource, BySource]]) -> Iterator[EpochReads]:
    """Yield what each epoch read, from its number, its end offsets and the manifest's facts of its sources.

    Epochs ascend. What an epoch read is only known if the one before it is among them, or if it is the first of all.
    """
    last: tuple[int, BySource] | None = None
    for epoch, ends, facts in epochs:
        starts: BySource | None = None
        if epoch == 0:
            starts = {source: first_offset(end, facts.get(source)) for source, end in ends.items()}
        elif last is not None and last[0] == epoch - 1:
            starts = last[1]
        yield _reads(starts or {}, ends, facts)
        last = epoch, ends


def reads_in_manifest(entries: Iterable[Entry]) -> Iterator[EpochReads]:
    """Yield what each epoch read, from the manifest's rows, which ascend."""
    return epoch_reads(
        (entry.epoch, recorded_by_source(entry.offsets), recorded_by_source(entry.sources)) for entry in entries
    )


def in_a_line(words: BySource) -> str:
    """Return what an epoch read of all sources. Topics name themselves, and the only source needs no name.

    Example:
        >>> in_a_line({0: "flights: partition 0 from 790 to 811", 1: "62 files"})
        'flights: partition 0 from 790 to 811; 1: 62 files'
    """
    if len(words) == 1:
        return str(next(iter(words.values())))
    return "; ".join(text if ": " in text else f"{source}: {text}" for source, text in words.items())


def _reads(starts: BySource, ends: BySource, facts: BySource) -> EpochReads:
    words: dict[str | int, str] = {}
    counts: list[int | None] = []
    for source, end in ((source, parsed(end)) for source, end in ends.items()):
        if isinstance(end, dict) and BINDING in end:
            continue
        start, topics = read_topics(starts.get(source)), read_topics(end)
        if topics is None:
            known = facts.get(source)
            words[source] = in_words(end, known.get("files") if isinstance(known, dict) else None)
            continue
        words[source] = "; ".join(_topic(name, (start or {}).get(name), topics[name]) for name in topics)
        counts.append(_records(start, topics))
    known = [count for count in counts if count is not None]
    return EpochReads(words, sum(known) if known and len(known) == len(counts) else None, reads_kafka=bool(counts))


def _records(start: Mapping[str, Partitions] | None, end: Mapping[str, Partitions]) -> int | None:
    if start is None:
        return None
    before = [start.get(topic, {}).get(partition) for topic, partitions in end.items() for partition in partitions]
    after = [offset for partitions in end.values() for offset in partitions.values()]
    known = [offset for offset in before if offset is not None]
    # Of a new partition Spark reads what there is, from an offset that it does not write down.
    return max(sum(after) - sum(known), 0) if len(known) == len(after) else None


def _topic(topic: str, start: Partitions | None, end: Partitions) -> str:
    parts = [_partition(number, (start or {}).get(number), end[number]) for number in sorted(end, key=int)]
    return f"{topic}: {', '.join(parts) or 'no partitions'}"


def _partition(number: str, start: int | None, end: int) -> str:
    if start is None:
        return f"partition {number} up to {end - 1}" if end > 0 else f"partition {number} empty"
    if end == start:
        return f"partition {number} nothing (at {end})"
    if end < start:
        return f"partition {number} back from {start} to {end}"
    return f"partition {number} only {start}" if end == start + 1 else f"partition {number} from {start} to {end - 1}"
