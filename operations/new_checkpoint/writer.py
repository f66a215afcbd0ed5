"""Making a checkpoint whose state comes from rows, without running the query.

The new checkpoint is made in a folder beside its place. There Spark's ``StateRewriter`` writes the state on the
executors, as rows that Spark itself has encoded. What was written is then read with Spark's own state reader and
compared with the rows. Only then does the folder get its name: a checkpoint appears whole, or not at all. In an object
store its files are copied behind a barrier: no query starts on a part of them.
"""

from __future__ import annotations

import json
import os
import re
import socket
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import StructType

from streamstate.errors import StateWriteError, UnknownTableError, UnsupportedStateError, choices
from streamstate.operations.in_place import Replacement, renames_folders
from streamstate.operations.new_checkpoint.target import TargetTable
from streamstate.replay.forks.rewritten_state import with_state_ids
from streamstate.replay.state_writing.state_rewriter import (
    RewritableOperator,
    RowEncoder,
    StateRewriter,
    writing_state,
)
from streamstate.replay.state_writing.store_rows import OperatorStores, TableRows
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.checkpoint.copying import OPERATOR_METADATA, with_schema_paths
from streamstate.snapshots.checkpoint.filesystem import Files, local_path
from streamstate.snapshots.spark.epoch_planning import FORMAT
from streamstate.snapshots.spark.escaped_paths import escaped_in, path_for_reader
from streamstate.snapshots.spark.state_comparison import StateAt, TableDifference, differences_from
from streamstate.snapshots.spark.state_reader import StateReader
from streamstate.snapshots.store.names import is_number

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SHOWN = 3
_LONGEST_END = 30
"""Seconds in which a Spark process ends whose Python process was killed."""


@dataclass
class NewCheckpoint:
    """A checkpoint that is being made.

    Its folder already has everything but the state: the operators' metadata and schemas, the sources, the offsets of
    its epoch, and a commit of that epoch without the names of state files.
    """

    spark: SparkSession
    files: Files
    folder: str
    """Where it is being made."""
    epoch: int
    """The epoch whose state it has; the query runs the next one."""
    format_version: str = "2"
    """The checkpoint format of its state stores."""
    _sources: dict[str, TargetTable] = field(default_factory=dict)

    @property
    def tables(self) -> dict[str, TargetTable]:
        """The state tables by name."""
        if not self._sources:
            reader = self._reader
            sources = reader.sources(self.epoch)
            if limits := [source.table for source in sources if "Limit" in source.operator]:
                raise UnsupportedStateError(
                    f"{choices(limits)} is the state of a limit, whose schema Spark does not record, so it cannot be"
                    " written."
                )
            self._sources = {
                source.table: TargetTable.of(source, reader.frame(source, self.epoch)) for source in sources
            }
        return self._sources

    @property
    def session(self) -> SparkSession:
        """The session in which frames of rows are made: the query's settings, in UTC."""
        return self._reader.session(self.epoch)

    @property
    def _reader(self) -> StateReader:
        return StateReader(self.spark, self._checkpoint)

    @property
    def _checkpoint(self) -> CheckpointFiles:
        return CheckpointFiles(self.folder, self.spark)

    @property
    def only_table(self) -> str:
        """The name of the state table, if there is only one."""
        if len(self.tables) > 1:
            raise StateWriteError(
                f"The query has several state tables: {choices(self.tables)}.\n"
                "Pass the rows of each: {'op0': frame, …}."
            )
        return next(iter(self.tables))

    def write(self, rows: Mapping[str, DataFrame], *, begins: bool = False) -> dict[str, int]:
        """Write the state, and compare what Spark reads of it with the rows.

        Args:
            rows: for each state table a frame with its columns.
            begins: whether the state begins now, so that none of it may have expired.

        Returns:
            The number of rows of each table.

        Raises:
            UnknownTableError, StateWriteError: the frames are not those of the state tables.
            UnsupportedStateError: there is state that cannot be written.
        """
        self._check_tables(rows)
        rewriter = StateRewriter(self.spark, self._checkpoint, self.epoch)
        rewriter.session.conf.set(FORMAT, self.format_version)
        stores = OperatorStores(
            self._checkpoint,
            self.epoch,
            self._checkpoint.partitions(self.epoch) or 1,
            lambda operator, group: self._table_rows(operator, group, rows),
            RowEncoder.probed(rewriter.session),
        )
        commit = f"{self.folder}/commits/{self.epoch}"
        text = self.files.text(commit) or ""
        with writing_state():
            if begins:
                for name, table in self.tables.items():
                    table.check_not_past(rows[name])
            ids = rewriter.run(self.folder, rewriter.operators(), stores.rewritten)
        if ids:
            self.files.write(commit, with_state_ids(text, ids), replace=True)
            self.files.remove(f"{self.folder}/commits/.{self.epoch}.crc")
        differences, counts = differences_from(self.spark, StateAt(self.folder, self.epoch), rows, limit=_SHOWN)
        if differences:
            for found in differences:
                self.tables[found.table].check_distinct(rows[found.table])
            raise StateWriteError.differs(
                described(difference, self.tables[difference.table].keys) for difference in differences
            )
        return counts

    def count(self) -> dict[str, int]:
        """Return the number of rows of each table."""
        reader = self._reader
        return {name: reader.frame(table.source, self.epoch).count() for name, table in self.tables.items()}

    def _table_rows(
        self, operator: RewritableOperator, group: StructType, rows: Mapping[str, DataFrame]
    ) -> list[TableRows]:
        return [
            TableRows.of(table.source, table.schema, group, rows[name])
            for name, table in self.tables.items()
            if table.source.options["operatorId"] == str(operator.number)
        ]

    def _check_tables(self, rows: Mapping[str, DataFrame]) -> None:
        for name in {*rows} - {*self.tables}:
            raise UnknownTableError.among("state table", name, self.tables)
        for name, table in self.tables.items():
            if name not in rows:
                raise StateWriteError.lacks_table(name, rows)
            if {*rows[name].columns} != {*table.types}:
                raise StateWriteError.other_columns(name, rows[name].columns, table.types)


