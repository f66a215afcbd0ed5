"""The queries that a fork descends from, and which of them its early epochs belong to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from streamstate.errors import UnknownEpochError
from streamstate.state_inspect.captured_query import CapturedQuery, QueryHistory


@dataclass(frozen=True)
class Ancestor:
    """A query that a fork descends from, directly or through other forks."""

    history: QueryHistory
    last: int
    """The last epoch that the two share."""


def ancestors(query: CapturedQuery) -> list[Ancestor]:
    """Return the parent, its parent and so on that the store has, the nearest first."""
    found: list[Ancestor] = []
    known = {branch.name: branch for branch in query.lineage.branches()}
    seen, branch = {query.name}, known.get(query.name)
    while branch and branch.parent in known and branch.parent not in seen and branch.parent_epoch is not None:
        last = min([branch.parent_epoch, *(ancestor.last for ancestor in found)])
        found.append(Ancestor(query.related(branch.parent), last))
        seen.add(branch.parent)
        branch = known[branch.parent]
    return found


def epoch_owner(history: QueryHistory, epoch: int) -> QueryHistory:
    """Return the history that has an epoch: the query's own or, for a fork's early epochs, an ancestor's.

    Raises:
        UnknownEpochError: the epoch is the parent's, and the store does not have the parent.
    """
    if history.recorded.begins_by(epoch):
        return history
    found = ancestors(history.recorded)
    if not found:
        _check_parent(history.recorded, epoch)
    owner = history
    for ancestor in found:
        if epoch > ancestor.last:
            break
        owner = ancestor.history
        if owner.recorded.begins_by(epoch):
            break
    return owner


def _check_parent(query: CapturedQuery, epoch: int) -> None:
    branch = query.lineage.branch(query.name)
    if branch is None or branch.parent is None or branch.parent == query.name:
        return
    shared = branch.parent_epoch is not None and 0 <= epoch <= branch.parent_epoch
    if shared and query.lineage.branch(branch.parent) is None:
        raise UnknownEpochError(
            f"Epoch {epoch} of {query.name} belongs to the query {branch.parent}, which it was forked from after epoch"
            f" {branch.parent_epoch} and which this store does not have.\nCapture that query into the same store."
        )


def epoch_owners(history: QueryHistory) -> dict[int, QueryHistory]:
    """Return all captured epochs up to a query's newest, ancestors' included, each with the history that has it."""
    owners = dict.fromkeys(history.recorded.captured(), history)
    for ancestor in ancestors(history.recorded):
        first = min(owners, default=ancestor.last + 1)
        earlier = (epoch for epoch in ancestor.history.recorded.captured() if epoch < first and epoch <= ancestor.last)
        owners |= dict.fromkeys(earlier, ancestor.history)
    return dict(sorted(owners.items()))


def by_owner(owners: Iterable[tuple[int, QueryHistory]]) -> list[tuple[QueryHistory, list[int]]]:
    """Return epochs, ascending, grouped by the history that has them."""
    found: list[tuple[QueryHistory, list[int]]] = []
    for epoch, history in owners:
        if not found or found[-1][0] is not history:
            found.append((history, []))
        found[-1][1].append(epoch)
    return found


def same_branch(a: QueryHistory, b: QueryHistory) -> bool:
    """Return whether two histories are of the same query of the same store."""
    return a.name == b.name and a.recorded.layout.root == b.recorded.layout.root


def branch_names(a: QueryHistory, b: QueryHistory) -> tuple[str, str]:
    """Return the names of two branches, with their stores if the names alone are the same."""
    if a.name == b.name and not same_branch(a, b):
        return f"{a.name} of {a.recorded.layout.root}", f"{b.name} of {b.recorded.layout.root}"
    return a.name, b.name
