"""Checkpoints of ``transformWithState`` with as many files as it takes to describe their tables, without Spark."""

from __future__ import annotations

import json
import struct
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_STORE = "spark.sql.streaming.stateStore"
CONF = {
    f"{_STORE}.providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    "spark.sql.shuffle.partitions": "2",
}
BY_ROW = {"keyStateEncoderType": "NoPrefixKeyStateEncoderSpec"}
BY_PREFIX = {"keyStateEncoderType": "PrefixKeyScanStateEncoderSpec", "numColsPrefixKey": 1}


def struct_of(**fields: Any) -> dict[str, Any]:
    """A struct type as Spark writes it."""
    members = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in fields.items()]
    return {"type": "struct", "fields": members}


KEY, VALUE = struct_of(k="string"), struct_of(n="long")


def schema_file(*families: str, version: str = "v3", encoder: Mapping[str, Any] = BY_ROW, number: int = 0) -> bytes:
    """A schema file with some column families of the same types."""
    content = _text(version) + struct.pack(">i", len(families))
    for family in families:
        content += _text(family) + struct.pack(">h", 0) + _json(KEY) + struct.pack(">h", number) + _json(VALUE)
        content += _json(encoder) + _json({})
    return content


def _text(text: str) -> bytes:
    content = text.encode()
    return struct.pack(">H", len(content)) + content


def _json(value: Any) -> bytes:
    return struct.pack(">i", 1) + _text(json.dumps(value))


def full_id(short: str) -> str:
    """Return a unique id as Spark writes it, from a short one."""
    return f"{zlib.crc32(short.encode()):08x}-0000-4000-8000-000000000000"


@dataclass(frozen=True)
class WrittenCheckpoint:
    """A checkpoint of one operator in a folder."""

    path: Path

    def plan(self, epoch: int, **conf: str) -> None:
        """Write the offsets of an epoch."""
        self._write(f"offsets/{epoch}", "v1\n" + json.dumps({"conf": {**CONF, **conf}}))

    def commit(self, epoch: int, *ids: str) -> None:
        """Write the commit of an epoch, with the unique id of each partition in format 2."""
        unique = {"stateUniqueIds": {"0": [[full_id(short)] for short in ids]}} if ids else {}
        self._write(f"commits/{epoch}", "v2\n" + json.dumps(unique))

    def describe(self, epoch: int, content: bytes, *variables: tuple[str, str], **more: Any) -> None:
        """Write the operator's metadata and schema at the start of a run; variables are names and kinds."""
        listed = [{"stateName": name, "stateVariableType": kind} for name, kind in variables]
        store = {"storeName": "default", "numColsPrefixKey": 0, "numPartitions": 2}
        store["stateSchemaFilePaths"] = [f"file:/elsewhere/{epoch}_schema"]
        metadata = {
            "operatorInfo": {"operatorId": 0, "operatorName": "transformWithStateExec"},
            "stateStoreInfo": [store],
            "operatorPropertiesJson": json.dumps({"timeMode": "NoTime", "stateVariables": listed}),
        }
        self._write(f"state/0/_metadata/v2/{epoch}", "v2\n" + json.dumps({**metadata, **more}))
        file = self.path / f"state/0/_stateSchema/default/{epoch}_schema"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)

    def snapshot(self, partition: int, name: str, **numbers: int) -> Path:
        """Write a snapshot of a partition that numbers the column families.

        Spark calls the version of its format v1 or v2; this alternates.
        """
        version, _, short = name.partition("_")
        path = self.path / f"state/0/{partition}/{version}{f'_{full_id(short)}' if short else ''}.zip"
        path.parent.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(
                "metadata", f"v{partition % 2 + 1}\n{json.dumps({'columnFamilyMapping': {'default': 1, **numbers}})}"
            )
        return path

    def _write(self, name: str, text: str) -> None:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
