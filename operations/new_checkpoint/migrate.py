"""Migrating: the state of a query becomes the state of a changed query, in a new checkpoint."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from streamstate.errors import (
    InvalidArgumentError,
    InvalidSQLError,
    StateWriteError,
    UnknownTableError,
    choices,
    first_line,
    worded,
)
from streamstate.operations.new_checkpoint.log_texts import EpochLog, milliseconds
from streamstate.operations.new_checkpoint.mapping_rules import Inputs, propose
from streamstate.operations.new_checkpoint.proposed_mapping import FEW_ROWS, Proposal
from streamstate.operations.new_checkpoint.target import TargetQuery, TargetTable
from streamstate.operations.new_checkpoint.writer import NewCheckpoint, check_readable, making
from streamstate.operations.new_checkpoint.written_checkpoint import WrittenCheckpoint
from streamstate.operations.stopped_query import check_stopped, recorded_plan, settled_epoch
from streamstate.snapshots.calls.checks import BuildQuery
from streamstate.snapshots.calls.progress_callback import ProgressCallback, long_call, silent
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.checkpoint.filesystem import files_for, location, refuse_links_out
from streamstate.snapshots.checkpoint.fork_contents import source_files
from streamstate.snapshots.checkpoint.logs import PlannedEpoch
from streamstate.snapshots.checkpoint.state_tables import Shape
from streamstate.snapshots.spark.connect import errors_of_spark
from streamstate.snapshots.spark.epoch_planning import EpochClock
from streamstate.snapshots.spark.state_reader import StateReader, no_state
from streamstate.snapshots.spark.state_rewriting import require_state_writing
from streamstate.snapshots.store.query_plans.spark_plan import plan_of_frame
from streamstate.state_inspect.sql.spark_policy import check_query_for_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from streamstate.snapshots.checkpoint.filesystem import Files
    from streamstate.snapshots.store.query_plans.query_plan import QueryPlan
    from streamstate.state_inspect import Store

TableMapping = str | Callable[[Mapping[str, "DataFrame"]], "DataFrame"]
"""The rows of a new state table, computed from the old state tables: Spark SQL over their names, or a function."""

_INSTEAD = (
    "A mapping is a query over the old state tables with Spark's own functions. For anything else pass a function of"
    " the old frames: mapping={'op0': lambda old: …}."
)


@long_call("No checkpoint was made.")
def migrate(
    checkpoint: str | os.PathLike[str],
    build_query: BuildQuery,
    to: str | Path,
    mapping: Mapping[str, TableMapping] | None = None,
    *,
    mode: str = "update",
    store: Store | str | Path | None = None,
    sources: Sequence[int | None] | None = None,
    progress: ProgressCallback | None = None,
) -> WrittenCheckpoint:
    """Make a checkpoint for a changed query from the state of a stopped one. The old checkpoint is only read.

    :meth:`streamstate.Checkpoint.migrate` describes the arguments and errors.
    """
    began, target, report = time.monotonic(), location(os.fspath(to)), progress or silent
    query = TargetQuery.of(build_query, mode)
    require_state_writing(query.spark, "Migrating a checkpoint")
    old = CheckpointFiles(checkpoint, query.spark)
    check_readable(query.spark, old.path)
    check_state(old)
    check_stopped([old], query.spark, "migrated", "%stream migrate NAME CODE")
    epoch, files = settled_epoch(old, "migrate"), files_for(query.spark, old.path, target)
    with making(query.spark, files, target) as folder:
        report("planning the changed query", 0.0)
        migration = Migration.planned(
            old, query, epoch, folder, files, recorded=recorded_plan(store, old.query_id, epoch), sources=sources
        )
        rows, before = migration.rows(mapping or {}), migration.rows_before()
        report("writing the state", 0.1)
        with _kept(rows) as kept:
            counts = migration.new.write(kept)
        report("running an epoch of a copy", 0.7)
        query.try_an_epoch(folder, files)
        report("done", 1.0)
    return WrittenCheckpoint(target, epoch, counts, time.monotonic() - began, before)


@contextmanager
def _kept(rows: Mapping[str, DataFrame]) -> Iterator[dict[str, DataFrame]]:
    """Rows that are computed once, to be written and to be compared; executors spill what does not fit to disk."""
    kept = {name: frame.persist() for name, frame in rows.items()}
    try:
        yield kept
    finally:
        for frame in kept.values():
            frame.unpersist()


@dataclass
class Migration:
    """A migration whose new query is planned into its folder."""

    new: NewCheckpoint
    old_tables: Mapping[str, TargetTable]
    old_frames: Mapping[str, DataFrame]
    """The rows of each old state table, in one session of their own."""
    query: TargetQuery
    recorded: QueryPlan | None = None
    """The old query's plan, if it is known."""

    @classmethod
    def planned(
        cls,
        old: CheckpointFiles,
        query: TargetQuery,
        epoch: int,
        folder: str,
        files: Files,
        *,
        recorded: QueryPlan | None = None,
        sources: Sequence[int | None] | None = None,
        runs: bool = True,
    ) -> Migration:
        """Write the logs, the new query's metadata and schemas and, if it is to run, what its sources have read."""
        planned = old.planned(epoch)
        assert planned is not None
        carried = carried_sources(query, planned, sources) if runs else {}
        log = EpochLog(
            epoch,
            _offsets(planned, carried),
            milliseconds(planned.watermark),
            old.next_watermark(epoch) or 0,
            milliseconds(planned.began_at),
            query.conf,
            planned.version,
            query.format_version,
        )
        if runs:
            _bring_sources(old, planned, carried, folder, files)
        for path, text in log.texts().items():
            files.write(f"{folder}/{path}", text)
        query.into(folder, EpochClock(log.watermark, log.began_at, query.conf))
        new = NewCheckpoint(query.spark, files, folder, epoch, log.format_version)
        return cls(new, *_old_state(old, query, epoch), query, recorded)

    def rows(self, mapping: Mapping[str, TableMapping]) -> dict[str, DataFrame]:
        """Return the rows of each new state table.

        Raises:
            StateWriteError: the mapping is not obvious, or names tables that the new query does not have.
            InvalidSQLError: its SQL is invalid.
        """
        chosen = {**mapping}
        for proposal in self.proposals(mapping):
            if (why := proposal.problem) is not None or proposal.sql is None:
                raise StateWriteError(why)
            chosen[proposal.table] = proposal.sql
        return {name: self.fitted(name, self.mapped(chosen[name])) for name in self.new.tables}

    def rows_before(self) -> dict[str, int | None]:
        """Return the number of rows of each old state table; None if there are many: counting takes a while."""
        counts = {
            name: len(frame.select(F.lit(1)).limit(FEW_ROWS + 1).collect()) for name, frame in self.old_frames.items()
        }
        return {name: count if count <= FEW_ROWS else None for name, count in counts.items()}

    def proposals(self, mapping: Mapping[str, TableMapping]) -> list[Proposal]:
        """Return proposals for the new state tables that a mapping leaves out."""
        if unknown := [name for name in mapping if name not in self.new.tables]:
            raise UnknownTableError.among("state table", unknown[0], self.new.tables, where="of the changed query")
        open_ones = {name: table for name, table in self.new.tables.items() if name not in mapping}
        aggregates = any(table.source.shape is Shape.KEYED for table in open_ones.values())
        return propose(open_ones, self.old_tables, self._inputs() if aggregates else ({}, {}))

    def _inputs(self) -> tuple[Inputs, Inputs]:
        """Return the inputs of the new and the old state tables that plans describe."""
        plan = plan_of_frame(self.query.frame, self.query.mode).plan
        after, before = (
            {f"op{number}": said for number, said in enumerate((of and of.inputs) or ())}
            for of in (plan, self.recorded)
        )
        return after, before

    def fitted(self, name: str, frame: DataFrame) -> DataFrame:
        """Mapped rows in the types of a new state table."""
        return self.new.tables[name].fitted_rows(frame, self.new.session)

    def mapped(self, mapping: TableMapping) -> DataFrame:
        """Apply a mapping to the old frames."""
        if callable(mapping):
            return mapping(self.old_frames)
        for name, frame in self.old_frames.items():
            frame.createOrReplaceTempView(name)
        session = next(iter(self.old_frames.values())).sparkSession
        try:
            columns = {name: frame.columns for name, frame in self.old_frames.items()}
            check_query_for_spark(session, mapping, columns, _INSTEAD)
            return session.sql(mapping)
        except errors_of_spark() as error:
            raise InvalidSQLError(
                f"The mapping is invalid: {first_line(error)}\nOld state tables: {self._described()}."
            ) from error

    def _described(self) -> str:
        return "; ".join(f"{name} ({', '.join(table.types)})" for name, table in self.old_tables.items())


