"""The facts about each query of a store, read from the ends of its tables' logs.

A commit keeps what is shown of the version that it makes. Where it does not, because an older version of streamstate or
another program made it, the table itself is read. State is read only to count the rows of the queries that are shown,
where capture did not, and where that is soon done.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

from streamstate.errors import StreamStateError
from streamstate.snapshots.checkpoint.filesystem import local_path
from streamstate.snapshots.store.consistent_read import read_once
from streamstate.snapshots.store.delta.log_end import LogEnd
from streamstate.snapshots.store.delta.size import Size
from streamstate.snapshots.store.delta.table_size import TableSize, size_at
from streamstate.snapshots.store.manifest_summary import ManifestSummary, kept_summary
from streamstate.snapshots.store.query_plans.plan_table import Plans, StoredPlan, kept_plans
from streamstate.snapshots.store.registry import Lineage, flow_versions
from streamstate.state_inspect.advice.advise import advice_by_summary, advice_on, local_checkpoint
from streamstate.state_inspect.overview import QueryFacts, TableFacts, in_order

if TYPE_CHECKING:
    from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
    from streamstate.snapshots.store.layout import Layout
    from streamstate.snapshots.store.registry import Branch
    from streamstate.state_inspect.history import History

_AT_ONCE, _REQUESTS_AT_ONCE = 4, 32
"""Queries that are read at the same time: tables that are opened, and those of an object store."""
_FEW = 50
"""Of so many queries state is read to count rows and to find advice; of more that would take long."""

T = TypeVar("T")
Found = TypeVar("Found")


class Histories(Protocol):
    """The part of :class:`Store` that is read here."""

    @property
    def layout(self) -> Layout:
        """The location of its tables."""

    def __getitem__(self, name: str, /) -> History:
        """One query's history."""

    def opened(self, name: str) -> History | None:
        """One query's history, if it has been used."""


@dataclass
class _KnownTable:
    """The end of a table's log, and what was found in it."""

    end: LogEnd
    summary: ManifestSummary | None = None
    plans: Sequence[StoredPlan] | None = None


@dataclass
class KnownFacts:
    """Facts that have been read of a store's queries, to be read again only where they have changed."""

    lineage: Lineage | None = None
    queries: dict[str, tuple[object, QueryFacts]] = field(default_factory=dict)
    manifests: dict[str, _KnownTable] = field(default_factory=dict)
    plans: dict[str, _KnownTable] = field(default_factory=dict)
    sizes: dict[tuple[str, str], TableSize] = field(default_factory=dict)
    advice: dict[str, tuple[object, Sequence[str]]] = field(default_factory=dict)
    checkpoints: dict[Branch, CheckpointFiles | None] = field(default_factory=dict)


Summaries = Mapping[str, ManifestSummary | str]
"""The summary of each query's manifest, or the reason why it cannot be read."""


