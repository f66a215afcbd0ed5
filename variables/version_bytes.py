"""Versions and contributions as bytes: Arrow's stream format, with what else is known of a version in its metadata."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import pyarrow as pa

from streamstate.errors import InvalidArgumentError, VariableError
from streamstate.variables.declaration import Declaration

MAX_BYTES = 16 * 2**20
"""The most that one version, or what one task contributes, may take in the transport."""

_META = b"streamstate"


@dataclass(frozen=True)
class Entry:
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


def encoded(entry: Entry, declaration: Declaration) -> bytes:
    """A version as bytes.

    Raises:
        InvalidArgumentError: they are too many.
    """
    state_type = declaration.merging.state
    key_type = state_type.key_type if pa.types.is_map(state_type) else pa.string()
    header = {
        "kind": entry.kind,
        "by": entry.by,
        "at": entry.at.isoformat(),
        "sets": entry.sets,
        "merged": dict(entry.merged),
        "epoch": entry.epoch,
        "contributions": entry.contributions,
        "whole": entry.whole,
    }
    columns = [
        _column(entry.state if entry.whole else None, state_type),
        _column(entry.change, state_type),
        pa.array([list(entry.removed)], pa.list_(key_type)),
    ]
    schema = pa.schema(
        [("state", state_type), ("change", state_type), ("removed", pa.list_(key_type))],
        metadata={_META: json.dumps(header).encode()},
    )
    return limited(_ipc(pa.record_batch(columns, schema=schema)), declaration.name)


def decoded(number: int, data: bytes, *, with_state: bool, what: str) -> Entry:
    """A version from bytes; without its state if only what changed is needed.

    Raises:
        VariableError: they are damaged; ``what`` says which version it is.
    """
    try:
        with pa.ipc.open_stream(data) as reader:
            batch = reader.read_next_batch()
        header = json.loads(batch.schema.metadata[_META])
        state = _value(batch.column(0)) if with_state else None
        change, removed = _value(batch.column(1)), _value(batch.column(2))
        header["at"] = datetime.fromisoformat(header["at"])
        return Entry(number, **header, state=state, change=change, removed=tuple(removed))
    except (pa.ArrowException, KeyError, ValueError, TypeError, OSError) as error:
        raise VariableError(
            f"{what} is damaged: {error}\n"
            "Restore the file, or the server's data, from a backup. The store's tables have what was recorded."
        ) from error


def encoded_contribution(state: Any, declaration: Declaration) -> bytes:
    """What a task contributes, as bytes."""
    state_type = declaration.merging.state
    schema = pa.schema([("state", state_type)])
    return limited(_ipc(pa.record_batch([_column(state, state_type)], schema=schema)), declaration.name)


def decoded_contribution(data: bytes, declaration: Declaration) -> Any:
    """What a task contributed, from bytes."""
    try:
        with pa.ipc.open_stream(data) as reader:
            return _value(reader.read_next_batch().column(0))
    except (pa.ArrowException, ValueError, OSError) as error:
        raise VariableError(f"A contribution to {declaration.name} is damaged: {error}") from error


def limited(data: bytes, name: str) -> bytes:
    """The bytes, if they are not too many for one version.

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
    return found
