"""Rows that Spark's ``StateRewriter`` writes into the stores of an operator, from the operator's state tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from streamstate.errors import UnsupportedStateError
from streamstate.replay.state_writing.state_rewriter import PARTITION_KEY, RewritableOperator
from streamstate.replay.state_writing.store_rows import RewrittenStore, TableRows, store_rows
from streamstate.replay.state_writing.unsafe_row_bytes import RowEncoder
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.checkpoint.decoding.operator_metadata import recorded_stores
from streamstate.snapshots.checkpoint.decoding.schema_files import family_schemas


@dataclass(frozen=True)
class OperatorStores:
    """Makes the rows of an operator's stores."""

    described: CheckpointFiles
    """The checkpoint whose metadata and schemas describe the stores."""
    epoch: int
    partitions: int
    tables: Callable[[RewritableOperator, StructType], Sequence[TableRows]]
    """The rows of an operator's state tables; the type says which fields of a key determine its partition."""
    encoder: RowEncoder

    def rewritten(self, operator: RewritableOperator, store: str, stored: DataFrame) -> DataFrame:
        """Return the rows to write into a store, in place of its own."""
        group = stored.schema[PARTITION_KEY].dataType
        assert isinstance(group, StructType)
        partitions = 1 if operator.single_partition else self.partitions
        described = RewrittenStore(store, self._families(operator, store), group, partitions)
        return store_rows(described, self.tables(operator, group), self.encoder)

    def _families(self, operator: RewritableOperator, store: str) -> Sequence[str]:
        for listed in recorded_stores(self.described, self.epoch):
            if (listed.operator, listed.name) == (operator.number, store):
                content = self.described.files.content(listed.schema_path)
                if content is not None:
                    return [*family_schemas(content, listed.schema_path)]
        raise UnsupportedStateError(f"The state store {store} of operator {operator.number} has no schema.")
