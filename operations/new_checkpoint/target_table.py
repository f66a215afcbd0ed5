"""A state table of a checkpoint that is made: its columns and their types."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark.sql.types import DataType, LongType, StructType

from streamstate.snapshots.checkpoint.operators import StateSource, flatten

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class TargetTable:
    """A state table that a new checkpoint has."""

    source: StateSource
    schema: StructType
    """What Spark's state reader returns of it."""
    keys: tuple[str, ...]
    """The names of its key columns."""
    types: Mapping[str, DataType] = field(hash=False)
    """The types of its columns, keys first."""

    @classmethod
    def of(cls, source: StateSource, frame: DataFrame) -> TargetTable:
        """Describe a table from what Spark's state reader returns of it."""
        columns = flatten(frame.schema, source.shape)
        flat = frame.select(*columns.select).schema
        types = {field.name: field.dataType for field in flat.fields}
        ordered = {name: types.get(name, LongType()) for name in columns.names}
        return cls(source, frame.schema, columns.keys, ordered)
