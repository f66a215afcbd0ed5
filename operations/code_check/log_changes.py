"""Differences between the code and the logs of its checkpoint: the sources, the settings, and Spark's version."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from streamstate.errors import choices, worded
from streamstate.operations.checkup.examine import spark_of
from streamstate.operations.code_check.kafka_changes import kafka_findings
from streamstate.operations.code_check.report import Finding, migrate_call
from streamstate.replay.stepping.query_sources import QuerySource, sources_of
from streamstate.snapshots.checkpoint.bindings import FORMAT as BINDING
from streamstate.snapshots.checkpoint.bindings import is_binding
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.checkpoint.file_source_log import entries
from streamstate.snapshots.checkpoint.logs import SHUFFLE_PARTITIONS, PlannedEpoch
from streamstate.snapshots.checkpoint.source_offsets import file_batch
from streamstate.snapshots.spark.catalyst import each, walk, zoned_class
from streamstate.snapshots.spark.epoch_planning import pinned_settings
from streamstate.snapshots.store.query_plans.query_plan import QueryPlan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_KEEP_SOURCES = (
    "Keep the sources and their order. A new source needs a new checkpoint, such as one of ss.bootstrap; or name the"
    " sources (readStream.name) before the first start."
)
_WRONG_OFFSETS = "Spark fails at its first epoch: it finds offsets by a source's place in the query, or by its name."
_MOVED = "Spark fails when it starts: it looks in the new place for the files that its last epoch read."
_MOVED_ADVICE = "Restore the place, or the order of the sources; or start over with another checkpoint: ss.bootstrap."
_FILES = re.compile(r"^FileSource\[(.*)\]$", re.DOTALL)
_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_TIME_ZONE = "spark.sql.session.timeZone"
_PINNED = "The checkpoint pins it: the session's value has no effect."


def source_findings(
    frame: DataFrame, checkpoint: CheckpointFiles, epoch: int, topics: Mapping[str, str]
) -> Iterator[Finding]:
    """Yield the differences between the sources; ``topics`` are the known ids of Kafka's topics at the epoch."""
    found, planned = sources_of(frame), checkpoint.planned(epoch)
    if found is None or planned is None:
        return
    found = [source for source in found if source.name != BINDING]
    if planned.names:
        yield from _named(found, planned)
        return
    places = [place for place, offset in enumerate(planned.offsets) if not is_binding(offset)]
    if len(found) != len(places):
        had = f"{len(places)} {'source' if len(places) == 1 else 'sources'}"
        now = ", ".join(source.name for source in found) or "none"
        yield Finding(
            "sources", f"The checkpoint has offsets of {had}; the code reads {now}.", _WRONG_OFFSETS, _KEEP_SOURCES
        )
        return
    for source, place in zip(found, places, strict=True):
        yield from _of_one(frame, source, place, planned, checkpoint, topics=topics)


def _named(found: Sequence[QuerySource], planned: PlannedEpoch) -> Iterator[Finding]:
    given = {source.given_name or "" for source in found}
    lost = [name for name, offset in zip(planned.names, planned.offsets, strict=True) if not is_binding(offset)]
    if missing := sorted({*lost} - given):
        change = f"The sources named {choices(missing)} are gone; the code names {choices(sorted(given))}."
        yield Finding("sources", change, "Spark cannot go on from the offsets of a source that is gone.", _KEEP_SOURCES)


def _of_one(
    frame: DataFrame,
    source: QuerySource,
    place: int,
    planned: PlannedEpoch,
    checkpoint: CheckpointFiles,
    *,
    topics: Mapping[str, str],
) -> Iterator[Finding]:
    offset = planned.offsets[place]
    if offset is None:
        return
    batch = file_batch(offset)
    if source.reads_files != (batch is not None):
        change = f"Source {place} is {source.name}, but its offset in the checkpoint is {offset}."
        yield Finding(
            "sources", change, "Spark fails: an offset of one kind of source means nothing to another.", _KEEP_SOURCES
        )
    elif batch is not None:
        yield from _moved_files(source, place, planned.logs[place], batch, checkpoint)
    elif source.kafka is not None:
        yield from kafka_findings(frame.sparkSession._jvm, source.kafka, place, offset, topics)


