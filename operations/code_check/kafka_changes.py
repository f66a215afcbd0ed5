"""Differences between the topics that code reads, those of the checkpoint, and those that the broker has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from streamstate.errors import choices
from streamstate.operations.code_check.report import Finding
from streamstate.snapshots.checkpoint.source_offsets import kafka_topics
from streamstate.snapshots.spark.kafka_broker import (
    SilentBrokerError,
    Topic,
    assigned,
    loss_fails,
    no_answer,
    servers,
    subscribed,
    topics,
)
from streamstate.state_inspect.inputs.kafka_losses import EpochRecords

_SUBSCRIBE_AGAIN = (
    "Subscribe to them again, and keep the sources and their order; or start over with another checkpoint."
)
_FAILS = "Spark fails once there are new records: it takes them for lost."
_SKIPS = "Spark continues without them, because failOnDataLoss is false."
_LOST_ADVICE = "Start over with another checkpoint; or set failOnDataLoss to false, if the state may lack them."


def kafka_findings(jvm: Any, leaf: Any, place: int, offset: str, ids: Mapping[str, str]) -> Iterator[Finding]:
    """Yield what is different about the topics of a source that has an offset in the checkpoint.

    Args:
        jvm: Spark's JVM.
        leaf: the source in the plan of the code.
        place: its place among the sources.
        offset: its offset in the checkpoint.
        ids: the ids that its topics had, as far as they are known.
    """
    try:
        names = subscribed(jvm, leaf)
        found = topics(jvm, leaf, {*names, *(kafka_topics(offset) or {})})
    except SilentBrokerError as error:
        change, advice = no_answer(leaf, error).split("\n")
        yield Finding("source_unreachable", change, "Spark does not start.", advice)
        return
    source = _Source(place, leaf, names, found, kafka_topics(offset) or {}, ids)
    yield from source.missing()
    yield from source.unread()
    yield from source.added(assigned(leaf))
    yield from source.lost()
    yield from source.created_again()


@dataclass(frozen=True)
class _Source:
    """A source of the code, and its offsets."""

    place: int
    leaf: Any
    names: list[str]
    """The topics that it reads."""
    found: Mapping[str, Topic | None]
    """The topics of the broker, those of the checkpoint included."""
    offsets: Mapping[str, Mapping[str, int]]
    ids: Mapping[str, str]
    """The ids that the topics had, as far as they are known."""

    def missing(self) -> Iterator[Finding]:
        """Topics that do not exist."""
        if missing := [name for name in self.names if self.found[name] is None]:
            change = f"Source {self.place} reads {choices(missing)}: no such topic at {servers(self.leaf)}."
            advice = "Create the topic, or correct its name. A topic that was deleted is lost: start over."
            yield Finding("topics_missing", change, "Spark fails with its first epoch.", advice)

    def unread(self) -> Iterator[Finding]:
        """Partitions of the checkpoint that the code no longer reads."""
        own = assigned(self.leaf)
        lost = []
        for topic, partitions in self.offsets.items():
            if topic not in self.names:
                lost.append(topic)
            elif own is not None and (fewer := sorted({int(part) for part in partitions} - own[topic])):
                lost.append(f"{topic} (partition {', '.join(map(str, fewer))})")
        if not lost:
            return
        change = f"Source {self.place} no longer reads {choices(lost)}, of which the checkpoint has offsets."
        if loss_fails(self.leaf):
            yield Finding("topics_lost", change, _FAILS, _SUBSCRIBE_AGAIN)
        else:
            effect = "The state keeps what it got from them, but gets no more."
            yield Finding("topics", change, effect, "If intended, nothing; else subscribe to them again.")

    def added(self, own: Mapping[str, set[int]] | None) -> Iterator[Finding]:
        """Topics and partitions of which the checkpoint has no offsets, which Spark reads from their first record."""
        new, starts_late = [], []
        for name in self.names:
            topic, known = self.found[name], self.offsets.get(name)
            if topic is None:
                continue
            new += [name] * (known is None)
            parts = topic.first if own is None else {part: topic.first.get(part, 0) for part in own[name]}
            fresh = {part: at for part, at in parts.items() if str(part) not in (known or {})}
            starts_late += [f"{name}, partition {part}, starts at {at}" for part, at in sorted(fresh.items()) if at]
        if starts_late and loss_fails(self.leaf):
            change = f"Source {self.place} reads partitions that are new to it, without their first records:"
            advice = "Leave them out, or set failOnDataLoss to false for the start."
            yield Finding("records_lost", f"{change} {'; '.join(starts_late)}.", _FAILS, advice)
        elif new:
            change = f"Source {self.place} also reads {choices(new)}, of which the checkpoint has no offsets."
            effect = "Spark reads them from their first record, whatever startingOffsets says."
            yield Finding("topics", change, effect, "If intended, nothing; else leave them out.")

    def lost(self) -> Iterator[Finding]:
        """Records after the checkpoint's offsets that are gone."""
        known = {name: parts for name, parts in self.offsets.items() if name in self.names and self.found[name]}
        if not (gone := list(_gone_since(self.found, known))):
            return
        change = f"Source {self.place} goes on after the checkpoint's offsets, and there: {'; '.join(gone)}."
        if loss_fails(self.leaf):
            yield Finding("records_lost", change, _FAILS, _LOST_ADVICE)
        else:
            yield Finding("records_skipped", change, _SKIPS, "If the state may lack them, nothing.")

    def created_again(self) -> Iterator[Finding]:
        """Topics that are others of the same names, and have records at the checkpoint's offsets."""
        others = []
        for name in self.names:
            topic, partitions = self.found[name], self.offsets.get(name, {})
            if topic is not None and self.ids.get(name, topic.id) != topic.id:
                others += [name] * all(topic.end.get(int(part), -1) >= at for part, at in partitions.items())
        if others:
            change = f"Source {self.place} reads {choices(others)}, which was deleted and created again."
            effect = "Spark goes on at the checkpoint's offsets, which mean other records now."
            yield Finding("topics", change, effect, "Start over with another checkpoint, to read the new topic whole.")


def _gone_since(found: Mapping[str, Topic | None], offsets: Mapping[str, Mapping[str, int]]) -> Iterator[str]:
    """Yield what is gone of the records after some offsets."""
    for name, partitions in offsets.items():
        topic = found[name]
        assert topic is not None
        upto = {int(part): (at, max(at, topic.first.get(int(part), at))) for part, at in partitions.items()}
        yield from EpochRecords({name: upto}, {name: topic}, {}).gone()
