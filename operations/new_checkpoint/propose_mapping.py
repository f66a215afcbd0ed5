"""Proposed mappings with a preview, before anything is written."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from streamstate.operations.new_checkpoint.column_pairs import tables_in
from streamstate.operations.new_checkpoint.mapping import beside
from streamstate.operations.new_checkpoint.migration import Migration, TableMapping, check_state
from streamstate.operations.new_checkpoint.preview import Previewing, sampled
from streamstate.operations.new_checkpoint.proposal import Proposal
from streamstate.operations.new_checkpoint.proposed_mapping import ProposedMapping
from streamstate.operations.new_checkpoint.target_query import TargetQuery
from streamstate.operations.recorded_plan import recorded_plan
from streamstate.operations.stopped_query import newest_epoch
from streamstate.snapshots.calls.checks import BuildQuery, whole_number
from streamstate.snapshots.calls.progress_callback import long_call
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.checkpoint.local_files import LocalFiles
from streamstate.snapshots.checkpoint.temporary_folder import temporary_folder

if TYPE_CHECKING:
    from streamstate.state_inspect import Store


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