def check_state(old: CheckpointFiles) -> None:
    """Raise if this is not the checkpoint of a query with state."""
    old.query_id  # noqa: B018 (raises if this is not a checkpoint)
    if not old.has_state():
        raise no_state(old)


def carried_sources(
    query: TargetQuery, planned: PlannedEpoch, sources: Sequence[int | None] | None
) -> dict[str | int, str | int | None]:
    """Match each source of the changed query, by its number or name, with the old one that it continues; None: new.

    Raises:
        StateWriteError: nothing says which those are.
        InvalidArgumentError: ``sources`` does not fit.
    """
    now = query.sources()
    names = choices(source.given_name or source.name for source in now)
    if planned.names:
        if sources is not None:
            raise InvalidArgumentError(
                "The sources have names (readStream.name), by which they go on: leave sources out."
            )
        given = [source.given_name or "" for source in now]
        return {name: name if name in planned.names else None for name in given}
    count = len(planned.offsets)
    if sources is None and len(now) != count:
        raise StateWriteError(
            f"The changed query has {len(now)} sources ({names}), the checkpoint {count}.\n"
            f"Say which of the old ones each goes on from{worded('', line=', in Python with Checkpoint.migrate')}:"
            " sources=[0, None], by their numbers from 0; None: it is new."
        )
    chosen = [*range(count)] if sources is None else [*sources]
    known = [number for number in chosen if number is not None]
    if len(chosen) != len(now) or len({*known}) < len(known) or not {*known} <= {*range(count)}:
        raise InvalidArgumentError(
            f"Invalid sources {sources!r}: expected one element for each source of the changed query ({names}), each"
            f" the number of another old source (0 to {count - 1}), or None for a new one."
        )
    return dict(enumerate(chosen))


