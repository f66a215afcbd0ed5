"""The overview of a store: what it shows of each query, and in which order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import pandas as pd

from streamstate.snapshots.store.epoch_progress import begun

if TYPE_CHECKING:
    from streamstate.snapshots.store.registry import Branch, CapturedVersion


@dataclass(frozen=True)
class TableFacts:
    """A state table: its rows in the newest epoch (None: not counted), and the size of its changelog on disk."""

    name: str
    rows: int | None = 0
    bytes: int = 0
    files: int = 0


@dataclass(frozen=True)
class QueryFacts:
    """A query: how many epochs and gaps it has, its newest captured epoch with its commit time, and its tables."""

    branch: Branch
    depth: int = 0
    """Its depth in the tree of forks; 0 for a query that is not a fork."""
    version: CapturedVersion | None = None
    """The version of a pipeline's flow that it is."""
    captured: int = 0
    gaps: int = 0
    epoch: int | None = None
    committed: datetime | None = None
    watermark: datetime | None = None
    """The watermark of the newest epoch."""
    lag: float | None = None
    """Seconds from the commit of the newest epoch to its capture."""
    changes: int | None = None
    """Rows of state that an epoch changed, the mean of the newest ten."""
    backlog: int | None = None
    """Committed epochs that are not captured; None if the checkpoint is not on this machine."""
    advice: Sequence[str] = ()
    """What will grow, waits or is stuck, where that has been looked at."""
    tables: Sequence[TableFacts] = ()
    bytes: int = 0
    """The size of its tables on disk, including the manifest."""
    problem: str = ""
    """Why the query cannot be read; the other fields then hold what could be read."""

    @property
    def name(self) -> str:
        """Its name."""
        return self.branch.name

    @property
    def watermark_lag(self) -> timedelta | None:
        """The time from the watermark of the newest epoch to its commit; None if there is no watermark."""
        return None if self.committed is None or begun(self.watermark) is None else self.committed - self.watermark  # type: ignore[operator]  # begun() has seen it

    @property
    def trouble(self) -> tuple[bool, int, bool]:
        """How much the query needs a look: it cannot be read, its capture is behind, there is advice."""
        return bool(self.problem), self.backlog or 0, bool(self.advice)

    @property
    def rows(self) -> int | None:
        """The rows of all state tables in the newest epoch; None if those of a table are not counted."""
        known = [table.rows for table in self.tables if table.rows is not None]
        return sum(known) if len(known) == len(self.tables) else None


def overview_frame(queries: Sequence[QueryFacts]) -> pd.DataFrame:
    """Return one row per query; see :meth:`Store.overview`."""
    rows = [[value(query) for _, value in _COLUMNS.values()] for query in queries]
    types = {name: kind for name, (kind, _) in _COLUMNS.items()}
    return pd.DataFrame(rows, columns=pd.Index(list(types))).astype(types)


def _state(query: QueryFacts) -> str:
    return query.problem or ("empty" if query.epoch is None else "captured")


# The overview's columns in their order: the type of each, and its value for a query.
_COLUMNS: Mapping[str, tuple[str, Callable[[QueryFacts], object]]] = {
    "query": ("object", lambda query: query.name),
    "parent": ("object", lambda query: query.branch.parent),
    "version": ("Int64", lambda query: None if query.version is None else query.version.number),
    "replaced_by": ("object", lambda query: None if query.version is None else query.version.after),
    "state": ("object", _state),
    "captured": ("int64", lambda query: query.captured),
    "gaps": ("int64", lambda query: query.gaps),
    "epoch": ("Int64", lambda query: query.epoch),
    "committed_at": ("datetime64[us, UTC]", lambda query: query.committed),
    "watermark": ("datetime64[us, UTC]", lambda query: query.watermark),
    "watermark_lag": ("timedelta64[us]", lambda query: query.watermark_lag),
    "lag": ("timedelta64[us]", lambda query: None if query.lag is None else timedelta(seconds=query.lag)),
    "backlog": ("Int64", lambda query: query.backlog),
    "rows": ("Int64", lambda query: query.rows),
    "changes": ("Int64", lambda query: query.changes),
    "bytes": ("int64", lambda query: query.bytes),
    "advice": ("object", lambda query: [*query.advice]),
}


def in_order(facts: Mapping[str, QueryFacts]) -> list[QueryFacts]:
    """Return queries, those that need a look first, each fork below its parent."""
    tree = as_tree([query.branch for query in facts.values()])
    whole: list[list[QueryFacts]] = []
    for branch, depth in tree:
        if not depth:
            whole.append([])
        whole[-1].append(replace(facts[branch.name], depth=depth))
    # A fork in trouble takes its parent with it.
    whole.sort(key=lambda queries: max(query.trouble for query in queries), reverse=True)
    return [query for queries in whole for query in queries]


def as_tree(found: Sequence[Branch]) -> list[tuple[Branch, int]]:
    """Queries by name, each fork below its parent in the order of the epochs, with their depths.

    A query whose parent is missing, or is one of its own forks, counts as not forked.
    """
    below: dict[str | None, list[Branch]] = {}
    names = {branch.name for branch in found}
    for branch in sorted(found, key=lambda branch: (branch.parent_epoch or 0, branch.name)):
        below.setdefault(branch.parent if branch.parent in names else None, []).append(branch)
    tree: list[tuple[Branch, int]] = []
    placed: set[str] = set()

    def place(branch: Branch, depth: int) -> None:
        if branch.name in placed:
            return
        placed.add(branch.name)
        tree.append((branch, depth))
        for fork in below.get(branch.name, []):
            place(fork, depth + 1)

    for branch in sorted(below.get(None, []), key=lambda branch: branch.name):
        place(branch, 0)
    for branch in found:
        place(branch, 0)
    return tree
