"""The branches of a session as a tree: a lane for each, the original on top, and a dot for each epoch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from streamstate.widgets.debugger.seen import Seen

if TYPE_CHECKING:
    from streamstate.debugger.session import Branch

__all__ = ["LANES", "WINDOW", "Dot", "Lane", "Tree", "tree"]

WINDOW = 40
"""Epochs that are drawn at once."""
LANES = 12
"""Branches that are drawn at once: the original, the one on which the session stands, and the newest."""
_AHEAD = 12  # epochs after the current one that a window shows

Kind = Literal["epoch", "start", "unknown"]
"""An epoch that can be looked at; the one that a branch shares with its parent; one that the store does not have."""


@dataclass(frozen=True)
class Dot:
    """One epoch of one branch."""

    epoch: int
    kind: Kind = "epoch"


@dataclass(frozen=True)
class Lane:
    """One branch, as far as it lies in the window.

    Attributes:
        name: the branch.
        parent: the lane that it comes from, or the nearest drawn one above that: its number; None for the original.
        since: the epoch that it shares with its parent; None for the original.
        dots: its epochs.
        told: what it is, in words.
    """

    name: str
    parent: int | None
    since: int | None
    dots: tuple[Dot, ...]
    told: str


@dataclass(frozen=True)
class Tree:
    """The lanes between two epochs; ``left_out`` branches are not drawn."""

    first: int
    last: int
    oldest: int
    newest: int
    lanes: tuple[Lane, ...]
    left_out: int = 0

    def message(self) -> dict[str, Any]:
        """In JSON types."""
        return asdict(self) | {"lanes": [_lane(one) for one in self.lanes]}

    def lane(self, name: str) -> Lane | None:
        """A lane by its branch."""
        return next((one for one in self.lanes if one.name == name), None)


def tree(now: Seen, captured: Callable[[str], Sequence[int]], upto: int | None = None) -> Tree:
    """The branches around where the session stands.

    Args:
        now: the session.
        captured: a branch's captured epochs, ascending; none where the store does not have it.
        upto: the newest epoch to draw; None: some after the one where the session stands.
    """
    chosen = _chosen(now)
    dots = {one.name: _dots(one, captured(one.name)) for one in chosen}
    every = [dot.epoch for line in dots.values() for dot in line] or [now.epoch]
    oldest, newest = min(every), max(every)
    last = min(newest, max(oldest + WINDOW - 1, now.epoch + _AHEAD if upto is None else upto))
    first = max(oldest, last - WINDOW + 1)
    numbers = {one.name: at for at, one in enumerate(chosen)}
    lanes = tuple(
        Lane(
            one.name,
            _parent(now, one, numbers),
            one.epoch,
            tuple(dot for dot in dots[one.name] if first <= dot.epoch <= last),
            _told(one),
        )
        for one in chosen
    )
    return Tree(first, last, oldest, newest, lanes, len(now.branches) - len(chosen))


def _chosen(now: Seen) -> list[Branch]:
    """The branches that are drawn: where there are too many, the original, the line to the session, and the newest."""
    if len(now.branches) <= LANES:
        return list(now.branches)
    line: list[str] = []
    one = now.branch(now.name)
    while one is not None and one.name not in line:
        line.append(one.name)
        one = now.branch(one.parent) if one.parent else None
    newest = [branch.name for branch in reversed(now.branches)]
    kept = {*list(dict.fromkeys([now.name, line[-1], *line[: LANES // 2], *newest]))[:LANES]}
    return [one for one in now.branches if one.name in kept]


def _parent(now: Seen, branch: Branch, numbers: Mapping[str, int]) -> int | None:
    """The lane that a branch comes from, or, where that is not drawn, the nearest above it."""
    one, passed = now.branch(branch.parent or ""), {branch.name}
    while one is not None and one.name not in numbers and one.name not in passed:
        passed.add(one.name)
        one = now.branch(one.parent or "")
    return None if one is None else numbers.get(one.name)


def _dots(branch: Branch, captured: Sequence[int]) -> list[Dot]:
    start = [] if branch.epoch is None else [Dot(branch.epoch, "start")]
    own = [epoch for epoch in captured if branch.epoch is None or epoch > branch.epoch]
    after = own[-1] + 1 if own else None if branch.newest is None else _first_unknown(branch)
    unknown = [] if after is None or branch.newest is None else range(after, branch.newest + 1)
    return [*start, *map(Dot, own), *(Dot(epoch, "unknown") for epoch in unknown)]


def _first_unknown(branch: Branch) -> int:
    """The first epoch to draw of a branch that the store does not have."""
    newest = branch.newest or 0
    return max(0, newest - WINDOW + 1) if branch.epoch is None else branch.epoch + 1


def _told(branch: Branch) -> str:
    if branch.parent is None:
        return f"{branch.name}, the original"
    return f"{branch.name}, forked from {branch.parent} after epoch {branch.epoch}"


def _lane(lane: Lane) -> dict[str, Any]:
    """A lane for the page: its dots as pairs."""
    return asdict(lane) | {"dots": [[dot.epoch, dot.kind] for dot in lane.dots]}
