"""A fork whose state Spark rewrites, because it is repartitioned or edited; the rest is taken over file by file.

Some of a checkpoint's small text files are adapted: to the number of partitions, the state files, and the fork's path.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from streamstate.replay.forks.edited_tables import EditedTable, edited_tables
from streamstate.replay.forks.edits import EditInput
from streamstate.replay.state_writing.state_rewriter import PARTITION_KEY, RewritableOperator, RowEncoder, StateRewriter
from streamstate.replay.state_writing.store_rows import OperatorStores, TableRows
from streamstate.snapshots.checkpoint.copying import OPERATOR_METADATA, as_json, split_text
from streamstate.snapshots.checkpoint.filesystem import Files
from streamstate.snapshots.checkpoint.fork_contents import ForkContents
from streamstate.snapshots.checkpoint.logs import SHUFFLE_PARTITIONS
from streamstate.snapshots.checkpoint.state_tables import ORDER, StateSource
from streamstate.snapshots.spark.state_comparison import StateAt, TableDifference, differences_from, state_differences
from streamstate.snapshots.spark.state_reader import StateReader

_OFFSETS = re.compile(r"offsets/\d+")


@dataclass
class RewrittenState:
    """The part of a fork's state that Spark rewrites; the files of the other operators are taken over."""

    rewriter: StateRewriter
    partitions: int
    operators: Sequence[RewritableOperator]
    edited: Sequence[EditedTable] = ()
    _ids: Mapping[str, list[list[str]]] = field(default_factory=dict)

    @classmethod
    def planned(cls, rewriter: StateRewriter, partitions: int, edit: EditInput | None) -> RewrittenState:
        """Return the parts of the state to rewrite for a repartitioning or edits.

        Operators without edits keep their files if the number of partitions stays the same, or if they always work in
        a single partition.
        """
        every = rewriter.operators()
        edited = [] if edit is None else edited_tables(rewriter, edit)
        repartitioned = partitions != rewriter.original.partitions(rewriter.epoch)
        with_edits = {table.operator for table in edited}
        operators = [
            operator
            for operator in every
            if operator.number in with_edits or (repartitioned and not operator.single_partition)
        ]
        return cls(rewriter, partitions, operators, edited)

    def release(self) -> None:
        """Let the executors drop the edited rows."""
        for table in self.edited:
            table.release()

    def phases(self, contents: ForkContents) -> tuple[ForkContents, ForkContents]:
        """Split the files into those that Spark needs to write the state, and those to add afterwards.

        Spark writes the state of every operator that it finds; so those that keep their files come later.
        """
        rewritten = {str(operator.number) for operator in self.operators}
        early = [
            path
            for path in contents.copied
            if not path.startswith("commits/") and _operator_of(path) in (None, *rewritten)
        ]
        schemas = [
            path
            for path in contents.linked
            if _operator_of(path) in rewritten and re.search("/_(metadata|stateSchema)/", path)
        ]
        texts = {path: text for path, text in contents.texts.items() if _operator_of(path) in (None, *rewritten)}
        late = [path for path in contents.copied if path not in early]
        kept = [path for path in contents.linked if _operator_of(path) not in rewritten]
        late_texts = {path: text for path, text in contents.texts.items() if path not in texts}
        return replace(contents, linked=schemas, copied=early, texts=texts), ForkContents(kept, late, late_texts, ())

    def write(self, target: str) -> None:
        """Write the state of the operators."""
        if self.operators:
            self._ids = self.rewriter.run(target, list(self.operators), self._rewrite)

    def _rewrite(self, operator: RewritableOperator, store: str, rows: DataFrame) -> DataFrame:
        if any(table.operator == operator.number for table in self.edited):
            return self._stores.rewritten(operator, store, rows)
        return rows.coalesce(1) if operator.single_partition else rows.repartition(self.partitions, PARTITION_KEY)

    @cached_property
    def _stores(self) -> OperatorStores:
        encoder = RowEncoder.probed(self.rewriter.session)
        return OperatorStores(self.rewriter.original, self.rewriter.epoch, self.partitions, self._tables, encoder)

    def _tables(self, operator: RewritableOperator, group: StructType) -> list[TableRows]:
        """Return the rows of an operator's state tables with their edits."""
        states = {table.source.table: table.state for table in self.edited}
        return [
            TableRows.of_state(source, group, states.get(source.table) or self._stored(source))
            for source in self._reader.sources(self.rewriter.epoch)
            if source.options["operatorId"] == str(operator.number)
        ]

    def _stored(self, source: StateSource) -> DataFrame:
        """Return a table's rows as Spark's state reader returns them; those of a list have their order."""
        return self._reader.frame(source, self.rewriter.epoch).withColumn(ORDER, F.monotonically_increasing_id())

    def differences(self, fork: StateAt) -> list[TableDifference]:
        """Return the differences between the fork and its original, apart from the edits."""
        spark, epoch = self.rewriter.spark, self.rewriter.epoch
        if not self.edited:
            return state_differences(spark, StateAt(self.rewriter.original.path, epoch), fork)
        rows = {table.source.table: table.rows for table in self.edited}
        meant = {
            source.table: rows.get(source.table) or self._reader.table(source, epoch)
            for source in self._reader.sources(epoch)
        }
        return differences_from(spark, fork, meant)[0]

    @cached_property
    def _reader(self) -> StateReader:
        return StateReader(self.rewriter.spark, self.rewriter.original)

    @property
    def edited_rows(self) -> int:
        """Count the rows of the state that were changed, added or deleted."""
        return sum(table.changed for table in self.edited)

    def text(self, path: str, text: str) -> str:
        """Return the text of one of the original's small files in the fork."""
        if path.startswith("commits/") and self._ids:
            return with_state_ids(text, self._ids)
        return _with_partitions(path, text, self.partitions)

    def written_bytes(self, target: str, files: Files) -> int:
        """Return the size of the state that was written."""
        folders = (f"{target}/state/{operator.number}" for operator in self.operators)
        return sum(files.size(path) for folder in folders for path in _state_below(files, folder))


