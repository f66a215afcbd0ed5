"""Whose the epochs before a fork's first own one are."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from streamstate.snapshots.errors import UnknownEpochError
from streamstate.snapshots.lineage import Kin, Lineage

if TYPE_CHECKING:
    from streamstate.snapshots.layout import Layout
    from streamstate.state_inspect.recorded import Recorded

__all__ = ["Ancestor", "Ancestry", "branch_names", "line_of", "same_history", "stretches"]


@dataclass(frozen=True)
class Ancestor:
    """A query that another was forked from, directly or over forks between."""

    history: Recorded
    last: int
    """The last epoch that both share."""


class Ancestry:
    """The queries that one was forked from, as far as its store has them.

    Args:
        layout: the store.
        name: the query.
        related: gives the history of another query of the store; None: nobody is asked.
    """

    def __init__(self, layout: Layout, name: str, related: Callable[[str], Recorded] | None) -> None:
        self._name = name
        self._related = related
        self._lineage = Lineage(layout)

    def ancestors(self) -> list[Ancestor]:
        """The nearest first."""
        found: list[Ancestor] = []
        known = {kin.name: kin for kin in self._lineage.queries()} if self._related else {}
        seen, one = {self._name}, known.get(self._name)
        while self._related and one and one.parent in known and one.parent not in seen and one.parent_epoch is not None:
            last = min([one.parent_epoch, *(before.last for before in found)])
            found.append(Ancestor(self._related(one.parent), last))
            seen.add(one.parent)
            one = known[one.parent]
        return found

    def holding(self, epoch: int) -> Recorded | None:
        """The ancestor whose epoch it is, where the query itself has none so early; None where none shares it.

        Raises:
            UnknownEpochError: where it is the parent's, and the store does not have the parent.
        """
        ancestors = self.ancestors()
        if not ancestors:
            self._check_there(epoch)
        found: Recorded | None = None
        for one in ancestors:
            if epoch > one.last:
                break
            found = one.history
            if found.begins_by(epoch):
                break
        return found

    def _check_there(self, epoch: int) -> None:
        kin: Kin | None = self._lineage.of(self._name)
        if kin is None or kin.parent is None or kin.parent == self._name:
            return
        if kin.parent_epoch is not None and 0 <= epoch <= kin.parent_epoch and self._lineage.of(kin.parent) is None:
            raise UnknownEpochError(
                f"Epoch {epoch} of {self._name} is one of the query {kin.parent}, which it was forked from after epoch"
                f" {kin.parent_epoch}, and which this store does not have.\nCapture that query into the same store."
            )


def line_of(history: Recorded) -> dict[int, Recorded]:
    """All captured epochs that lead to a query's newest, with the query whose each is: ancestors', then its own."""
    line = dict.fromkeys(history.captured(), history)
    for one in history.ancestry.ancestors():
        first = min(line, default=one.last + 1)
        line |= dict.fromkeys(
            (epoch for epoch in one.history.captured() if epoch < first and epoch <= one.last), one.history
        )
    return dict(sorted(line.items()))


def stretches(owners: Iterable[tuple[int, Recorded]]) -> list[tuple[Recorded, list[int]]]:
    """Epochs, ascending, put together by the query whose they are."""
    found: list[tuple[Recorded, list[int]]] = []
    for epoch, history in owners:
        if not found or found[-1][0] is not history:
            found.append((history, []))
        found[-1][1].append(epoch)
    return found


def same_history(one: Recorded, other: Recorded) -> bool:
    """Whether two histories are of one query of one store."""
    return one.name == other.name and one.place == other.place


def branch_names(one: Recorded, other: Recorded) -> tuple[str, str]:
    """What two branches are called; with their stores where the names alone are the same."""
    if one.name == other.name and not same_history(one, other):
        return f"{one.name} of {one.place}", f"{other.name} of {other.place}"
    return one.name, other.name
