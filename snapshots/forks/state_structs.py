"""The structs in which Spark keeps a state's keys and values, built from a table's columns."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from streamstate.snapshots.errors import UnsupportedStateError
from streamstate.snapshots.forks.edit_values import back
from streamstate.snapshots.native_types import by_position
from streamstate.snapshots.operators import KEY_PARTS, NO_KEY, VALUE_PARTS, Columns

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType, StructType

__all__ = ["Field", "fields_of", "rebuilt", "struct_in"]


@dataclass(frozen=True)
class Field:
    """A field of the state's structs, and the table's column that it becomes."""

    part: str
    kind: DataType
    name: str | None
    """None: of type void, which the table leaves out."""


def fields_of(schema: StructType, columns: Columns) -> Iterator[Field]:
    """The fields of the key's and the value's structs, with their columns in the table.

    Args:
        schema: of the frame of Spark's state reader.
        columns: what was made of it.
    """
    from pyspark.sql.types import NullType

    names = iter([*(name for name in columns.keys if name != NO_KEY), *columns.values])
    for part in (*KEY_PARTS, *VALUE_PARTS):
        if part not in schema.names:
            continue
        for one in struct_in(schema, part).fields:
            yield Field(part, one.dataType, None if isinstance(one.dataType, NullType) else next(names))


def struct_in(schema: StructType, name: str) -> StructType:
    """The type of a column that is a struct.

    Raises:
        UnsupportedStateError: where it is none.
    """
    from pyspark.sql.types import StructType

    kind = schema[name].dataType
    if not isinstance(kind, StructType):
        raise UnsupportedStateError(f"The state keeps a {kind.simpleString()} as its {name}; it cannot be edited.")
    return kind


def rebuilt(whole: Column, kind: StructType, fields: Sequence[Field], changed: Collection[str], was: Column) -> Column:
    """A key or value from the table's columns: of a row that was there, only what changed.

    Args:
        whole: the struct as it was; of an added row null.
        kind: its type.
        fields: its fields, those of all its parts one after the other.
        changed: columns with new values.
        was: whether the row was there.
    """
    from pyspark.sql import functions as F

    if len({one.part for one in fields}) == 1:
        return F.struct(*_members(whole, kind, fields, changed, was))
    parts = []
    for part, inner in zip(kind.fields, by_position(whole, kind), strict=True):
        own = [one for one in fields if one.part == part.name]
        parts.append(F.struct(*_members(inner, struct_in(kind, part.name), own, changed, was)).alias(part.name))
    return F.struct(*parts)


def _members(
    whole: Column, kind: StructType, fields: Sequence[Field], changed: Collection[str], was: Column
) -> Iterator[Column]:
    from pyspark.sql import functions as F

    for field, one, before in zip(fields, kind.fields, by_position(whole, kind), strict=True):
        now = back(F.lit(None) if field.name is None else F.col("`" + field.name.replace("`", "``") + "`"), field.kind)
        if now is None:
            yield before.alias(one.name)
        elif field.name in changed:
            yield now.alias(one.name)
        else:
            yield F.when(was, before).otherwise(now).alias(one.name)
