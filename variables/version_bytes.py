"""Versions and contributions as bytes: Arrow's stream format, with what else is known of a version in its metadata.

In front of them stand a mark, their length and their SHA-256, so that damage is an error before Arrow reads them. Who
writes them on purpose can give the right digest. So the types are the declaration's, not those that the bytes claim,
and Arrow validates all that it has read.
"""

from __future__ import annotations

import hashlib
import json
import struct
import types
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import pyarrow as pa

from streamstate.errors import InvalidArgumentError, VariableError
from streamstate.variables.declaration import Declaration
from streamstate.variables.transports.transport import MAX_BYTES

_META = b"streamstate"
_SEAL, _MARK = struct.Struct(">4sQ32s"), b"SSV1"
_UNREADABLE = (
    *(pa.ArrowException, struct.error, LookupError, ValueError, TypeError),
    *(OSError, OverflowError, RecursionError, StopIteration),
)
_HEADER: dict[str, type | types.UnionType] = {
    "kind": str,
    "by": str,
    "at": str,
    "sets": int,
    "merged": dict,
    "epoch": int | None,
    "contributions": int,
    "whole": bool,
}


@dataclass(frozen=True)
class VersionEntry:
    """A version, as its log has it.

    Attributes:
        number: its number.
        kind: ``init``, ``set`` or ``merge``.
        by: who made it: a user, or a query's id.
        at: when.
        sets: how many of the versions up to it were set, not merged.
        merged: up to which epoch each query's contributions are in it, by query id.
        epoch: the epoch whose contributions it merges; None if it was set.
        contributions: from how many tasks they are.
        whole: whether ``state`` is there; else only what changed is.
        state: the state.
        change: what was contributed; of a map, the entries that changed.
        removed: of a map, the keys that are gone.
    """

    number: int
    kind: str
    by: str
    at: datetime
    sets: int = 0
    merged: Mapping[str, int] = field(default_factory=dict)
    epoch: int | None = None
    contributions: int = 0
    whole: bool = True
    state: Any = None
    change: Any = None
    removed: tuple[Any, ...] = ()


def encoded_version(entry: VersionEntry, declaration: Declaration) -> bytes:
    """Return a version as bytes.

    Raises:
        InvalidArgumentError: they are too many.
    """
    header = {name: getattr(entry, name) for name in _HEADER}
    header |= {"at": entry.at.isoformat(), "merged": dict(entry.merged)}
    schema = _version_schema(declaration)
    columns = [
        _column(entry.state if entry.whole else None, schema.field("state").type),
        _column(entry.change, schema.field("change").type),
        pa.array([list(entry.removed)], schema.field("removed").type),
    ]
    described = schema.with_metadata({_META: json.dumps(header).encode()})
    return within_limit(_ipc(pa.record_batch(columns, schema=described)), declaration.name)


def _version_schema(declaration: Declaration) -> pa.Schema:
    state = declaration.merging.state
    key = state.key_type if pa.types.is_map(state) else pa.string()
    return pa.schema([("state", state), ("change", state), ("removed", pa.list_(key))])


def decoded_version(number: int, data: bytes, declaration: Declaration, *, with_state: bool, what: str) -> VersionEntry:
    """Return a version from bytes; without its state if only what changed is needed.

    Raises:
        VariableError: they are damaged; ``what`` says which version it is.
    """
    try:
        metadata, batch = _row(data, _version_schema(declaration))
        state = _value(batch.column(0)) if with_state else None
        change, removed = _value(batch.column(1)), _value(batch.column(2))
        return VersionEntry(number, **_header(metadata), state=state, change=change, removed=tuple(removed or ()))
    except _UNREADABLE as error:
        raise VariableError(
            f"{what} is damaged: {error}\n"
            "Restore the file, or the server's data, from a backup. The store's tables have what was recorded."
        ) from error


def encoded_contribution(state: Any, declaration: Declaration) -> bytes:
    """Return a task's contribution as bytes."""
    state_type = declaration.merging.state
    schema = pa.schema([("state", state_type)])
    return within_limit(_ipc(pa.record_batch([_column(state, state_type)], schema=schema)), declaration.name)


