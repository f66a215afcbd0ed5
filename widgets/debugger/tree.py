"""The branches of a session as a tree: a lane for each branch, the original on top, and a dot for each epoch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from streamstate.widgets.debugger.session import SessionState

if TYPE_CHECKING:
    from streamstate.replay.debugging.branches import Branch

WINDOW = 40
"""The most epochs that are drawn at once."""
LANES = 12
"""The most branches that are drawn at once: the original, the current one, and the newest."""
_AHEAD = 12  # epochs after the current one that a window shows

DotKind = Literal["epoch", "start", "unknown"]
"""An epoch that can be looked at; the epoch that a branch shares with its parent; an epoch missing in the store."""


@dataclass(frozen=True)
class Dot:
    """An epoch of a branch."""

    epoch: int
    kind: DotKind = "epoch"


@dataclass(frozen=True)
class Lane:
    """The part of a branch that lies in the window."""

    name: str
    parent: int | None
    """The number of its parent's lane, or of the nearest ancestor that is drawn; None for the original."""
    since: int | None
    """The epoch that it shares with its parent; None for the original."""
    dots: tuple[Dot, ...]
    description: str


@dataclass(frozen=True)
class Tree:
    """The lanes from epoch ``first`` to ``last``; ``left_out`` branches are not drawn."""

    first: int
    last: int
    oldest: int
    newest: int
    lanes: tuple[Lane, ...]
    left_out: int = 0

    def message(self) -> dict[str, Any]:
        """As JSON types; a dot is a pair."""
        lanes = [asdict(lane) | {"dots": [[dot.epoch, dot.kind] for dot in lane.dots]} for lane in self.lanes]
        return asdict(self) | {"lanes": lanes}


def tree(state: SessionState, captured: Callable[[str], Sequence[int]], upto: int | None = None) -> Tree:
    """Return the branches up to an epoch, by default to some epochs after the current one.

    ``captured`` returns a branch's captured epochs, ascending.
    """
    chosen = _chosen(state)
    dots = {branch.name: _dots(branch, captured(branch.name)) for branch in chosen}
    every = [dot.epoch for line in dots.values() for dot in line] or [state.epoch]
    oldest, newest = min(every), max(every)
    last = min(newest, max(oldest + WINDOW - 1, state.epoch + _AHEAD if upto is None else upto))
    first = max(oldest, last - WINDOW + 1)
    numbers = {branch.name: at for at, branch in enumerate(chosen)}
    lanes = tuple(
        Lane(
            branch.name,
            next((numbers[known.name] for known in state.line(branch.name)[1:] if known.name in numbers), None),
            branch.epoch,
            tuple(dot for dot in dots[branch.name] if first <= dot.epoch <= last),
            _described(branch),
        )
        for branch in chosen
    )
    return Tree(first, last, oldest, newest, lanes, len(state.branches) - len(chosen))


def _chosen(state: SessionState) -> list[Branch]:
    """The branches that are drawn; if there are too many, the original, the current one's ancestors, and the newest."""
    if len(state.branches) <= LANES:
        return list(state.branches)
    line = [branch.name for branch in state.line(state.name)]
    newest = [known.name for known in reversed(state.branches)]
    kept = {*list(dict.fromkeys([state.name, line[-1], *line[: LANES // 2], *newest]))[:LANES]}
    return [known for known in state.branches if known.name in kept]


def _dots(branch: Branch, captured: Sequence[int]) -> list[Dot]:
    start = [] if branch.epoch is None else [Dot(branch.epoch, "start")]
    own = [epoch for epoch in captured if branch.epoch is None or epoch > branch.epoch]
    after = own[-1] + 1 if own else None if branch.newest is None else _first_unknown(branch)
    unknown = [] if after is None or branch.newest is None else range(after, branch.newest + 1)
    return [*start, *map(Dot, own), *(Dot(epoch, "unknown") for epoch in unknown)]


def _first_unknown(branch: Branch) -> int:
    """Return the first epoch to draw of a branch that is not in the store."""
    newest = branch.newest or 0
    return max(0, newest - WINDOW + 1) if branch.epoch is None else branch.epoch + 1


def _described(branch: Branch) -> str:
    if branch.parent is None:
        return f"{branch.name}, the original"
    return f"{branch.name}, forked from {branch.parent} after epoch {branch.epoch}"
