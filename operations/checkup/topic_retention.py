"""Findings on Kafka's topics: epochs whose records they no longer keep, and records that the query has yet to read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from streamstate.operations.checkup.report import CheckupFinding
from streamstate.snapshots.checkpoint.source_offsets import first_offset, kafka_topics
from streamstate.snapshots.checkpoint.source_progress import by_source, recorded_by_source, recorded_start
from streamstate.snapshots.spark.kafka_broker import SilentBrokerError, Topic, no_answer, reads_kafka, topics, unread
from streamstate.snapshots.store.manifest import Manifest
from streamstate.snapshots.store.query_plans.describe import streaming_frame
from streamstate.snapshots.store.query_plans.plan_inputs import sources_of
from streamstate.snapshots.store.query_plans.plan_table import Plans, live_plan
from streamstate.state_inspect.inputs.kafka_losses import Offsets, keeps, last_loss

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
    from streamstate.snapshots.store.layout import Layout

_RECORD = (
    "Let the topic keep its records longer (retention.ms), or record the input of the next query:"
    " %%stream --record-input, streamstate.start(…, record_input=True)."
)


def topic_findings(
    checkpoint: CheckpointFiles, layout: Layout | None, name: str | None, build_query: Callable[[], DataFrame] | None
) -> Iterator[CheckupFinding]:
    """Yield findings on the topics of a query, if its broker answers.

    Without its code, the plan of a query that was planned in this process says where the broker is.

    Args:
        checkpoint: its checkpoint.
        layout: the store that has captured it, if one is known.
        name: its name there.
        build_query: returns its streaming DataFrame.
    """
    if build_query is not None:
        frame = streaming_frame(build_query)
        jvm: Any = frame.sparkSession._jvm
        analyzed = frame._jdf.queryExecution().analyzed()
    elif layout is not None and name is not None and (planned := live_plan(layout, name, None)) is not None:
        jvm, analyzed = planned.spark._jvm, planned.analyzed
    else:
        return
    leaves = {source.name: source.leaf for source in sources_of(analyzed) if reads_kafka(source.leaf)}
    plans = None if layout is None or name is None else Plans(layout, name)
    for source, leaf in leaves.items():
        ends = {**_ends_in_checkpoint(checkpoint, source), **_ends_in_store(layout, name, source)}
        ends = {epoch: ends[epoch] for epoch in sorted(ends)}
        try:
            found = topics(jvm, leaf, {topic for end in ends.values() for topic in end})
            behind = unread(jvm, leaf, ends[max(ends)]) if ends else 0
        except SilentBrokerError as error:
            yield CheckupFinding("warning", " ".join(no_answer(leaf, error).split("\n")))
            continue
        yield from _kept_findings(found, ends, plans)
        if behind:
            behind_topics = ", ".join(ends[max(ends)])
            yield CheckupFinding("note", f"The query has yet to read {behind:,} records of {behind_topics}.")


def _ends_in_checkpoint(checkpoint: CheckpointFiles, source: str) -> dict[int, Offsets]:
    """Return the end offsets of a source by committed epoch, after where the query began as epoch −1."""
    found: dict[int, Offsets] = {}
    if (start := kafka_topics(recorded_start(checkpoint.files, f"{checkpoint.path}/sources/{source}"))) is not None:
        found[-1] = start
    for epoch in checkpoint.committed():
        planned = checkpoint.readable_plan(epoch)
        if planned is not None and (end := _of_source(by_source(planned.sources), source)) is not None:
            found[epoch] = end
    return found


def _ends_in_store(layout: Layout | None, name: str | None, source: str) -> dict[int, Offsets]:
    """Return the same of the captured epochs."""
    if layout is None or name is None:
        return {}
    manifest = Manifest(layout, name)
    manifest.refresh()
    found: dict[int, Offsets] = {}
    for entry in manifest.entries:
        facts = recorded_by_source(entry.sources)
        start = _of_source({known: first_offset(None, fact) for known, fact in facts.items()}, source)
        if entry.epoch == 0 and start is not None:
            found[-1] = start
        if entry.captured and (end := _of_source(recorded_by_source(entry.offsets), source)) is not None:
            found[entry.epoch] = end
    return found


def _of_source(offsets: Mapping[str | int, Any], source: str) -> Offsets | None:
    return next((kafka_topics(offset) for known, offset in offsets.items() if str(known) == source), None)


def _kept_findings(
    found: Mapping[str, Topic | None], ends: Mapping[int, Offsets], plans: Plans | None
) -> Iterable[CheckupFinding]:
    """Return what is gone; or, if nothing is, for how long topics keep their records."""
    recorded = () if plans is None else plans.recorded()

    def ids(epoch: int) -> Mapping[str, str]:
        return next((known.plan.topics for known in reversed(recorded) if known.since <= epoch), {})

    if (lost := last_loss(ends, found, ids)) is not None:
        epoch, gone = lost
        which = "No epoch can be asked why any more"
        which = which if epoch == max(ends) else f"Epochs before {epoch + 1} can no longer be asked why"
        return [CheckupFinding("warning", f"{which}: {'; '.join(gone)}. {_RECORD}")]
    kept = {name: keeps(topic) for name, topic in found.items() if topic is not None}
    return [
        CheckupFinding("note", f"The topic {name} {words}; after that, its epochs cannot be asked why. {_RECORD}")
        for name, words in kept.items()
        if words
    ]
