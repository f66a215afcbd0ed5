"""Restoring an epoch whose checkpoint is gone: the query's code and the store say what the checkpoint said."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from streamstate.errors import InvalidArgumentError, StateWriteError, UnsupportedStateError, choices, worded
from streamstate.operations.new_checkpoint.log_texts import (
    READ,
    EpochLog,
    LoggedFile,
    Offset,
    file_log,
    given_files,
    listed_files,
    offset_of,
)
from streamstate.operations.new_checkpoint.writer import NewCheckpoint
from streamstate.snapshots.checkpoint.fork_record import FORK_FILE, ForkRecord
from streamstate.snapshots.checkpoint.source_progress import FILES, first_read
from streamstate.snapshots.spark.epoch_planning import EpochClock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from streamstate.operations.new_checkpoint.captured_epoch import CapturedEpoch
    from streamstate.operations.new_checkpoint.target import TargetQuery
    from streamstate.replay.stepping.query_sources import QuerySource
    from streamstate.snapshots.calls.progress_callback import ProgressCallback
    from streamstate.snapshots.checkpoint.filesystem import Files


def restore_by_code(
    query: TargetQuery,
    captured: CapturedEpoch,
    offsets: Sequence[Offset] | None,
    record: ForkRecord,
    *,
    folder: str,
    files: Files,
    report: ProgressCallback,
) -> dict[str, int]:
    """Write a checkpoint with an epoch's state into a folder; returns the number of rows of each table."""
    report("planning the query", 0.0)
    texts, logs = _sources(query, captured, offsets)
    log = EpochLog(
        record.epoch,
        texts,
        captured.watermark,
        captured.next_watermark,
        captured.began_at,
        query.conf,
        "v2" if isinstance(texts, Mapping) else "v1",
        query.format_version,
    )
    for path, text in {**log.texts(), **logs, FORK_FILE: record.text()}.items():
        files.write(f"{folder}/{path}", text)
    query.into(folder, EpochClock(log.watermark, log.began_at, query.conf))
    new = NewCheckpoint(query.spark, files, folder, record.epoch, query.format_version)
    _check_tables(new, captured)
    report("writing the state", 0.1)
    counts = new.write(
        {name: table.fitted_rows(captured.rows(name, new.session), new.session) for name, table in new.tables.items()}
    )
    report("running an epoch of a copy", 0.7)
    query.try_an_epoch(folder, files)
    return counts


def _how_to_say() -> str:
    """Return the advice to name the files that an epoch had read."""
    how = worded(
        "offsets=[['flights/2026-01-*.parquet']], for each source a list of paths or patterns, or None",
        command="--files 'flights/2026-01-*.parquet', a path or a pattern; for several sources, restore in Python",
    )
    return f"Say which they are: {how}."


def _check_tables(new: NewCheckpoint, captured: CapturedEpoch) -> None:
    had = captured.columns
    for name in {**new.tables, **had}:
        planned = [*new.tables[name].types] if name in new.tables else []
        if {*planned} != {*had.get(name, [])}:
            raise UnsupportedStateError(
                f"The code is not that of {captured}: its state table {name} has the columns"
                f" {choices(planned) or 'none'}, the captured one {choices(had.get(name, [])) or 'none'}.\n"
                "Restore with the code of that epoch, then migrate the restored checkpoint to other code."
            )


def _sources(
    query: TargetQuery, captured: CapturedEpoch, given: Sequence[Offset] | None
) -> tuple[dict[str, str | None] | list[str | None], dict[str, str]]:
    """Return the offsets of the query's sources after the epoch, and the files of the sources' own logs."""
    sources, recorded, facts = query.sources(), captured.offsets, captured.sources
    had: dict[str | int, str | None] = {}
    had.update(recorded if isinstance(recorded, Mapping) else enumerate(recorded))
    places: list[str | int] = [
        source.given_name or "" if isinstance(recorded, Mapping) else number for number, source in enumerate(sources)
    ]
    if {*places} != {*had}:
        raise InvalidArgumentError(
            f"The code has other sources ({choices(source.given_name or source.name for source in sources)}) than"
            f" {captured}, which had {len(had)}: {choices(map(str, had))}.\nPass the code of that epoch."
        )
    asked = [None] * len(sources) if given is None else [*given]
    if isinstance(given, str) or len(asked) != len(sources):
        raise InvalidArgumentError(f"Invalid offsets: expected a list with one for each of {len(sources)} sources.")
    logs: dict[str, str] = {}
    with_logs: list[QuerySource] = []
    for place, source, wish in zip(places, sources, asked, strict=True):
        known = facts.get(place) or {}
        if "start" in known:
            logs[f"sources/{place}/0"] = _start(source, known["start"])
        if not source.reads_files:
            had[place] = had[place] if wish is None else offset_of(source, wish)
        elif had[place] is not None or wish is not None:
            had[place] = READ
            # A stream that the query reads twice, as in a self-join, keeps one log.
            if not known and source in with_logs:
                continue
            found = (
                _found(query.spark, source, known, captured) if wish is None else given_files(query.spark, source, wish)
            )
            logs[f"sources/{place}/0"] = file_log(found)
            with_logs += [source] if known else []
    return ({str(name): had[name] for name in had} if isinstance(recorded, Mapping) else [*had.values()]), logs


def _found(
    spark: SparkSession, source: QuerySource, facts: Mapping[str, Any], captured: CapturedEpoch
) -> list[LoggedFile]:
    """Return the files of a source's folder that the store says were read.

    Raises:
        StateWriteError: they are not found, or the store says nothing.
    """
    if facts.get("kind") != FILES:
        raise StateWriteError(f"The store does not say which files {captured} had read.\n{_how_to_say()}")
    there = listed_files(spark, [source.path], source.option("pathGlobFilter"))
    read = first_read(facts, [(file["path"], file["timestamp"]) for file in there])
    if read is None:
        raise StateWriteError(
            f"The {facts['files']:,} files that {captured} had read are not the oldest of the {len(there):,} in"
            f" {source.path}: some are gone, were moved or were written again.\n{_how_to_say()}"
        )
    return [file for file in there if (file["path"], file["timestamp"]) in read]


def _start(source: QuerySource, start: Any) -> str:
    """Return the start of a source in the form in which it records that itself: rate counts seconds from there."""
    zero = "\0" if source.format.startswith("kafka") else ""  # as very old versions of Spark expect it
    return f"{zero}v1\n{start if isinstance(start, str) else json.dumps(start, separators=(',', ':'))}"
