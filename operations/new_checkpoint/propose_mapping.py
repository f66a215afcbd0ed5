"""Proposed mappings with a preview, a few rows of state before and after, before anything is written."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import and_
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
from pyspark.sql import Window
from pyspark.sql import functions as F

from streamstate.errors import StreamStateError
from streamstate.operations.new_checkpoint.column_pairs import key_sources, origins, tables_in
from streamstate.operations.new_checkpoint.mapping_rules import beside
from streamstate.operations.new_checkpoint.migrate import Migration, TableMapping, check_state
from streamstate.operations.new_checkpoint.proposed_mapping import FEW_ROWS, Preview, Proposal, ProposedMapping
from streamstate.operations.new_checkpoint.target import TargetQuery
from streamstate.operations.stopped_query import newest_epoch, recorded_plan
from streamstate.replay.state_writing.state_rewriter import reason
from streamstate.snapshots.calls.checks import BuildQuery, whole_number
from streamstate.snapshots.calls.progress_callback import long_call
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.checkpoint.copying import temporary_folder
from streamstate.snapshots.checkpoint.local_files import LocalFiles
from streamstate.snapshots.spark.fetching import to_arrow
from streamstate.snapshots.spark.pyspark_classes import Py4JJavaError
from streamstate.snapshots.store.canonical_rows import canonical_text, column_named
from streamstate.state_inspect.cell_text import canonical
from streamstate.state_inspect.frames import frame_tuples, to_pandas

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import Column, DataFrame

    from streamstate.operations.new_checkpoint.migrate import Migration, TableMapping
    from streamstate.state_inspect import Store

_OF_ONE = 5
"""Rows that are shown of those that become one."""
_AT, _OF = "_streamstate_at", "_streamstate_of"


@long_call("Nothing was written.")
def propose_mapping(
    checkpoint: str | os.PathLike[str],
    build_query: BuildQuery,
    mapping: Mapping[str, TableMapping] | None = None,
    *,
    mode: str = "update",
    store: Store | str | Path | None = None,
    rows: int = 5,
    whole: bool = False,
) -> ProposedMapping:
    """Propose a mapping for each state table of the changed query, without writing anything.

    :meth:`streamstate.Checkpoint.propose_mapping` describes the arguments and errors.
    """
    whole_number(rows, "rows", least=0)
    given = mapping or {}
    query = TargetQuery.of(build_query, mode)
    old = CheckpointFiles(checkpoint, query.spark)
    check_state(old)
    epoch = newest_epoch(old)
    recorded = recorded_plan(store, old.query_id, epoch)
    with temporary_folder("migrate") as folder:
        migration = Migration.planned(old, query, epoch, folder, LocalFiles(), recorded=recorded, runs=False)
        proposed = {proposal.table: proposal for proposal in migration.proposals(given)}
        proposals = [
            _given(name, given[name], migration) if name in given else proposed[name] for name in migration.new.tables
        ]
        if rows:
            with sampled(migration, whole=whole) as (sample, counts):
                previewing = Previewing(sample, counts, rows, given)
                proposals = [previewing.of(proposal) for proposal in proposals]
    return ProposedMapping(old.path, epoch, tuple(proposals))


def _given(name: str, mapping: TableMapping, migration: Migration) -> Proposal:
    """Return the mapping that a user gives, beside the old table that it reads."""
    sql = None if callable(mapping) else textwrap.dedent(mapping).strip()
    read = [] if sql is None else tables_in(sql)
    candidates = [table for table in (*read, name, *migration.old_tables) if table in migration.old_tables]
    return beside(Proposal(name, sql), migration.new.tables[name], migration.old_tables[candidates[0]])


@contextmanager
def sampled(migration: Migration, *, whole: bool) -> Iterator[tuple[Migration, dict[str, int | None]]]:
    """A migration of the first rows of the old state, and the number of rows of each old table if that is all of it."""
    frames = dict(migration.old_frames)
    if not whole:
        frames = {name: frame.limit(FEW_ROWS).persist() for name, frame in frames.items()}
    try:
        counts = {name: frame.count() for name, frame in frames.items()}
        known = {name: count if whole or count < FEW_ROWS else None for name, count in counts.items()}
        yield replace(migration, old_frames=frames), known
    finally:
        if not whole:
            for frame in frames.values():
                frame.unpersist()


@dataclass(frozen=True)
class Previewing:
    """Makes the previews of a mapping."""

    migration: Migration
    """Over the old rows that are read."""
    counts: Mapping[str, int | None]
    """For each old state table the number of its rows, if all are read."""
    rows: int
    """The number of new rows to show."""
    mapping: Mapping[str, TableMapping] = field(default_factory=dict)

    def of(self, proposal: Proposal) -> Proposal:
        """Return a proposal with its preview, or with its problem."""
        try:
            return replace(proposal, preview=self._preview(proposal))
        except (PySparkException, Py4JJavaError) as error:
            problem = f"The rows of {proposal.table} cannot be computed: {reason(error)}"
        except StreamStateError as error:
            problem = str(error)
        return replace(proposal, problem=proposal.problem or problem, preview=self._old_rows(proposal))

    def _old_rows(self, proposal: Proposal) -> Preview | None:
        """Return the first old rows alone."""
        if proposal.old is None:
            return None
        before = self._first(proposal.old)
        return Preview(before, before.iloc[:0, :0], rows_before=self.counts[proposal.old])

    def _first(self, table: str) -> pd.DataFrame:
        """Return the first rows of an old table."""
        old, frame = self.migration.old_tables[table], self.migration.old_frames[table]
        return _fetched(frame.orderBy(*_ascending(old.keys)).limit(self.rows).select(*map(column_named, old.types)))

    def _preview(self, proposal: Proposal) -> Preview | None:
        table = self.migration.new.tables[proposal.table]
        mapping = self.mapping.get(proposal.table, proposal.sql)
        if mapping is None:
            return self._old_rows(proposal)
        mapped = self.migration.mapped(mapping)
        fitted = self.migration.fitted(proposal.table, mapped)
        # The text of each row makes Spark compute all of it, so that a value that does not fit is found.
        text = F.length(canonical_text(fitted.schema))
        keys = [column_named(key) for key in table.keys]
        counted = fitted.select(*keys, text.alias(_AT)).groupBy(*keys).agg(F.count("*").alias(_OF), F.max(_AT))
        count, most = counted.agg(F.coalesce(F.sum(_OF), F.lit(0)), F.max(_OF)).first() or (0, None)
        if most is not None and most > 1:
            table.check_distinct(fitted)
        after = _fetched(fitted.orderBy(*_ascending(table.keys)).limit(self.rows))
        complete = None not in self.counts.values()
        preview = Preview(after, after, rows_after=count if complete else None)
        if proposal.old is None:
            return replace(preview, before=after.iloc[:0, :0])
        preview = replace(preview, rows_before=self.counts[proposal.old])
        return self._with_sources(preview, proposal, mapped) or replace(preview, before=self._first(proposal.old))

    def _with_sources(self, preview: Preview, proposal: Proposal, mapped: DataFrame) -> Preview | None:
        """With the old rows that have the keys of the new ones, if the SQL says which they are."""
        assert proposal.old is not None
        old, new = self.migration.old_tables[proposal.old], self.migration.new.tables[proposal.table]
        sources = key_sources(new, origins(proposal.sql, old))
        if sources is None:
            return None
        names = [name for _, name in sources]
        chosen = mapped.orderBy(*_ascending(new.keys)).limit(self.rows)
        chosen = chosen.select(*(column_named(key).alias(f"{_AT}{at}") for at, (key, _) in enumerate(sources)))
        same = (column_named(name).eqNullSafe(F.col(f"{_AT}{at}")) for at, name in enumerate(names))
        of_a_key = Window.partitionBy(*map(column_named, names))
        found = (
            self.migration.old_frames[proposal.old]
            .join(chosen, reduce(and_, same), "left_semi")
            .withColumn(_AT, F.row_number().over(of_a_key.orderBy(*_ascending(old.keys))))
            .withColumn(_OF, F.count("*").over(of_a_key))
            .where(F.col(_AT) <= _OF_ONE)
            .orderBy(*_ascending(names), _AT)
        )
        before = _fetched(found)
        counts = dict(zip(_keys(before, names), before[_OF], strict=True))
        groups = tuple(int(counts.get(key, 0)) for key in _keys(preview.after, [key for key, _ in sources]))
        shown = tuple(min(count, _OF_ONE) for count in groups)
        if not all(groups) or sum(shown) != len(before):
            return None
        return replace(preview, before=before[[*old.types]], groups=groups, shown=shown)


def _ascending(names: Sequence[str]) -> list[Column]:
    return [column_named(name).asc_nulls_last() for name in names]


def _fetched(frame: DataFrame) -> pd.DataFrame:
    return to_pandas(to_arrow(frame))


def _keys(frame: pd.DataFrame, names: Sequence[str]) -> list[tuple[object, ...]]:
    return [tuple(map(canonical, row)) for row in frame_tuples(frame[[*names]])]
