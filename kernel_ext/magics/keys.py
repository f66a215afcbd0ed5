"""``--key COLUMN=VALUE`` as values of the columns' own types."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from streamstate.snapshots.errors import InvalidArgumentError, UnknownColumnError

if TYPE_CHECKING:
    from streamstate.state_inspect import StateTable

__all__ = ["typed_key"]


def typed_key(state: StateTable, given: list[str]) -> dict[str, Any]:
    """A key as the state table has it.

    Args:
        state: the table whose key columns the names mean.
        given: ``COLUMN=VALUE``, once for each key column.

    Raises:
        UnknownColumnError: a name is no key column.
        InvalidArgumentError: a value does not fit its column, or a key column is missing.
    """
    key = {}
    for text in given:
        column, equals, value = text.partition("=")
        if not equals:
            raise InvalidArgumentError(f"--key {text!r} is not COLUMN=VALUE. {_spelling(state)}")
        if column not in state.key_columns:
            raise UnknownColumnError.among("key column", column, state.key_columns, where=f"in {state.name}")
        key[column] = _typed(state, column, value)
    if missing := [column for column in state.key_columns if column not in key]:
        raise InvalidArgumentError(f"The key lacks {', '.join(missing)}. {_spelling(state)}")
    return key


def _typed(state: StateTable, column: str, text: str) -> Any:
    """A value as its column's type: a nested one is written as JSON."""
    import pyarrow as pa

    kind = state.schema.field(column).type
    try:
        return json.loads(text) if pa.types.is_nested(kind) else pa.scalar(text).cast(kind).as_py()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, json.JSONDecodeError):
        raise InvalidArgumentError(
            f"--key {column}={text}: the column is of type {kind}, and {text!r} is no such value."
        ) from None


def _spelling(state: StateTable) -> str:
    return "Give each key column a value: " + " ".join(f"--key {column}=…" for column in state.key_columns)