def _operator_of(path: str) -> str | None:
    """Return the id of the operator that a path inside a checkpoint belongs to."""
    parts = path.split("/")
    return parts[1] if parts[0] == "state" else None


def _state_below(files: Files, folder: str) -> Iterator[str]:
    """Yield all files below an operator's folder except its metadata and schemas."""
    for name in files.names(folder):
        if name.startswith("_"):
            continue
        if "." in name:
            yield f"{folder}/{name}"
        else:
            yield from _state_below(files, f"{folder}/{name}")


def _with_partitions(path: str, text: str, partitions: int) -> str:
    """Return the text of a small file for another number of partitions; most files do not mention it."""
    if _OFFSETS.fullmatch(path):
        return offsets_with_partitions(text, partitions)
    if not OPERATOR_METADATA.fullmatch(path):
        return text
    version, metadata = split_text(text)
    for store in metadata["stateStoreInfo"]:
        store["numPartitions"] = partitions
    return f"{version}\n{as_json(metadata)}"


def offsets_with_partitions(text: str, partitions: int) -> str:
    """Return the text of an ``offsets/N`` for a query whose state has another number of partitions.

    A query takes the number from its newest epoch, planned or committed. If two epochs in a row have different
    numbers, Spark takes the later one for a repartitioning and stops. So all epochs of a fork have the same.
    """
    version, head, *sources = text.split("\n")
    metadata = json.loads(head)
    metadata["conf"] = {**metadata.get("conf", {}), SHUFFLE_PARTITIONS: str(partitions)}
    return "\n".join([version, as_json(metadata), *sources])


def with_state_ids(text: str, ids: Mapping[str, Sequence[Sequence[str]]]) -> str:
    """Return the text of a ``commits/N`` that names other state files for some operators."""
    version, commit = split_text(text)
    commit["stateUniqueIds"] = {**commit.get("stateUniqueIds", {}), **ids}
    return f"{version}\n{as_json(commit)}"
