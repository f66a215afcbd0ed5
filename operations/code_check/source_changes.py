"""Differences between the code's sources and those that the checkpoint has offsets of."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from streamstate.errors import choices
from streamstate.operations.code_check.report import Finding
from streamstate.replay.stepping.query_sources import QuerySource, sources_of
from streamstate.snapshots.checkpoint.bindings import FORMAT as BINDING
from streamstate.snapshots.checkpoint.bindings import is_binding
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.checkpoint.file_source_log import entries
from streamstate.snapshots.checkpoint.logs import PlannedEpoch
from streamstate.snapshots.checkpoint.source_offsets import file_batch, kafka_topics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ADVICE = (
    "Keep the sources and their order. A new source needs a new checkpoint, such as one of ss.bootstrap; or name the"
    " sources (readStream.name) before the first start."
)
_EFFECT = "Spark fails at its first epoch: it finds offsets by a source's place in the query, or by its name."
_MOVED = "Spark fails when it starts: it looks in the new place for the files that its last epoch read."
_MOVED_ADVICE = "Restore the place, or the order of the sources; or start over with another checkpoint: ss.bootstrap."
_FILES = re.compile(r"^FileSource\[(.*)\]$", re.DOTALL)


def source_findings(frame: DataFrame, checkpoint: CheckpointFiles, epoch: int) -> Iterator[Finding]:
    """Yield the differences between the sources."""
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
        yield Finding("sources", f"The checkpoint has offsets of {had}; the code reads {now}.", _EFFECT, _ADVICE)
        return
    for source, place in zip(found, places, strict=True):
        yield from _of_one(source, place, planned, checkpoint)


def _named(found: Sequence[QuerySource], planned: PlannedEpoch) -> Iterator[Finding]:
    given = {source.given_name or "" for source in found}
    lost = [name for name, offset in zip(planned.names, planned.offsets, strict=True) if not is_binding(offset)]
    if missing := sorted({*lost} - given):
        change = f"The sources named {choices(missing)} are gone; the code names {choices(sorted(given))}."
        yield Finding("sources", change, "Spark cannot go on from the offsets of a source that is gone.", _ADVICE)


def _of_one(source: QuerySource, place: int, planned: PlannedEpoch, checkpoint: CheckpointFiles) -> Iterator[Finding]:
    offset = planned.offsets[place]
    if offset is None:
        return
    batch = file_batch(offset)
    if source.reads_files != (batch is not None):
        change = f"Source {place} is {source.name}, but its offset in the checkpoint is {offset}."
        yield Finding(
            "sources", change, "Spark fails: an offset of one kind of source means nothing to another.", _ADVICE
        )
    elif batch is not None:
        yield from _moved_files(source, place, planned.logs[place], batch, checkpoint)
    elif lost := _lost_topics(source, offset):
        change = f"Source {place} no longer subscribes to {choices(lost)}, of which the checkpoint has offsets."
        effect = "The state keeps what it got from them, but gets no more."
        yield Finding("topics", change, effect, "If it is meant, nothing; else subscribe to them again.")


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


def _lost_topics(source: QuerySource, offset: str) -> list[str]:
    """Topics with offsets to which a Kafka source does not subscribe any more."""
    subscribed = re.search(r"\bsubscribe=((?:[^,}]|,(?! ))*)", source.options)
    if source.format != "kafka" or subscribed is None:
        return []
    topics = {topic.strip() for topic in subscribed[1].split(",")}
    return sorted({*(kafka_topics(offset) or ())} - topics)


def _plain(path: str) -> str:
    """Return a path without its scheme."""
    parts = urlsplit(path)
    return unquote(parts.path) if parts.scheme else path
