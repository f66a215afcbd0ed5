"""The reading of each state table of a checkpoint by capture; needs neither Spark nor Java."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from streamstate.snapshots.checkpoint.decoding.operator_metadata import sources_in_metadata
from streamstate.snapshots.checkpoint.decoding.state_schema import UnsupportedTable, table_formats
from streamstate.snapshots.checkpoint.decoding.state_table_format import TableFormat
from streamstate.snapshots.checkpoint.state_tables import Shape, StateSource

if TYPE_CHECKING:
    from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles

CHANGELOG, CHANGES = "changelog", "changes with Spark"
WHOLE, WHOLE_WITH_SPARK = "whole state", "whole state with Spark"

_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_CHANGELOG_ENABLED = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
_CHANGELOG = re.compile(r"(\d+)(?:_[^.]*)?\.changelog")


@dataclass(frozen=True)
class TableReading:
    """The reading of one state table by capture."""

    table: str
    """Its name in the store."""
    operator: str
    """Spark's name of the operator."""
    reads: str
    """``changelog``: its files are decoded without Spark; ``changes with Spark``: the cost follows what an epoch
    changes, too; ``whole state``, decoded without Spark, and ``whole state with Spark``: it follows the size of the
    state."""
    because: str = ""
    """Why it is not read from its changelog."""
    setting: tuple[str, str] | None = None
    """The Spark setting that would change that, and its value."""


def table_readings(checkpoint: CheckpointFiles, epoch: int) -> list[TableReading]:
    """Return the way capture reads each state table at an epoch, in Spark's order.

    Raises:
        CheckpointError: the operators' metadata is damaged, or of an unknown version.
        UnsupportedStateError: the state has no readable schema.
    """
    planned = checkpoint.planned(epoch)
    rocksdb = "RocksDB" in (planned.conf if planned else {}).get(_PROVIDER, "RocksDB")
    # The HDFS provider always writes the changes of an epoch into a file of their own.
    logged = {
        operator: not rocksdb or _has_changelog(checkpoint.state_files(operator), epoch)
        for operator in checkpoint.operators()
    }
    tables = zip(sources_in_metadata(checkpoint, epoch), table_formats(checkpoint, epoch), strict=True)
    return [_reading(source, table, logged=logged[int(source.options["operatorId"])]) for source, table in tables]


def _reading(source: StateSource, table: TableFormat | UnsupportedTable, *, logged: bool) -> TableReading:
    reason = table.reason.rstrip(".") if isinstance(table, UnsupportedTable) else ""
    whole = WHOLE_WITH_SPARK if reason else WHOLE
    if source.shape is Shape.TIMERS:
        return TableReading(source.table, source.operator, whole, reason or "Spark has no change feed for timers")
    if not logged:
        because, setting = "RocksDB writes no changelog", (_CHANGELOG_ENABLED, "true")
        return TableReading(source.table, source.operator, whole, because, setting)
    return TableReading(source.table, source.operator, CHANGES if reason else CHANGELOG, reason)


def _has_changelog(files: list[str], epoch: int) -> bool:
    """Check that a state store keeps a changelog of its latest epochs.

    Epoch N is version N + 1. One epoch may have only a snapshot, such as one that repartitioned the state.
    """
    versions = {int(found[1]) for name in files if (found := _CHANGELOG.fullmatch(name))}
    return bool(versions & {epoch, epoch + 1})
