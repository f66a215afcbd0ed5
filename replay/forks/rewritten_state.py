"""A fork whose state Spark rewrites, because it is repartitioned or edited; the rest is taken over file by file.

Some of a checkpoint's small text files are adapted: to the number of partitions, the state files, and the fork's path.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from streamstate.replay.forks.edit_encoding import EditedTable, encode_edits
from streamstate.replay.forks.edits import EditInput
from streamstate.replay.forks.state_rewriter import PARTITION_KEY, RewritableOperator, StateRewriter
from streamstate.snapshots.checkpoint import SHUFFLE_PARTITIONS
from streamstate.snapshots.checkpoint_copy import OPERATOR_METADATA, as_json, split_text
from streamstate.snapshots.checkpoint_files import ForkContents
from streamstate.snapshots.filesystem import Files
from streamstate.snapshots.state_comparison import TableDifference

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
        """What has to be rewritten to repartition or edit the state.

        Operators without edits keep their files if the number of partitions stays the same, or if they always work in
        a single partition.
        """
        edited = [] if edit is None else encode_edits(rewriter, edit, partitions)
        repartitioned = partitions != rewriter.original.partitions(rewriter.epoch)
        with_edits = {table.operator.number for table in edited}
        operators = [
            operator
            for operator in rewriter.operators()
            if operator.number in with_edits or (repartitioned and not operator.single_partition)
        ]
        return cls(rewriter, partitions, operators, edited)

    def phases(self, contents: ForkContents) -> tuple[ForkContents, ForkContents]:
        """What Spark needs to write the state, and what may only be added afterwards.

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

    def _rewrite(self, operator: RewritableOperator, _store: str, rows: DataFrame) -> DataFrame:
        edited = [table for table in self.edited if table.operator.number == operator.number]
        if edited:
            return _with_edits(rows, edited, self.partitions)
        return rows.coalesce(1) if operator.single_partition else rows.repartition(self.partitions, PARTITION_KEY)

    def is_intended(self, differences: Sequence[TableDifference]) -> bool:
        """Whether the fork differs from its original in exactly the edited rows."""
        edited = {table.source.table: table for table in self.edited if table.removed or table.added}
        return {found.table for found in differences} == {*edited} and all(
            (Counter(found.of_one), Counter(found.of_other)) == (edited[found.table].removed, edited[found.table].added)
            and (found.only_one, found.only_other) == (len(found.of_one), len(found.of_other))
            for found in differences
        )

    @property
    def edited_rows(self) -> int:
        """How many rows of the state were changed, added or deleted."""
        return sum(table.changed for table in self.edited)

    def text(self, path: str, text: str) -> str:
        """The text of one of the original's small files in the fork."""
        if path.startswith("commits/") and self._ids:
            return with_state_ids(text, self._ids)
        return _with_partitions(path, text, self.partitions)

    def written_bytes(self, target: str, files: Files) -> int:
        """The size of the state that was written."""
        folders = (f"{target}/state/{operator.number}" for operator in self.operators)
        return sum(files.size(path) for folder in folders for path in _state_below(files, folder))


def _with_edits(rows: DataFrame, edited: Sequence[EditedTable], partitions: int) -> DataFrame:
    """The rows of an operator's store with the edits of its tables, each row in its partition."""
    schema = "column_family_name string, key_bytes binary, value_bytes binary, partition int"
    ours = rows.sparkSession.createDataFrame([row for table in edited for row in table.encoded()], schema)
    place = ["column_family_name", "key_bytes"]
    columns = [PARTITION_KEY, "key_bytes", "value_bytes", "column_family_name"]
    hashed = F.pmod(F.hash(PARTITION_KEY), F.lit(partitions)).alias("partition")
    kept = rows.join(F.broadcast(ours.select(*place)), place, "left_anti").select(*columns, hashed)
    partition_key = F.lit(None).cast(rows.schema[PARTITION_KEY].dataType)
    new = ours.where("value_bytes IS NOT NULL").withColumn(PARTITION_KEY, partition_key)
    together = kept.unionAll(new.select(*columns, "partition"))
    if edited[0].operator.single_partition:
        return together.select(*columns).coalesce(1)
    return together.repartitionById(partitions, F.col("partition")).select(*columns)


def _operator_of(path: str) -> str | None:
    """The id of the operator that a path inside a checkpoint belongs to."""
    parts = path.split("/")
    return parts[1] if parts[0] == "state" else None


def _state_below(files: Files, folder: str) -> Iterator[str]:
    """All files below an operator's folder except its metadata and schemas."""
    for name in files.names(folder):
        if name.startswith("_"):
            continue
        if "." in name:
            yield f"{folder}/{name}"
        else:
            yield from _state_below(files, f"{folder}/{name}")


def _with_partitions(path: str, text: str, partitions: int) -> str:
    """The text of a small file for another number of partitions; most files do not mention it."""
    if _OFFSETS.fullmatch(path):
        return offsets_with_partitions(text, partitions)
    if not OPERATOR_METADATA.fullmatch(path):
        return text
    version, metadata = split_text(text)
    for store in metadata["stateStoreInfo"]:
        store["numPartitions"] = partitions
    return f"{version}\n{as_json(metadata)}"


def offsets_with_partitions(text: str, partitions: int) -> str:
    """The text of an ``offsets/N`` for a query whose state has another number of partitions.

    A query takes the number from its newest epoch, planned or committed. If two epochs in a row have different
    numbers, Spark takes the later one for a repartitioning and does not go on. So all epochs of a fork have the same.
    """
    version, head, *sources = text.split("\n")
    metadata = json.loads(head)
    metadata["conf"] = {**metadata.get("conf", {}), SHUFFLE_PARTITIONS: str(partitions)}
    return "\n".join([version, as_json(metadata), *sources])


def with_state_ids(text: str, ids: Mapping[str, Sequence[Sequence[str]]]) -> str:
    """The text of a ``commits/N`` that names other state files for some operators."""
    version, commit = split_text(text)
    commit["stateUniqueIds"] = {**commit.get("stateUniqueIds", {}), **ids}
    return f"{version}\n{as_json(commit)}"