def _moved_files(
    source: QuerySource, place: int, log: str, batch: int, checkpoint: CheckpointFiles
) -> Iterator[Finding]:
    named = _FILES.match(source.name)
    read = [str(entry["path"]) for entry in entries(checkpoint.files.text(f"{checkpoint.path}/{log}/{batch}") or "")]
    if named is None or not read:
        return
    folder, file = _plain(named[1]).rstrip("/"), _plain(read[-1])
    if not file.startswith(f"{folder}/") and file != folder and not fnmatch.fnmatch(file, f"{folder}*"):
        change = f"Source {place} reads {folder}; until now it read files such as {file}."
        yield Finding("source_moved", change, _MOVED, _MOVED_ADVICE)


def _plain(path: str) -> str:
    """Return a path without its scheme."""
    parts = urlsplit(path)
    return unquote(parts.path) if parts.scheme else path


def pinned_findings(spark: SparkSession, conf: Mapping[str, str]) -> Iterator[Finding]:
    """Settings of the session that the checkpoint overrides."""
    differing = {name: (value, spark.conf.get(name, None)) for name, value in conf.items()}
    for name, (value, here) in sorted(differing.items()):
        if here is None or here == value:
            continue
        change = f"{name} is {_short(here)} in the session; the checkpoint has {_short(value)}."
        if name == SHUFFLE_PARTITIONS:
            rescale = worded(
                f"ss.Checkpoint(checkpoint).rescale({here})", magic=f"%stream rescale NAME --partitions {here}"
            )
            yield Finding("partitions_pinned", change, _PINNED, f"To change it: {rescale}.")
        elif name == _PROVIDER:
            carry_over = f"Nothing. To change it, {migrate_call()} carries the state over."
            yield Finding("provider_pinned", change, _PINNED, carry_over)
        else:
            yield Finding("setting_pinned", change, _PINNED, "Nothing.")


def recorded_setting_findings(frame: DataFrame, recorded: QueryPlan, plan: QueryPlan) -> Iterator[Finding]:
    """Settings that expressions depend on, and that the checkpoint does not pin."""
    for name, value in sorted(recorded.settings.items()):
        here = plan.settings.get(name)
        if here is None or here == value:
            continue
        change = f"{name} was {value}; the session has {here}."
        if name != _TIME_ZONE:
            effect = "The same expressions may have other values, or fail where they did not."
            yield Finding("setting", change, effect, f"spark.conf.set({name!r}, {value!r}) before the query is built.")
        elif _depends_on_time_zone(frame):
            effect = "Dates, hours and times as text begin elsewhere: the same row gets another key or value."
            yield Finding(
                "time_zone", change, effect, f"spark.conf.set({name!r}, {value!r}) before the query is built."
            )
        else:
            yield Finding("time_zone_unused", change, "No expression of the query depends on it.", "Nothing.")


def version_findings(spark: SparkSession, conf: Mapping[str, str], recorded: QueryPlan | None) -> Iterator[Finding]:
    """That another Spark ran the query so far."""
    known, here = spark_of(conf), spark_of(pinned_settings(spark))
    if recorded is not None:
        known, here = recorded.spark, spark.version
    if known != "unknown" and known.split(".")[:2] != here.split(".")[:2]:
        change = f"Spark {known} ran the query so far; this is {spark.version}."
        effect = "An upgrade counts as a change of code: types, nullability and functions may differ."
        yield Finding("spark_version", change, effect, "Rehearse it: replay=3.")


def _depends_on_time_zone(frame: DataFrame) -> bool:
    zoned = zoned_class(frame.sparkSession._jvm)
    return any(
        zoned.isInstance(part) and (not str(part.nodeName()).lower().endswith("cast") or part.needsTimeZone())
        for node in walk(frame._jdf.queryExecution().analyzed())
        for expression in each(node.expressions())
        for part in walk(expression)
    )


def _short(value: str) -> str:
    return value.rpartition(".")[2] if value.startswith("org.apache.") else value