def _offsets(
    planned: PlannedEpoch, carried: Mapping[str | int, str | int | None]
) -> dict[str, str | None] | list[str | None]:
    if planned.names:
        known = dict(zip(planned.names, planned.offsets, strict=True))
        return {str(name): known.get(str(was)) for name, was in carried.items()}
    return [planned.offsets[was] if isinstance(was, int) else None for was in carried.values()]


def _bring_sources(
    old: CheckpointFiles,
    planned: PlannedEpoch,
    carried: Mapping[str | int, str | int | None],
    folder: str,
    files: Files,
) -> None:
    """The logs of the sources, up to the epoch."""
    refuse_links_out(old.path)
    texts, folders = source_files(old, files, planned)
    for name, was in carried.items():
        if f"sources/{was}" in folders:
            files.copy_tree(f"{old.path}/sources/{was}", f"{folder}/sources/{name}")
        for path, text in texts.items():
            if path.startswith(f"sources/{was}/"):
                files.write(f"{folder}/sources/{name}/{path.rpartition('/')[2]}", text)


def _old_state(
    old: CheckpointFiles, query: TargetQuery, epoch: int
) -> tuple[dict[str, TargetTable], dict[str, DataFrame]]:
    """Return the old state tables, and their rows."""
    reader = StateReader(query.spark, old)
    tables, frames = {}, {}
    for source in reader.sources(epoch):
        tables[source.table] = TargetTable.of(source, reader.frame(source, epoch))
        frames[source.table] = reader.table(source, epoch)
    return tables, frames