def check_readable(spark: SparkSession, path: str) -> None:
    """Refuse a checkpoint's path whose characters Spark's state reader escapes, and then does not find.

    Raises:
        StateWriteError: it has some of them, and is not on the disk of the only machine.
    """
    found = escaped_in(path)
    if found and path_for_reader(spark, path) == path:
        characters = ", ".join("spaces" if character.isspace() else character for character in found)
        raise StateWriteError(
            f"Spark cannot open checkpoints whose paths contain {characters}: {path}\nUse another path."
        )


@contextmanager
def making(spark: SparkSession, files: Files, path: str) -> Iterator[str]:
    """A folder for a new checkpoint, which gets the path at the end of the block, or is deleted if that fails.

    Its name says which processes write to it: this one, and Spark's.

    Raises:
        StateWriteError: there is something at the path already, or Spark could not read it.
    """
    check_readable(spark, path)
    parent, _, name = path.rpartition("/")
    if files.names(path):
        raise StateWriteError.target_exists(path)
    _remove_unfinished(files, parent, name)
    jvm: Any = spark._jvm
    processes = f"{os.getpid()}-{jvm.java.lang.ProcessHandle.current().pid()}"
    folder = f"{parent}/.{name}.{socket.gethostname()}-{processes}-{uuid.uuid4().hex[:8]}.unfinished"
    files.make_folder(folder)
    try:
        yield folder
        _lead_to(files, folder, path)
        if renames_folders(path):
            files.rename_folder(folder, path)
        elif files.names(path):
            raise StateWriteError.target_exists(path)
        else:
            Replacement(files, path, folder).run()
    except FileExistsError as error:
        raise StateWriteError.target_exists(path) from error
    finally:
        files.remove_tree(folder)


def _remove_unfinished(files: Files, parent: str, name: str) -> None:
    """Delete what killed processes of this machine have left of the same checkpoint."""
    import psutil

    pattern = re.compile(
        rf"\.{re.escape(name)}\.{re.escape(socket.gethostname())}-(\d+)-(\d+)-\w+\.unfinished(-trial-\w+)?"
    )
    for found in files.names(parent):
        match = pattern.fullmatch(found)
        if match and int(match[1]) != os.getpid() and not psutil.pid_exists(int(match[1])):
            # Spark's process keeps writing until it notices that Python's was killed.
            with suppress(psutil.NoSuchProcess, psutil.TimeoutExpired):
                psutil.Process(int(match[2])).wait(_LONGEST_END)
            files.remove_tree(f"{parent}/{found}")


def _lead_to(files: Files, folder: str, path: str) -> None:
    """Spark records the full paths of schemas: let them lead to where the checkpoint will be."""
    local = local_path(path)
    root = path if local is None else f"file:{local}"
    operators = [name for name in files.names(f"{folder}/state") if is_number(name)]
    for operator in operators:
        metadata = f"state/{operator}/_metadata"
        named = [f"{metadata}/{name}" for name in files.names(f"{folder}/{metadata}")]
        named += [f"{metadata}/v2/{name}" for name in files.names(f"{folder}/{metadata}/v2")]
        for file in named:
            if OPERATOR_METADATA.fullmatch(file) and (text := files.text(f"{folder}/{file}")):
                files.write(f"{folder}/{file}", with_schema_paths(file, text, root), replace=True)
                parent, _, name = file.rpartition("/")
                files.remove(f"{folder}/{parent}/.{name}.crc")


def described(difference: TableDifference, keys: Sequence[str]) -> str:
    """Return a difference as text: for each key shown, a line with the row that was meant and the one that was read.

    Args:
        difference: between what was meant, the first state, and what Spark reads, the second.
        keys: the key columns of the table.
    """
    if not difference.of_one and not difference.of_other:
        return f"{difference.table}: {difference.why}"
    counts = f"{difference.only_one:,} of the rows that were meant are not read,"
    lines = [f"{difference.table}: {counts} {difference.only_other:,} are read that were not meant."]
    return "\n".join([*lines, *(f"  {line}" for line in _by_key(difference, keys))])


def _by_key(difference: TableDifference, keys: Sequence[str]) -> Iterator[str]:
    sides: list[dict[str, dict[str, Any]]] = [{}, {}]
    for side, texts in zip(sides, (difference.of_one, difference.of_other), strict=True):
        for row in map(json.loads, texts):
            key = ", ".join(f"{name} = {row.pop(name, None)!r}" for name in keys)
            side[key] = row
    meant, read = sides
    # Of a row that is not among those that were fetched, nothing is said.
    all_meant, all_read = len(meant) >= difference.only_one, len(read) >= difference.only_other
    for key in sorted({*meant, *read}):
        before, after = meant.get(key), read.get(key)
        if before is not None and after is not None:
            changed = [name for name in before if before[name] != after.get(name)]
            before, after = ({name: row.get(name) for name in changed} for row in (before, after))
        parts = [f"meant {_row(before)}"] * (before is not None or all_meant)
        parts += [f"read {_row(after)}"] * (after is not None or all_read)
        yield f"{key}: {', '.join(parts)}"


def _row(row: dict[str, Any] | None) -> str:
    return "no row" if row is None else ", ".join(f"{name} = {value!r}" for name, value in row.items()) or "this row"
