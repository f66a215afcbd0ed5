"""How capture reads each state table of a checkpoint, as far as its files say; needs neither Spark nor Java."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from streamstate.errors import UnsupportedStateError
from streamstate.snapshots.operators import JOIN_FORMAT, Shape, StateSource, sources_in

if TYPE_CHECKING:
    from streamstate.snapshots.checkpoint import Checkpoint

CHANGES, WHOLE = "changes", "whole state"

_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_CHANGELOG_ENABLED = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
_CHANGELOG = re.compile(r"(\d+)(?:_[^.]*)?\.changelog")


@dataclass(frozen=True)
class TableReading:
    """How capture reads one state table."""

    table: str
    """Its name in the store."""
    operator: str
    """Spark's name of the operator."""
    reads: str
    """``changes``: the cost follows what an epoch changes; ``whole state``: it follows the size of the state."""
    because: str = ""
    """Why the whole state has to be read."""
    setting: tuple[str, str] | None = None
    """The Spark setting that would change that, and its value."""


def table_readings(checkpoint: Checkpoint, epoch: int) -> list[TableReading]:
    """How capture reads each state table at an epoch, in Spark's order.

    Raises:
        UnsupportedStateError: the state has no readable schema.
    """
    planned = checkpoint.planned(epoch)
    conf = planned.conf if planned else {}
    rocksdb = "RocksDB" in conf.get(_PROVIDER, "RocksDB")
    # The HDFS provider always writes the changes of an epoch into a file of their own.
    logged = {
        operator: not rocksdb or _has_changelog(checkpoint.state_files(operator), epoch)
        for operator in checkpoint.operators()
    }
    return [
        _reading(source, logged=logged[int(source.options["operatorId"])])
        for source in sources_in(_stores(checkpoint, epoch), conf.get(JOIN_FORMAT, "2"))
    ]


def _reading(source: StateSource, *, logged: bool) -> TableReading:
    if source.shape is Shape.TIMERS:
        return TableReading(source.table, source.operator, WHOLE, "Spark has no change feed of timers")
    if not logged:
        because, setting = "RocksDB writes no changelog", (_CHANGELOG_ENABLED, "true")
        return TableReading(source.table, source.operator, WHOLE, because, setting)
    return TableReading(source.table, source.operator, CHANGES)


def _stores(checkpoint: Checkpoint, epoch: int) -> list[dict[str, Any]]:
    """The state stores at an epoch, described as in Spark's list of them."""
    found: list[dict[str, Any]] = []
    legacy = {operator.number: operator for operator in checkpoint.legacy_operators()}
    for number in checkpoint.operators():
        if number in legacy:
            name, stores, properties = legacy[number].name, list(legacy[number].stores), ""
        else:
            recorded = checkpoint.operator_metadata(number, epoch) or {}
            name = recorded.get("operatorInfo", {}).get("operatorName", "")
            stores = sorted(store["storeName"] for store in recorded.get("stateStoreInfo", []))
            properties = recorded.get("operatorPropertiesJson", "")
        if not name:
            raise UnsupportedStateError(
                f"The state of operator {number} in {checkpoint.path} has no readable schema.\n"
                "Run the query with a later Spark until it has committed an epoch, then look again."
            )
        found += [
            {"operatorId": number, "operatorName": name, "stateStoreName": store, "operatorProperties": properties}
            for store in stores
        ]
    return found


def _has_changelog(files: list[str], epoch: int) -> bool:
    """Whether a state store keeps a changelog of its latest epochs.

    Epoch N is version N + 1. One epoch may have only a snapshot, such as one that repartitioned the state.
    """
    versions = {int(found[1]) for name in files if (found := _CHANGELOG.fullmatch(name))}
    return bool(versions & {epoch, epoch + 1})
