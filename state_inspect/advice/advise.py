"""All advice on a query."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime, timedelta

from streamstate.errors import StreamStateError
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.checkpoint.filesystem import local_path
from streamstate.snapshots.store.epoch_progress import EpochProgress, progress_in_store
from streamstate.snapshots.store.manifest_summary import ManifestSummary
from streamstate.snapshots.store.query_plans.plan_table import StoredPlan
from streamstate.snapshots.store.query_plans.query_plan import QueryPlan
from streamstate.snapshots.store.registry import Branch
from streamstate.state_inspect.advice.advice import Advice
from streamstate.state_inspect.advice.growing import Reads, growth_advice, growth_advice_in
from streamstate.state_inspect.advice.kept_states import (
    KeptState,
    kept_by_checkpoint,
    kept_by_plan,
    kept_by_user_code,
)
from streamstate.state_inspect.advice.stall import (
    MIN,
    IdleSource,
    Stall,
    Watermarks,
    deserves_advice,
    holders,
    pinned_policy,
    stall_advice,
    stall_of,
)
from streamstate.state_inspect.advice.waiting import timed_rows, waiting_advice
from streamstate.state_inspect.captured_query import CapturedQuery

_UNREADABLE = (StreamStateError, ValueError, OSError)
"""Errors of a damaged checkpoint: captured epochs are advised on without it."""


def advice_on(query: CapturedQuery, reads: Reads, *, only_store: bool = False) -> list[Advice]:
    """Return what there is to know about a query, as :meth:`streamstate.History.advise`.

    ``reads`` says which state tables may be read; ``only_store`` leaves the query's checkpoint aside.
    """
    newest = query.entries().newest
    return [] if newest is None else _Advisor(query, newest.epoch, reads, only_store=only_store).advice()


def quick_advice(query: CapturedQuery, *, only_store: bool = False) -> list[Advice]:
    """Return the advice for which only state tables have to be read that are soon read."""
    return advice_on(query, lambda table: query.is_soon_read(table, -1), only_store=only_store)


def advice_by_summary(
    summary: ManifestSummary, plans: Callable[[], Sequence[StoredPlan]], checkpoint: CheckpointFiles | None
) -> list[Advice] | None:
    """Return the advice for which no state has to be read, from the summary of a query's manifest.

    Args:
        summary: the summary.
        plans: returns the query's recorded plans; not called if they make no difference.
        checkpoint: the query's checkpoint, if it is on this disk.

    Returns:
        None if the advice takes more of the manifest than its summary.
    """
    newest, growth = summary.newest, summary.growth
    grows = growth is not None and growth.any_grew
    if newest is None or not (summary.stands_still or grows):
        return []
    known = _newest_plan(plans(), newest.epoch)
    plan = _described(known)
    if summary.stands_still and (summary.has_watermark if plan is None else plan.event_times):
        return None
    if growth is None or not grows:
        return []
    if known is not None and known.since > growth.epochs[0]:
        return None
    return [*growth_advice_in(growth, _kept_without_state(plan, checkpoint, [*newest.rows]))]


def _newest_plan(recorded: Sequence[StoredPlan], epoch: int) -> StoredPlan | None:
    return next((known for known in reversed(recorded) if known.since <= epoch), None)


def _described(known: StoredPlan | None) -> QueryPlan | None:
    """Return a plan; None if there is none, or one recorded without its operators."""
    return known.plan if known is not None and known.plan.operators else None


def _kept_without_state(
    plan: QueryPlan | None, checkpoint: CheckpointFiles | None, tables: Sequence[str]
) -> Iterator[KeptState]:
    """Yield the states that Spark keeps, by the query's plan or, without one, by its checkpoint."""
    if plan is not None:
        yield from kept_by_plan(plan, tables)
    elif checkpoint is not None:
        with suppress(*_UNREADABLE):
            committed = checkpoint.committed()
            states = kept_by_checkpoint(checkpoint, committed[-1]) if committed else []
            yield from (state for state in states if not state.by_user_code and {*state.tables} <= {*tables})


class _Advisor:
    """Finds advice on a query with a captured epoch."""

    def __init__(self, query: CapturedQuery, newest: int, reads: Reads, *, only_store: bool) -> None:
        self._query = query
        self._newest = newest
        self._reads = reads
        known = _newest_plan(query.plans.recorded(), newest)
        self._plan = _described(known)
        self._since = 0 if known is None else known.since
        self._checkpoint = None if only_store else _local_checkpoint(query)

    def advice(self) -> list[Advice]:
        """Return all advice: on the watermark first, because the rest may follow from it."""
        found: list[Advice] = []
        progress = progress_in_store(self._query.known_entries)
        watermarks = Watermarks(None if self._plan is None else self._plan.event_times, self._policy())
        stall, held_by = self._stall(progress, watermarks)
        if stall is not None:
            found.append(stall_advice(stall, watermarks, held_by))
        if self._plan is not None:
            found += waiting_advice(
                self._query, self._plan, progress, self._reads, stuck=stall is not None, held_by=held_by
            )
        return [*found, *growth_advice(self._query, self._kept(), self._since, self._reads)]

    def _stall(
        self, progress: Sequence[EpochProgress], watermarks: Watermarks
    ) -> tuple[Stall | None, tuple[IdleSource, ...]]:
        """Return the stall of the watermark, if it has one that deserves advice, and the sources that hold it."""
        found = stall_of(progress)
        if found is None or not (watermarks.declared or (watermarks.declared is None and found.newest.watermark)):
            return None, ()
        held_by = holders(found, watermarks, ahead=self._ahead(found))
        return (found, held_by) if deserves_advice(found, watermarks, held_by) else (None, ())

    def _kept(self) -> Iterable[KeptState]:
        newest = self._query.known_entries.of(self._newest)
        tables = [] if newest is None else [*newest.tables]
        yield from _kept_without_state(self._plan, self._checkpoint, tables)
        yield from kept_by_user_code(self._query)

    def _policy(self) -> str:
        """Return the policy for several watermarks: the checkpoint's or, without one, the plan's."""
        recorded = MIN if self._plan is None else self._plan.watermark_policy
        with suppress(*_UNREADABLE):
            return pinned_policy(self._checkpoint) or recorded
        return recorded

    def _ahead(self, stall: Stall) -> bool | None:
        """Return whether the state has events later than the watermark and its delay; None if not known."""
        if self._plan is None or not self._plan.event_times:
            return None
        newest: list[datetime] = []
        for table, known in self._plan.tables.items():
            if known.time is not None and table in self._query.tables() and self._reads(table):
                rows = timed_rows(self._query, table, known, self._newest, None)
                newest += [] if rows is None or rows.newest is None else [rows.newest]
        if not newest or stall.newest.watermark is None:
            return None
        delay = max(watermark.delay for watermark in self._plan.event_times)
        return max(newest) - timedelta(milliseconds=delay) > stall.newest.watermark


def _local_checkpoint(query: CapturedQuery) -> CheckpointFiles | None:
    """Return the query's checkpoint, if it is on this disk and still the one that was captured."""
    branch = query.lineage.branch(query.name)
    return None if branch is None else local_checkpoint(branch)


def local_checkpoint(branch: Branch) -> CheckpointFiles | None:
    """Return the checkpoint of a query, if it is on this disk and still the one that was captured."""
    with suppress(*_UNREADABLE):
        if branch.checkpoint and local_path(branch.checkpoint) is not None:
            checkpoint = CheckpointFiles(branch.checkpoint)
            return checkpoint if checkpoint.query_id == branch.query_id else None
    return None
