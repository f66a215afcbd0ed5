"""The loads of a manifest's epochs in columns: Arrow reads their JSON without an object for each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamstate.errors import StoreError
from streamstate.state_inspect.load.trend import Numbers

_REAL, _WHOLE, _TEXT = pa.float64(), pa.int64(), pa.string()
_SOURCE = pa.struct({"name": _TEXT, "rows": _WHOLE, "backlog_rows": _WHOLE, "backlog_bytes": _WHOLE})
_OPERATOR = pa.struct(
    {
        "name": _TEXT,
        **dict.fromkeys(("rows", "updated", "memory_bytes"), _WHOLE),
        **dict.fromkeys(("update_seconds", "commit_seconds"), _REAL),
    }
)
_TASKS = pa.struct(
    {
        "tasks": _WHOLE,
        **dict.fromkeys(("median_seconds", "worst_seconds"), _REAL),
        **dict.fromkeys(("worst_partition", "worst_rows", "median_rows"), _WHOLE),
        "stateful": pa.bool_(),
    }
)
_FACTS = pa.schema(
    {
        "seconds": _REAL,
        "watermark_lag": _REAL,
        "sources": pa.list_(_SOURCE),
        "operators": pa.list_(_OPERATOR),
        "tasks": _TASKS,
        "shed": pa.struct(dict.fromkeys(("rows", "kept", "level"), _WHOLE)),
    }
)
"""The facts that :class:`EpochLoad` always names in the same way. Arrow adds those of maps, such as ``phases``."""


class LoadColumns:
    """The facts of loads, as numbers for each epoch: NaN where they are not known.

    Args:
        texts: the manifest's column.

    Raises:
        StoreError: a text is not that of a load.
    """

    def __init__(self, texts: pa.ChunkedArray) -> None:
        self.is_there: np.ndarray[Any, np.dtype[np.bool_]] = pc.is_valid(texts).to_numpy()
        """For each epoch whether the manifest has its load."""
        self.places = np.flatnonzero(self.is_there)
        self._table = _read(texts.drop_null().to_pylist())

    def numbers(self, name: str, within: str | None = None) -> Numbers:
        """Return a fact, or one of the tasks or of what was shed."""
        return self._spread(self._table[name] if within is None else _field(self._table[within], name))

    def of_each(self, parts: str) -> tuple[np.ndarray[Any, np.dtype[np.intp]], pa.StructArray]:
        """Return all sources or operators, and for each the place of its epoch."""
        lists = self._table[parts].combine_chunks()
        counts = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
        return np.repeat(self.places, counts), lists.flatten()

    def summed(self, parts: str, name: str, within: str | None = None) -> Numbers:
        """Return the sum of a fact of all sources or operators that have it."""
        places, facts = self.of_each(parts)
        values = _field(facts, name) if within is None else _field(_field(facts, within), name)
        numbers = np.array(values.cast(_REAL).to_numpy(zero_copy_only=False), float)
        known = ~np.isnan(numbers)
        sums = np.bincount(places[known], numbers[known], len(self.is_there)).astype(float)
        sums[np.bincount(places[known], minlength=len(self.is_there)) == 0] = np.nan
        return sums

    def maps(self, name: str) -> dict[str, Numbers]:
        """Return the facts of a map, such as ``phases``, by name."""
        held = self._table[name] if name in self._table.column_names else pa.nulls(self._table.num_rows, pa.struct([]))
        return {field.name: self._spread(_field(held, field.name)) for field in held.type}

    def _spread(self, column: Any) -> Numbers:
        found = np.full(len(self.is_there), np.nan)
        found[self.places] = column.cast(_REAL).to_numpy(zero_copy_only=False) if len(column) else []
        return found


def _read(texts: list[str]) -> pa.Table:
    if not texts:
        return _FACTS.empty_table()
    import pyarrow.json  # takes some milliseconds, and little needs it

    lines = "\n".join(texts).encode()
    try:
        return pyarrow.json.read_json(
            pa.BufferReader(lines),
            pyarrow.json.ReadOptions(block_size=len(lines) + 1),
            pyarrow.json.ParseOptions(explicit_schema=_FACTS),
        )
    except (pa.ArrowException, OverflowError) as error:
        raise StoreError(f"The manifest has a load that cannot be read: {error}") from error


def _field(held: Any, name: str) -> Any:
    """Return a field of structs, which is null where the struct is."""
    if not pa.types.is_struct(held.type) or held.type.get_field_index(name) < 0:
        return pa.nulls(len(held), _REAL)
    return pc.struct_field(held, name)
