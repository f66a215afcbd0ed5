"""Examine a checkpoint: what can be captured, at what cost, and whether Spark can restart from it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from streamstate.errors import CheckpointError, DamagedCheckpointError, UnsupportedStateError
from streamstate.operations.checkup.findings import (
    advice_findings,
    damage_findings,
    epoch_seconds,
    flow_findings,
    retention_findings,
    store_findings,
    store_state,
    unfinished_findings,
    whole_epochs,
)
from streamstate.operations.checkup.report import CheckupFinding, DoctorReport, StoreState
from streamstate.operations.checkup.state_tables import CHANGELOG, CHANGES, WHOLE, TableReading, table_readings
from streamstate.snapshots.calls.progress_callback import long_call, report_progress
from streamstate.snapshots.capture.capture import open_checkpoint
from streamstate.snapshots.capture.pass_plan import CaptureInterval, Every
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.checkpoint.damage.next_start import next_start
from streamstate.snapshots.checkpoint.decoding.state_schema import PROVIDERS
from streamstate.snapshots.checkpoint.server_copy import origin_of
from streamstate.snapshots.checkpoint.state_files import StoreFiles
from streamstate.snapshots.store.layout import Layout

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_STORE = "spark.sql.streaming.stateStore"
# A setting that a query is pinned to, and the Spark that pinned queries to it first; newest first.
_SINCE = (
    ("spark.sql.streaming.statefulOperator.alwaysNullableOutput.enabled", "4.3 or later"),
    (f"{_STORE}.rowChecksum.enabled", "4.2"),
    (f"{_STORE}.encodingFormat", "4.0 or 4.1"),
)
_LEVELS = ("problem", "warning", "note")


@long_call("Nothing was changed.")
def examine(
    checkpoint: str | os.PathLike[str],
    store: str | Path | None = None,
    *,
    build_query: Callable[[], DataFrame] | None = None,
    every: Every = 1,
    storage_options: Mapping[str, str] | None = None,
    spark: SparkSession | None = None,
) -> DoctorReport:
    """Examine a query's checkpoint, and a store if one is given. Nothing is written.

    :meth:`streamstate.Checkpoint.doctor` describes the arguments and errors.
    """
    interval = CaptureInterval.of(every)
    report_progress("reading the checkpoint's logs")
    opened = open_checkpoint(checkpoint, spark, storage_options)
    query_id, committed = _query_id(opened), opened.committed()
    start = next_start(opened)
    described = opened.newest_readable()
    planned = opened.readable_plan(described) if described is not None else None
    conf = planned.conf if planned else {}
    report_progress("looking at the state's files")
    tables, findings = _tables(opened, described, committed)
    if (origin := origin_of(opened.path)) is not None:
        findings.append(CheckupFinding("note", f"This is a copy of {origin}. Calls that only read work on it."))
    findings += flow_findings(opened)
    findings += unfinished_findings(opened) if tables else []
    whole, lost = whole_epochs(opened, committed, start) if tables and query_id is not None else ([], [])
    findings += lost
    seconds = epoch_seconds(opened, committed)
    there: StoreState | None = None
    if store is not None and query_id is not None:
        report_progress("looking at the store")
        there = store_state(Layout.at(store, storage_options), query_id, committed)
        findings += store_findings(there)
    if build_query is not None or (there is not None and "pyspark" in sys.modules):  # else nothing names a broker
        from streamstate.operations.checkup.topic_retention import topic_findings

        layout = None if store is None else Layout.at(store, storage_options)
        findings += topic_findings(opened, layout, None if there is None else there.name, build_query)
    findings += damage_findings(opened, start, there)
    findings += advice_findings(opened, whole, there, storage_options)
    findings += retention_findings(committed, seconds, interval) if tables else []
    provider = conf.get(f"{_STORE}.providerClass", "")
    return DoctorReport(
        checkpoint=opened.path,
        query_id=query_id or "unknown",
        spark=spark_of(conf),
        provider=PROVIDERS.get(provider, provider.rpartition(".")[2] or "unknown"),
        checkpoint_format=opened.format_version(described) if described is not None else "unknown",
        encoding=conf.get(f"{_STORE}.encodingFormat", "unsaferow"),
        compression=conf.get(f"{_STORE}.compression.codec", "lz4"),
        partitions=opened.partitions(described) if described is not None else None,
        first_epoch=whole[0] if whole else None,
        newest_epoch=whole[-1] if whole else None,
        last_epoch=committed[-1] if committed else None,
        committed=len(committed),
        epochs=len(whole),
        epoch_seconds=seconds,
        tables=tuple(tables),
        store=there,
        can_capture=bool(whole) if committed else None,
        can_restart=start.can_restart if committed or start.can_restart is False else None,
        findings=tuple(sorted(findings, key=lambda finding: _LEVELS.index(finding.level))),
    )


def _query_id(checkpoint: CheckpointFiles) -> str | None:
    """Return the query's id; None if its file is damaged."""
    try:
        return checkpoint.query_id
    except DamagedCheckpointError:
        return None


def spark_of(conf: Mapping[str, str]) -> str:
    """Return the version of Spark that planned an epoch, from the settings it pinned: ``4.2``, ``4.0 or 4.1``."""
    return next((version for setting, version in _SINCE if setting in conf), "before 4.0" if conf else "unknown")


def spark_version(checkpoint: CheckpointFiles) -> str | None:
    """Return the version of Spark that planned the newest epoch; None if it is not known."""
    epoch = checkpoint.newest_readable()
    planned = None if epoch is None else checkpoint.readable_plan(epoch)
    return spark_of(planned.conf) if planned is not None and planned.conf else None


def _tables(
    checkpoint: CheckpointFiles, epoch: int | None, committed: Sequence[int]
) -> tuple[Sequence[TableReading], list[CheckupFinding]]:
    """Return the state tables, and findings on them."""
    if not committed:
        return (), [CheckupFinding("warning", "No epoch is committed yet. Look again once the query has run.")]
    if not checkpoint.has_state():
        return (), [CheckupFinding("note", "There is no state to capture.")]
    if epoch is None or not any(StoreFiles(checkpoint.state_files(number)).files for number in checkpoint.operators()):
        return (), []
    try:
        tables = table_readings(checkpoint, epoch)
    except DamagedCheckpointError:
        return (), []  # the findings on damaged files say why
    except (CheckpointError, UnsupportedStateError) as error:
        return (), [CheckupFinding("problem", " ".join(str(error).splitlines()))]
    return tables, [*_reading_findings(tables)]


def _reading_findings(tables: Sequence[TableReading]) -> Iterator[CheckupFinding]:
    """One finding for each reason for which tables are not read from their changelogs."""
    others: dict[tuple[str, str, tuple[str, str] | None], list[str]] = {}
    for table in tables:
        if table.reads != CHANGELOG:
            others.setdefault((table.reads, table.because, table.setting), []).append(table.table)
    for (reads, because, setting), names in others.items():
        costs = [] if reads == WHOLE else ["needs Spark"]
        costs += [] if reads == CHANGES else ["costs as much as reading the whole state"]
        cost = f"capturing an epoch of {', '.join(names)} {', and '.join(costs)}"
        if setting is None:
            yield CheckupFinding("note", f"{because}: {cost}.")
        else:
            yield CheckupFinding("warning", f"{because}: {cost}. Restart the query with this setting.", setting)
