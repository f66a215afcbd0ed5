"""The stateful operators of a checkpoint that Spark wrote before version 4.0.

Since 4.0 Spark records each operator's name, stores and number of partitions (``state/<operator>/_metadata``). For
older checkpoints they are inferred from the state's folders and schema files: operators and partitions are numbered
folders, each store of a join has its own folder, and the schema identifies the operator.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamstate.snapshots.checkpoint.decoding.failures import ChangelogError
from streamstate.snapshots.checkpoint.decoding.schema_files import DEFAULT_FAMILY, family_schemas
from streamstate.snapshots.checkpoint.filesystem import local_path
from streamstate.snapshots.store.names import is_number

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from streamstate.snapshots.checkpoint.filesystem import ReadableFiles

_JOIN, _LIMIT, _AGGREGATION = "symmetricHashJoin", "globalLimit", "stateStoreSave"
_SESSIONS, _GROUPS = "sessionWindowStateStoreSaveExec", "applyInPandasWithState"
_SIDES = ("left-", "right-")
_SESSION_START = "sessionStartTime"
# Value fields that identify Spark's operators; no aggregation buffer has them.
_BY_VALUE = {"__dummy__": "dedupe", "expiresAtMicros": "dedupeWithinWatermark", "groupState": _GROUPS}


@dataclass(frozen=True)
class LegacyOperator:
    """A stateful operator, inferred from its state's files."""

    number: int
    """Spark's id of the operator in the query."""
    name: str
    """Spark's name of the operator. ``applyInPandasWithState`` and ``flatMapGroupsWithState`` have the same state and
    both get the first name: in either, the user's function changes the keys. Empty if the state has no readable
    schema, as before Spark 3.1."""
    stores: tuple[str, ...]
    partitions: int
    prefix: int = 0
    """The number of the key's columns that Spark looks keys up by; for session windows, all but the session's start."""

    def schema_path(self, checkpoint: str, store: str) -> str:
        """Return the file with the types of a store's keys and values."""
        folder = f"{checkpoint}/state/{self.number}/0"
        return f"{folder if store == 'default' else f'{folder}/{store}'}/_metadata/schema"

    @property
    def certain(self) -> bool:
        """True if the name is certain enough to be written to a checkpoint."""
        return self.name not in {"", _GROUPS}

    def metadata(self) -> str:
        """Return the file in which Spark 4 would have recorded it, ``_metadata/metadata``."""
        stores = [
            {"storeName": store, "numColsPrefixKey": self.prefix, "numPartitions": self.partitions}
            for store in self.stores
        ]
        operator = {"operatorId": self.number, "operatorName": self.name}
        return "v1\n" + json.dumps({"operatorInfo": operator, "stateStoreInfo": stores}, separators=(",", ":"))


def legacy_operators(files: ReadableFiles, checkpoint: str) -> list[LegacyOperator]:
    """Return the operators that have state in a checkpoint but no metadata, ascending; none since Spark 4.0."""
    numbers = sorted(int(name) for name in files.names(f"{checkpoint}/state") if is_number(name))
    return [
        _operator(files, checkpoint, number)
        for number in numbers
        if not files.names(f"{checkpoint}/state/{number}/_metadata")
    ]


def _operator(files: ReadableFiles, checkpoint: str, number: int) -> LegacyOperator:
    folder = f"{checkpoint}/state/{number}"
    partitions = sum(is_number(name) for name in files.names(folder))
    stores = tuple(sorted(name for name in files.names(f"{folder}/0") if name.startswith(_SIDES)))
    if stores:
        return LegacyOperator(number, _JOIN, stores, partitions)
    operator = LegacyOperator(number, "", ("default",), partitions)
    path = operator.schema_path(checkpoint, "default")
    try:
        schema = family_schemas(files.content(path) or b"", path)[DEFAULT_FAMILY]
        key, value = schema.key["fields"], schema.value["fields"]
        name = _name(key, value)
    except (ChangelogError, LookupError, TypeError):
        return operator
    return LegacyOperator(number, name, ("default",), partitions, len(key) - 1 if name == _SESSIONS else 0)


def _name(key: Sequence[Mapping[str, Any]], value: Sequence[Mapping[str, Any]]) -> str:
    """Spark's name of the operator whose state has these fields."""
    if key and key[-1]["name"] == _SESSION_START and any("spark.sessionWindow" in field["metadata"] for field in value):
        return _SESSIONS
    if [field["type"] for field in key] == ["void"]:
        return _LIMIT
    return _BY_VALUE.get(value[0]["name"], _AGGREGATION) if value else _AGGREGATION


def described_view(spark: SparkSession, checkpoint: str, operators: Sequence[LegacyOperator]) -> str:
    """Return a path under which Spark finds a checkpoint together with metadata of its operators.

    The checkpoint is unchanged. The path is a mount table of Hadoop's ViewFs in the session's settings: the metadata is
    in temporary folders that are deleted when the process ends, and everything else is the checkpoint's.
    """
    texts = {f"/state/{operator.number}/_metadata": operator.metadata() for operator in operators}
    name = hashlib.sha256(json.dumps([checkpoint, texts]).encode()).hexdigest()[:32]
    table = f"fs.viewfs.mounttable.streamstate-{name}"
    local = local_path(checkpoint)
    spark.conf.set(f"{table}.linkFallback", checkpoint if local is None else local.absolute().as_uri())
    for path, text in texts.items():
        folder = Path(_metadata_folder().name, name, path.split("/")[2])
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "metadata").write_text(text, encoding="utf-8")
        spark.conf.set(f"{table}.link.{path}", folder.as_uri())
    return f"viewfs://streamstate-{name}/"


@cache
def _metadata_folder() -> tempfile.TemporaryDirectory[str]:
    """Return the process's folder of metadata: Spark keeps a mounted file system as long as it runs."""
    return tempfile.TemporaryDirectory(prefix="streamstate-")
