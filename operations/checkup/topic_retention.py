"""Findings on topics of Kafka that keep their records for a shorter time than the store keeps epochs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from streamstate.operations.checkup.report import CheckupFinding
from streamstate.snapshots.checkpoint.source_offsets import first_offset, kafka_topics
from streamstate.snapshots.checkpoint.source_progress import recorded_by_source
from streamstate.snapshots.spark.kafka_broker import SilentBrokerError, Topic, reads_kafka, topics
from streamstate.snapshots.store.manifest import Manifest
from streamstate.snapshots.store.query_plans.plan_inputs import sources_of
from streamstate.snapshots.store.query_plans.plan_table import live_plan

if TYPE_CHECKING:
    from streamstate.snapshots.store.entries import Entry
    from streamstate.snapshots.store.layout import Layout

_RECORD = (
    "Let the topic keep its records longer (retention.ms), or record the input of the next query:"
    " %%stream --record-input, streamstate.start(…, record_input=True)."
)

Offsets = Mapping[str, Mapping[str, int]]


def topic_findings(layout: Layout, name: str) -> Iterator[CheckupFinding]:
    """Yield a finding for each topic of a query, if its plan is known in this process and its broker answers."""
    planned = live_plan(layout, name, None)
    if planned is None:
        return
    jvm: Any = planned.spark._jvm
    manifest = Manifest(layout, name)
    manifest.refresh()
    for source in sources_of(planned.analyzed):
        if not reads_kafka(source.leaf):
            continue
        ends = _ends(manifest.entries, source.name)
        try:
            known = topics(jvm, source.leaf, {topic for end in ends.values() for topic in end})
        except SilentBrokerError as error:
            yield CheckupFinding("warning", f"Whether the input of past epochs is still there is not known: {error}")
            continue
        for topic, now in known.items():
            if now is not None and (finding := _finding(topic, now, ends)) is not None:
                yield finding


def _ends(entries: Sequence[Entry], source: str) -> dict[int, Offsets]:
    """Return the end offsets of a source by captured epoch, ascending, after where the query began as epoch -1."""
    found: dict[int, Offsets] = {}
    for entry in entries:
        offsets, facts = recorded_by_source(entry.offsets), recorded_by_source(entry.sources)
        end, start = (
            next((kafka_topics(of) for name, of in known.items() if str(name) == source), None)
            for known in (offsets, {name: first_offset(None, fact) for name, fact in facts.items()})
        )
        if entry.epoch == 0 and start is not None:
            found[-1] = start
        if entry.captured and end is not None:
            found[entry.epoch] = end
    return found


def _finding(topic: str, now: Topic, ends: Mapping[int, Offsets]) -> CheckupFinding | None:
    gone = last_gone(topic, {str(number): offset for number, offset in now.first.items()}, ends)
    keeps = _kept_for(now)
    if gone is not None:
        newest = max(ends)
        which = "no epoch" if gone == newest else f"epochs before {gone + 1}"
        verdict = "can be asked why any more" if gone == newest else "can no longer be asked why"
        return CheckupFinding("warning", f"{which[0].upper()}{which[1:]} {verdict}: {topic} {keeps}. {_RECORD}")
    if now.settings.get("retention.ms", "-1") != "-1" or now.compacted:
        return CheckupFinding("note", f"{topic} {keeps}; after that, its epochs cannot be asked why. {_RECORD}")
    return None


def last_gone(topic: str, first: Mapping[str, int], ends: Mapping[int, Offsets]) -> int | None:
    """Return the last epoch that read records of a topic which are gone; None if all are there.

    Args:
        topic: the topic.
        first: the offset of the oldest record of each partition.
        ends: the end offsets of epochs, ascending.
    """
    gone = None
    for epoch, end in ends.items():
        before = ends.get(epoch - 1, {}).get(topic, {})
        read = {partition: start for partition, start in before.items() if end.get(topic, {}).get(partition, 0) > start}
        if any(start < first.get(partition, start) for partition, start in read.items()):
            gone = epoch
    return gone


def _kept_for(topic: Topic) -> str:
    """Return for how long a topic keeps its records, in words."""
    milliseconds = int(topic.settings.get("retention.ms", "-1"))
    if topic.compacted:
        return "keeps only the newest record of each key"
    if milliseconds < 0:
        return "has deleted their records"
    span = timedelta(milliseconds=milliseconds)
    days = span / timedelta(days=1)
    return f"keeps its records for {f'{days:.3g} days' if days >= 2 else span}"