def decoded_contribution(data: bytes, declaration: Declaration) -> Any:
    """Return a task's contribution from bytes."""
    try:
        _, batch = _row(data, pa.schema([("state", declaration.merging.state)]))
        return _value(batch.column(0))
    except _UNREADABLE as error:
        raise VariableError(f"A contribution to {declaration.name} is damaged: {error}") from error


def within_limit(data: bytes, name: str) -> bytes:
    """Return the bytes, if they are not too many for one version.

    Raises:
        InvalidArgumentError: they are.
    """
    if len(data) <= MAX_BYTES:
        return data
    raise InvalidArgumentError(
        f"The value of {name} takes {len(data):,} bytes; a version holds at most {MAX_BYTES:,}.\n"
        "Keep less in it: a bounded list (merge='append(1000)'), a sketch, or a map of which little changes at a time."
    )


def _column(value: Any, arrow: pa.DataType) -> pa.Array:
    if isinstance(value, dict) and pa.types.is_map(arrow):
        value = list(value.items())
    return pa.array([value], arrow)


def _value(column: pa.Array) -> Any:
    return column[0].as_py(maps_as_pydicts="strict")


def _ipc(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    found: bytes = sink.getvalue().to_pybytes()
    return _SEAL.pack(_MARK, len(found), hashlib.sha256(found).digest()) + found


def _row(data: bytes, schema: pa.Schema) -> tuple[Mapping[bytes, bytes], pa.RecordBatch]:
    """Return the metadata and the one row of bytes that have the columns of a schema."""
    mark, length, digest = _SEAL.unpack_from(data) if len(data) >= _SEAL.size else (b"", 0, b"")
    if mark != _MARK:
        raise ValueError("it does not begin as a version does; another release of streamstate may have written it")
    found = memoryview(data)[_SEAL.size :]
    if len(found) != length or hashlib.sha256(found).digest() != digest:
        raise ValueError("its bytes are not those that were written")
    with pa.ipc.open_stream(found) as reader:
        if not reader.schema.equals(schema):
            raise ValueError("it has another type than the variable")
        messages = pa.ipc.MessageReader.open_stream(pa.py_buffer(found))
        messages.read_next_message()
        if _is_compressed(messages.read_next_message().metadata.to_pybytes()):
            raise ValueError("it is compressed")  # 16 MiB could become gigabytes
        batch = reader.read_next_batch()
    batch.validate(full=True)
    if batch.num_rows != 1:
        raise ValueError(f"it has {batch.num_rows} rows instead of one")
    return reader.schema.metadata or {}, batch


def _is_compressed(message: bytes) -> bool:
    """Return whether a message of a batch has a ``compression``: FlatBuffers, in Arrow's ``Message.fbs``."""
    batch = _field(message, _u32(message, 0), 2)
    if batch is None:
        raise ValueError("it has no rows")
    return _field(message, batch + _u32(message, batch), 3) is not None


def _field(data: bytes, table: int, number: int) -> int | None:
    """Return the position of a field of a FlatBuffers table; None if the table lacks it."""
    (back,) = struct.unpack_from("<i", data, table)
    fields = table - back
    size, at = struct.unpack_from("<H", data, fields)[0], 4 + 2 * number
    offset = struct.unpack_from("<H", data, fields + at)[0] if at < size else 0
    return table + offset if offset else None


def _u32(data: bytes, at: int) -> int:
    (found,) = struct.unpack_from("<I", data, at)
    return int(found)


def _header(metadata: Mapping[bytes, bytes]) -> dict[str, Any]:
    """Return the facts on a version besides its state."""
    header: dict[str, Any] = json.loads(metadata[_META])
    for name, kind in _HEADER.items():
        if not isinstance(header[name], kind):
            raise TypeError(f"{name} is {header[name]!r:.80}")
    if not all(isinstance(epoch, int) for epoch in header["merged"].values()):
        raise TypeError("it does not say which epochs it has")
    return header | {"at": datetime.fromisoformat(header["at"])}
