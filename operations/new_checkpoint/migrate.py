"""Migrating: the state of a query becomes the state of a changed query, in a new checkpoint."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException

from streamstate.errors import (
    CheckpointError,
    InvalidSQLError,
    QueryError,
    StateWriteError,
    UnknownTableError,
    choices,
    first_line,
)
from streamstate.operations.new_checkpoint.log_texts import EpochLog, milliseconds
from streamstate.operations.new_checkpoint.mapping import Proposal, propose
from streamstate.operations.new_checkpoint.planned_query import BuildQuery, PlannedQuery
from streamstate.operations.new_checkpoint.target_table import TargetTable
from streamstate.operations.new_checkpoint.trial import try_an_epoch
from streamstate.operations.new_checkpoint.user_rows import fitted_rows
from streamstate.operations.new_checkpoint.writer import NewCheckpoint, making
from streamstate.operations.new_checkpoint.written import WrittenCheckpoint
from streamstate.replay.stepping.run_batch import active_queries
from streamstate.snapshots.checkpoint import Checkpoint, PlannedEpoch
from streamstate.snapshots.checkpoint_copy import bring
from streamstate.snapshots.checkpoint_files import ForkContents
from streamstate.snapshots.filesystem import LocalFiles, files_for, location, refuse_links_out
from streamstate.snapshots.progress_callback import ProgressCallback, silent
from streamstate.snapshots.spark.incremental import EpochClock
from streamstate.snapshots.state_reader import StateReader, no_state

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from streamstate.snapshots.filesystem import Files

TableMapping = str | Callable[[Mapping[str, "DataFrame"]], "DataFrame"]
"""How the rows of a new state table follow from the old state tables: Spark SQL over their names, or a function."""


def migrate(
    checkpoint: str | os.PathLike[str],
    build_query: BuildQuery,
    to: str | Path,
    mapping: Mapping[str, TableMapping] | None = None,
    *,
    mode: str = "update",
    progress: ProgressCallback | None = None,
) -> WrittenCheckpoint:
    """Make a checkpoint for a changed query from the state of a stopped one. The old checkpoint is only read.

    The new checkpoint has the old one's offsets and watermark: the changed query reads next what the old one would
    have read next. Its state is what the mapping makes of the old state, whose tables have the columns that
    ``%state`` shows. Where the mapping is obvious, it can be left out: a column that is added, dropped, renamed or
    widened, a key that loses a column, or no change at all but of the state store, the number of partitions, or the
    version of Spark.

    Spark's executors write the state, read it back, and compare every row. Then an epoch of the changed query is run
    from a copy of the checkpoint, without a sink.

    Args:
        checkpoint: the ``checkpointLocation`` of the query before the change.
        build_query: returns the streaming DataFrame of the changed query. Start it with ``to`` as its checkpoint.
        to: where the new checkpoint goes; it must not exist yet. It appears there once it is complete.
        mapping: for each new state table, SQL over the old ones (``{"op0": "SELECT carrier, sum(count) AS count FROM
            op0 GROUP BY carrier"}``), or a function of the old ones' frames by name. For tables that are left out,
            :func:`propose_mapping` says what is done.
        mode: the changed query's output mode: "append", "update" or "complete".
        progress: called with a message and the completed share of the work, from 0 to 1.

    Returns:
        The checkpoint; it can be passed wherever a checkpoint's path can.

    Raises:
        NotACheckpointError: ``checkpoint`` is not a checkpoint.
        QueryError: the query is running, or Spark cannot run the changed query.
        CheckpointError: the last epoch was begun and not committed.
        StateWriteError: ``to`` exists already, the mapping is not obvious, the rows are not those of the new state, or
            what Spark reads back differs.
        InvalidSQLError: the SQL of the mapping is invalid.
        UnsupportedStateError: Spark cannot write this kind of state.

    Example:
        >>> ss.migrate(  # doctest: +SKIP
        ...     "checkpoints/by_route",
        ...     build_by_carrier,
        ...     "checkpoints/by_carrier",
        ...     {"op0": "SELECT carrier, sum(count) AS count FROM op0 GROUP BY carrier"},
        ... ).rows
        {'op0': 14}
    """
    began, target, report = time.monotonic(), location(os.fspath(to)), progress or silent
    query = PlannedQuery.of(build_query, mode)
    old = Checkpoint(checkpoint, query.spark)
    epoch, files = _last_epoch(old, query), files_for(query.spark, old.path, target)
    with making(files, target) as folder:
        report("planning the changed query", 0.0)
        migration = _Migration.planned(old, query, epoch, folder, files)
        rows = migration.rows(mapping or {})
        report("writing the state", 0.1)
        counts = migration.new.write(rows)
        report("running an epoch of a copy", 0.7)
        try_an_epoch(query, folder, files)
        report("done", 1.0)
    return WrittenCheckpoint(target, epoch, counts, time.monotonic() - began)


def propose_mapping(
    checkpoint: str | os.PathLike[str], build_query: BuildQuery, *, mode: str = "update"
) -> list[Proposal]:
    """What :func:`migrate` would do without a mapping, for each state table of the changed query. Nothing is written.

    Args:
        checkpoint: as for :func:`migrate`; the query may be running.
        build_query: as for :func:`migrate`.
        mode: as for :func:`migrate`.

    Returns:
        For each table, its name, the SQL, and notes that say what is more than a copy.

    Raises:
        StateWriteError: the mapping is not obvious; the message says why, and lists the columns.
        NotACheckpointError: ``checkpoint`` is not a checkpoint.
        QueryError: Spark cannot run the changed query.

    Example:
        >>> ss.propose_mapping("checkpoints/by_route", build_by_carrier)[0].sql  # doctest: +SKIP
        'SELECT carrier, sum(count) AS count FROM op0 GROUP BY carrier'
    """
    query = PlannedQuery.of(build_query, mode)
    old = Checkpoint(checkpoint, query.spark)
    with tempfile.TemporaryDirectory(prefix="streamstate-") as folder:
        migration = _Migration.planned(old, query, _newest(old), folder, LocalFiles(), sources=False)
        return propose(migration.new.tables, migration.old_tables)


@dataclass
class _Migration:
    """A migration whose new query is planned into its folder."""

    new: NewCheckpoint
    old_tables: Mapping[str, TargetTable]
    old_frames: Mapping[str, DataFrame]
    """The rows of each old state table, in one session of their own."""

    @classmethod
    def planned(
        cls, old: Checkpoint, query: PlannedQuery, epoch: int, folder: str, files: Files, *, sources: bool = True
    ) -> _Migration:
        """Write the logs, the sources (unless they are not needed), and the new query's metadata and schemas."""
        planned = old.planned(epoch)
        assert planned is not None
        log = EpochLog(
            epoch,
            planned.sources,
            milliseconds(planned.watermark),
            old.next_watermark(epoch) or 0,
            milliseconds(planned.began_at),
            query.conf,
            planned.version,
            query.format_version,
        )
        if sources:
            _check_sources(query, planned)
            _bring_sources(old, planned, epoch, folder, files)
        for path, text in log.texts().items():
            files.write(f"{folder}/{path}", text)
        query.into(folder, EpochClock(log.watermark, log.began_at, query.conf))
        new = NewCheckpoint(query.spark, files, folder, epoch, log.format_version)
        return cls(new, *_old_state(old, query, epoch))

    def rows(self, mapping: Mapping[str, TableMapping]) -> dict[str, DataFrame]:
        """The rows of each new state table.

        Raises:
            StateWriteError: the mapping is not obvious, or names tables that the new query does not have.
            InvalidSQLError: its SQL is invalid.
        """
        if unknown := [name for name in mapping if name not in self.new.tables]:
            raise UnknownTableError.among("state table", unknown[0], self.new.tables, where="of the changed query")
        for name, frame in self.old_frames.items():
            frame.createOrReplaceTempView(name)
        left = {name: table for name, table in self.new.tables.items() if name not in mapping}
        proposed = {proposal.table: proposal.sql for proposal in propose(left, self.old_tables)}
        return {
            name: fitted_rows(self._mapped({**proposed, **mapping}[name]), table, self.new.session)
            for name, table in self.new.tables.items()
        }

    def _mapped(self, mapping: TableMapping) -> DataFrame:
        if callable(mapping):
            return mapping(self.old_frames)
        session = next(iter(self.old_frames.values())).sparkSession
        try:
            return session.sql(mapping)
        except PySparkException as error:
            raise InvalidSQLError(
                f"The mapping is invalid: {first_line(error)}\nOld state tables: {self._described()}."
            ) from error

    def _described(self) -> str:
        return "; ".join(f"{name} ({', '.join(table.types)})" for name, table in self.old_tables.items())


def _newest(old: Checkpoint) -> int:
    """The newest committed epoch of a query with state."""
    old.query_id  # noqa: B018 (raises if this is not a checkpoint)
    if not old.has_state():
        raise no_state(old.path)
    if not old.committed():
        raise CheckpointError(f"{old.path} has no committed epoch.\nRun the query until it commits one, then stop it.")
    return old.committed()[-1]


def _last_epoch(old: Checkpoint, query: PlannedQuery) -> int:
    """The newest epoch of a stopped query, if no later epoch was begun."""
    epoch = _newest(old)
    if old.query_id in active_queries(query.spark):
        raise QueryError(
            f"The query of {old.path} is running, and only a stopped query can be migrated.\nStop it first."
        )
    if old.begun()[-1:] != [epoch]:
        raise CheckpointError(
            f"Epoch {old.begun()[-1]} of {old.path} was begun but not committed; the last committed epoch is {epoch}.\n"
            "Start the query as it was until that epoch is committed, stop it, then migrate: its sink may have some of"
            " the epoch's results."
        )
    return epoch


def _check_sources(query: PlannedQuery, planned: PlannedEpoch) -> None:
    sources = query.sources()
    if len(sources) != len(planned.offsets):
        names = choices(source.name for source in sources)
        raise StateWriteError(
            f"The changed query has {len(sources)} sources ({names}), the checkpoint {len(planned.offsets)}: their"
            " offsets cannot be carried over.\nKeep the sources, or make a new checkpoint with streamstate.bootstrap."
        )


def _bring_sources(old: Checkpoint, planned: PlannedEpoch, epoch: int, folder: str, files: Files) -> None:
    """The logs of the sources, up to the epoch."""
    refuse_links_out(old.path)
    contents = ForkContents.without_state(old, files, epoch, planned)
    texts = {path: text for path, text in contents.texts.items() if path.startswith("sources/")}
    bring(ForkContents([], [], texts, contents.folders), old, epoch, folder, files=files)


def _old_state(old: Checkpoint, query: PlannedQuery, epoch: int) -> tuple[dict[str, TargetTable], dict[str, DataFrame]]:
    """The old state tables, and their rows."""
    reader = StateReader(query.spark, old)
    tables, frames = {}, {}
    for source in reader.sources(epoch):
        tables[source.table] = TargetTable.of(source, reader.frame(source, epoch))
        frames[source.table] = reader.table(source, epoch)
    return tables, frames