class StoreFacts:
    """Reads the facts of a store; those of a query only when its manifest has changed. Not thread-safe."""

    def __init__(self, store: Histories, known: KnownFacts | None = None) -> None:
        self._store = store
        self._known = KnownFacts() if known is None else known
        self._lineage = self._known.lineage = self._known.lineage or Lineage(store.layout)
        self._is_remote = local_path(store.layout.root) is None

    def state(self) -> object:
        """Return a value that stays equal until there are new queries, epochs or errors."""
        branches, summaries = self._manifests()
        found = [(branch, summaries[branch.name]) for branch in branches]
        return branches, tuple((_state(summary), self._backlog(branch, summary)) for branch, summary in found)

    def queries(self) -> list[QueryFacts]:
        """Return all queries, those that need a look first, each fork below its parent."""
        branches, summaries = self._manifests()
        new = [branch for branch in branches if not self._is_known(branch, summaries[branch.name])]
        for branch, facts in zip(new, self._each(lambda one: self._read(one, summaries[one.name]), new), strict=True):
            self._known.queries[branch.name] = (branch, _state(summaries[branch.name])), facts
        versions = flow_versions(branches)
        found = {branch.name: self._query(branch, summaries[branch.name]) for branch in branches}
        return in_order({name: replace(query, version=versions.get(name)) for name, query in found.items()})

    def listed(self, *, advised: bool = False) -> list[QueryFacts]:
        """Return all queries as :meth:`queries`; if they are few, with the rows of their state."""
        queries = self.queries()
        few = len(queries) <= _FEW
        found = [self.counted(query) if few else query for query in queries]
        if advised:
            found = [self.advised(query) for query in found] if few else self._each(self._advised_by_log, found)
        return in_order({query.name: query for query in found})

    def advised(self, query: QueryFacts) -> QueryFacts:
        """Return a query with the advice on it; its state may be read."""
        return self._advised(query, reads_state=True)

    def _advised_by_log(self, query: QueryFacts) -> QueryFacts:
        """Return a query with the advice for which no state has to be read."""
        return self._advised(query, reads_state=False)

    def _advised(self, query: QueryFacts, *, reads_state: bool) -> QueryFacts:
        if query.epoch is None or query.problem:
            return query
        state = (self._known.queries[query.name][0], reads_state)
        known = self._known.advice.get(query.name)
        if known is None or known[0] != state:
            advice = self._store[query.name].advise() if reads_state else self._quick_advice(query)
            self._known.advice[query.name] = known = state, [f"{one}" for one in advice]
        return replace(query, advice=known[1])

    def _quick_advice(self, query: QueryFacts) -> Sequence[object]:
        """Return the advice on a query, by its manifest's summary if that says enough."""
        summary, opened = self._known.manifests[query.name].summary, self._store.opened(query.name)
        counted = opened is not None and any(opened.recorded.holds_rows(table.name) for table in query.tables)
        found = None
        if summary is not None and not counted:
            checkpoint = self._known.checkpoints.get(query.branch)
            found = advice_by_summary(summary, lambda: self._plans(query.name), checkpoint)
        return advice_on(self._store[query.name].recorded, lambda _table: False) if found is None else found

    def _plans(self, query: str) -> Sequence[StoredPlan]:
        """Return the recorded plans of a query."""
        known = self._known.plans.get(query)
        if known is None:
            known = self._known.plans[query] = _KnownTable(LogEnd(self._store.layout.plans(query)))
        if known.end.has_changed() or known.plans is None:
            kept = () if known.end.is_missing else kept_plans(known.end)
            known.plans = Plans(self._store.layout, query).recorded() if kept is None else kept
        return known.plans

    def counted(self, query: QueryFacts) -> QueryFacts:
        """Return a query with the rows of its state, if they are quick to count."""
        if query.rows is not None or query.problem or query.epoch is None:
            return query
        rows = self._store[query.name].recorded.newest_rows()
        tables = [replace(table, rows=rows.get(table.name, table.rows)) for table in query.tables]
        return replace(query, tables=tables)

    def _manifests(self) -> tuple[Sequence[Branch], Summaries]:
        """Return the queries and the summaries of their manifests."""
        return read_once(self, self._read_manifests)

    def _read_manifests(self) -> tuple[Sequence[Branch], Summaries]:
        branches = self._lineage.branches()
        names = [branch.name for branch in branches]
        found = dict(zip(names, self._each(self._by_log, names), strict=True))
        unknown = [name for name, summary in found.items() if summary is None]
        found |= dict(zip(unknown, self._each(self._by_entries, unknown, _AT_ONCE), strict=True))
        return branches, {name: summary for name, summary in found.items() if summary is not None}

    def _each(self, read: Callable[[T], Found], items: Sequence[T], at_once: int = 1) -> list[Found]:
        """Return what reading each of some items gives; several at a time, more from an object store."""
        threads = _REQUESTS_AT_ONCE if self._is_remote else at_once
        if threads == 1 or len(items) < threads:
            return [read(item) for item in items]
        with ThreadPoolExecutor(threads, thread_name_prefix="streamstate-overview") as pool:
            return list(pool.map(read, items))

    def _by_log(self, name: str) -> ManifestSummary | str | None:
        """Return the summary of a query's manifest by its log's end; the reason why not, None if the log lacks it."""
        try:
            known = self._known.manifests.get(name)
            if known is None:
                known = self._known.manifests[name] = _KnownTable(LogEnd(self._store.layout.manifest(name)))
            if known.end.has_changed() or known.summary is None:
                known.summary = kept_summary(known.end)
            return known.summary
        except (StreamStateError, OSError) as problem:
            return f"{problem}"

    def _by_entries(self, name: str) -> ManifestSummary | str:
        """Return the summary of a query's manifest by its entries."""
        try:
            found = ManifestSummary.of(self._store[name].recorded.entries())
        except (StreamStateError, OSError) as problem:
            return f"{problem}"
        self._known.manifests[name].summary = found
        return found

    def _backlog(self, branch: Branch, summary: ManifestSummary | str) -> int | None:
        """Return how many committed epochs a query's checkpoint has after the newest one in the store."""
        known = self._known.checkpoints
        if branch not in known:
            known[branch] = local_checkpoint(branch)
        checkpoint = known[branch]
        if checkpoint is None or isinstance(summary, str):
            return None
        newest = -1 if summary.last is None else summary.last
        try:
            return sum(epoch > newest for epoch in checkpoint.committed())
        except OSError:
            return None

    def _is_known(self, branch: Branch, summary: ManifestSummary | str) -> bool:
        known = self._known.queries.get(branch.name)
        return known is not None and known[0] == (branch, _state(summary)) and not known[1].problem

    def _query(self, branch: Branch, summary: ManifestSummary | str) -> QueryFacts:
        facts = self._known.queries[branch.name][1]
        if facts.rows is None:  # they may have been counted since
            counted = self._counted_since(facts)
            tables = [replace(table, rows=counted.get(table.name, table.rows)) for table in facts.tables]
            facts = replace(facts, tables=tables)
        return replace(facts, backlog=self._backlog(branch, summary))

    def _counted_since(self, facts: QueryFacts) -> Mapping[str, int | None]:
        """Return the rows of a query's state tables at its newest epoch, as far as its history has counted them."""
        history = self._store.opened(facts.name)
        entry = None if history is None or facts.epoch is None else history.recorded.known_entries.of(facts.epoch)
        if history is None or entry is None:
            return {}
        return {name: table.rows for name, table in history.recorded.with_counts([entry])[0].tables.items()}

    def _read(self, branch: Branch, summary: ManifestSummary | str) -> QueryFacts:
        if isinstance(summary, str):
            return QueryFacts(branch, problem=summary)
        newest = summary.newest
        facts = QueryFacts(branch, captured=summary.captured, gaps=summary.epochs - summary.captured)
        if newest is not None:
            committed = newest.committed_at
            lag = None if committed is None else (newest.captured_at - committed).total_seconds()
            facts = replace(
                facts,
                epoch=newest.epoch,
                committed=committed,
                watermark=newest.watermark,
                lag=lag,
                changes=summary.changes,
            )
        return self._with_sizes(facts, summary)

    def _with_sizes(self, facts: QueryFacts, summary: ManifestSummary) -> QueryFacts:
        """Return the facts of a query with its state tables, its size, and the reason if something cannot be read."""
        rows = {} if summary.newest is None else summary.newest.rows
        end = self._known.manifests[facts.name].end
        own, problem = _size(partial(size_at, end)) if summary.epochs else (Size(), "")
        tables = []
        for name in summary.tables:
            size, failed = _size(partial(self._table_size, facts.name, name))
            tables.append(TableFacts(name, rows.get(name, 0), size.bytes, size.files))
            problem = problem or failed
        return replace(facts, tables=tables, bytes=sum(table.bytes for table in tables) + own.bytes, problem=problem)

    def _table_size(self, query: str, table: str) -> Size:
        known = self._known.sizes.get((query, table))
        if known is None:
            known = self._known.sizes[query, table] = TableSize(self._store.layout.changelog(query, table))
        return known.now()


def _size(read: Callable[[], Size]) -> tuple[Size, str]:
    """Return the size of a table, and the reason if it cannot be read."""
    try:
        return read(), ""
    except (StreamStateError, OSError) as failed:
        return Size(), f"{failed}"


def _state(summary: ManifestSummary | str) -> object:
    return summary if isinstance(summary, str) else summary.state
