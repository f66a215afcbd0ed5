"""The answers of the Delta Sharing protocol, in both of its response formats.

Source: https://github.com/delta-io/delta-sharing/blob/main/PROTOCOL.md
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from deltalake import Schema

from streamstate.sharing.shared_files import SharedFile

CONTENT_TYPE = "application/x-ndjson; charset=utf-8"
CAPABILITIES = "delta-sharing-capabilities"
VERSION = "Delta-Table-Version"
PARQUET, DELTA = "parquet", "delta"
"""The response formats."""


class AskedError(Exception):
    """A request that cannot be answered.

    Args:
        status: the HTTP status.
        message: what is wrong, without anything that is not granted.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status, self.message = status, message


@dataclass(frozen=True)
class LinkedFile:
    """A file with the URL that the recipient reads it from.

    Attributes:
        file: the file.
        url: its URL.
        expires: when the URL ends.
        version: the epoch.
        at: the epoch's commit.
    """

    file: SharedFile
    url: str
    expires: datetime
    version: int
    at: datetime


def response_format(header: str, schema: pa.Schema) -> str:
    """Return the format of a response, from the capabilities that a client sends.

    Raises:
        AskedError: the table has columns that the format that the client understands lacks.
    """
    pairs = dict(part.split("=", 1) for part in header.lower().replace(" ", "").split(";") if "=" in part)
    formats = [name for name in pairs.get("responseformat", PARQUET).split(",") if name in (PARQUET, DELTA)]
    needs = any(pa.types.is_timestamp(field.type) and field.type.tz is None for field in schema)
    if PARQUET in formats and not needs:
        return PARQUET
    if DELTA in formats:
        return DELTA
    if needs:
        raise AskedError(400, "The table has timestamps without a time zone, which need responseformat=delta.")
    raise AskedError(400, "Invalid delta-sharing-capabilities: expected responseformat=parquet or delta.")


def head_lines(table: str, schema: pa.Schema, version: int, form: str) -> list[dict[str, Any]]:
    """Return the protocol and the metadata of a table."""
    metadata = {
        "id": str(uuid.uuid5(uuid.NAMESPACE_URL, table)),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": Schema.from_arrow(schema).to_json(),
        "partitionColumns": [],
        "configuration": {"delta.enableChangeDataFeed": "true"},
    }
    if form == PARQUET:
        return [{"protocol": {"minReaderVersion": 1}}, {"metaData": {**metadata, "version": version}}]
    without_zone = any(pa.types.is_timestamp(field.type) and field.type.tz is None for field in schema)
    features = {"readerFeatures": ["timestampNtz"], "writerFeatures": ["changeDataFeed", "timestampNtz"]}
    needs = {"minReaderVersion": 3, "minWriterVersion": 7, **features} if without_zone else None
    protocol = needs or {"minReaderVersion": 1, "minWriterVersion": 4}
    return [
        {"protocol": {"deltaProtocol": protocol}},
        {"metaData": {"version": version, "deltaMetadata": metadata}},
    ]


def file_line(linked: LinkedFile, form: str, *, changes: bool = False) -> dict[str, Any]:
    """Return the line of a file: of a table's rows, or of changes."""
    stamp, expires = milliseconds(linked.at), milliseconds(linked.expires)
    about = {
        "id": linked.file.grant + linked.file.name,
        "size": linked.file.size,
        "version": linked.version,
        "timestamp": stamp,
        "expirationTimestamp": expires,
    }
    stats = json.dumps({"numRecords": linked.file.rows})
    if form == PARQUET:
        found = {"url": linked.url, "partitionValues": {}, **about}
        return {"cdf": found} if changes else {"file": {**found, "stats": stats}}
    action: dict[str, Any] = {"path": linked.url, "partitionValues": {}, "size": linked.file.size}
    if changes:
        return {"file": {**about, "deltaSingleAction": {"cdc": {**action, "dataChange": False}}}}
    added = {**action, "modificationTime": stamp, "dataChange": True, "stats": stats}
    return {"file": {**about, "deltaSingleAction": {"add": added}}}


def body(lines: Sequence[Mapping[str, Any]]) -> str:
    """Return lines as newline-delimited JSON."""
    return "".join(f"{json.dumps(line)}\n" for line in lines)


def moment(text: object) -> datetime:
    """Return a time of a request, as ISO 8601; without a time zone it is UTC.

    Raises:
        AskedError: it is none.
    """
    try:
        found = datetime.fromisoformat(str(text))
    except ValueError as error:
        raise AskedError(400, "Invalid timestamp: expected ISO 8601, such as 2026-03-01T12:00:00Z.") from error
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def number(value: object, name: str, *, least: int = 0) -> int:
    """Return a whole number of a request.

    Raises:
        AskedError: it is none, or too small or large.
    """
    text = str(value)
    if isinstance(value, bool) or not text.isascii() or not text.isdigit() or len(text) > 18 or int(text) < least:
        raise AskedError(400, f"Invalid {name}: expected an integer of at least {least}.")
    return int(text)


def milliseconds(at: datetime) -> int:
    """Return a time as milliseconds since 1970."""
    return round(at.timestamp() * 1000)
