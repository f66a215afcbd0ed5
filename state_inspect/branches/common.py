"""What two branches' state tables have in common, so that their rows can be compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from streamstate.snapshots.errors import InvalidArgumentError, UnknownTableError

if TYPE_CHECKING:
    from streamstate.state_inspect.temporal_index.interval_table import IntervalTable

__all__ = ["CommonColumns", "common_columns", "same_type", "shared_table"]


@dataclass(frozen=True)
class CommonColumns:
    """The columns by which two state tables are compared."""

    key_columns: list[str]
    value_columns: list[str]
    schema: pa.Schema
    left_out: tuple[str, ...] = ()
    """What is not compared, in words: columns that one of them lacks, or has with another type."""

    @property
    def columns(self) -> list[str]:
        """Key columns, then value columns."""
        return [*self.key_columns, *self.value_columns]

    @property
    def types(self) -> dict[str, pa.DataType]:
        """The columns with their types."""
        return {name: self.schema.field(name).type for name in self.columns}


def common_columns(here: IntervalTable, there: IntervalTable, table: str, names: Sequence[str]) -> CommonColumns:
    """The columns of one table that the other has too.

    Args:
        here: a state table.
        there: the same of another branch.
        table: its name.
        names: what the two branches are called.

    Raises:
        InvalidArgumentError: where they have other keys, so that no row of one is a row of the other.
    """
    keys = [{name: one.schema.field(name).type for name in one.key_columns} for one in (here, there)]
    if {*keys[0]} != {*keys[1]} or any(not same_type(kind, keys[1][name]) for name, kind in keys[0].items()):
        told = "\n".join(f"  {name}: {_listed(one)}" for name, one in zip(names, keys, strict=True))
        raise InvalidArgumentError(
            f"{table} has other key columns in {names[0]} than in {names[1]}, so its rows cannot be compared.\n"
            f"Its key columns:\n{told}\nCompare a table whose keys are the same, or each branch with SQL of its own."
        )
    shared, left_out = [], []
    for name in dict.fromkeys([*here.value_columns, *there.value_columns]):
        kinds = [one.schema.field(name).type if name in one.value_columns else None for one in (here, there)]
        if None in kinds:
            left_out.append(f"{name} (only in {names[1] if kinds[0] is None else names[0]})")
        elif not same_type(*kinds):
            left_out.append(f"{name} ({kinds[0]} in {names[0]}, {kinds[1]} in {names[1]})")
        else:
            shared.append(name)
    return CommonColumns(list(here.key_columns), shared, here.schema, tuple(left_out))


def shared_table(table: str | None, here: Sequence[str], there: Sequence[str], names: Sequence[str]) -> str:
    """The table that a name means in both branches, or the only one that both have.

    Raises:
        UnknownTableError: where one of them lacks it, or they share none.
        InvalidArgumentError: where the name is left out and they share several.
    """
    shared = [name for name in here if name in there]
    if table in shared:
        return str(table)
    both = f"{names[0]} has {', '.join(here) or 'none'}; {names[1]} has {', '.join(there) or 'none'}."
    if table is not None or not shared:
        wanted = f"no state table {table!r}" if table is not None else "no state table"
        raise UnknownTableError(f"There is {wanted} that {names[0]} and {names[1]} both have.\n{both}")
    if len(shared) > 1:
        raise InvalidArgumentError(
            f"{names[0]} and {names[1]} share {len(shared)} state tables; say which one.\nTables: {', '.join(shared)}."
        )
    return shared[0]


def same_type(one: pa.DataType, other: pa.DataType) -> bool:
    """Whether two types hold the same values: what may be missing in them does not count.

    Example:
        >>> same_type(pa.list_(pa.field("item", pa.int64(), nullable=False)), pa.list_(pa.int64()))
        True
    """
    if one.id != other.id or one.num_fields != other.num_fields:
        return False
    if one.num_fields == 0:
        return bool(one == other)
    if pa.types.is_map(one):
        return same_type(one.key_type, other.key_type) and same_type(one.item_type, other.item_type)
    if not pa.types.is_struct(one):
        return same_type(one.value_type, other.value_type)
    pairs = [(one.field(at), other.field(at)) for at in range(one.num_fields)]
    return all(a.name == b.name and same_type(a.type, b.type) for a, b in pairs)


def _listed(keys: dict[str, pa.DataType]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in keys.items())
