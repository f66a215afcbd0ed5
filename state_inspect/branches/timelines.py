"""Which epochs and tables of two histories are compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from streamstate.snapshots.errors import InvalidArgumentError, UnknownEpochError
from streamstate.state_inspect.branches.ancestry import branch_names, line_of, same_history, stretches
from streamstate.state_inspect.branches.common import shared_table

if TYPE_CHECKING:
    from streamstate.state_inspect.recorded import Recorded
    from streamstate.state_inspect.snapshot import Snapshot

__all__ = ["Timelines", "timelines"]


@dataclass(frozen=True)
class Timelines:
    """The snapshots of two branches at the same epochs."""

    names: tuple[str, str]
    here: dict[int, Snapshot]
    """Ascending by epoch, as is ``there``."""
    there: dict[int, Snapshot]
    tables: list[str]
    """The state tables that are compared."""
    left_out: tuple[str, ...]
    """State tables that only one of them has, in words."""

    @property
    def epochs(self) -> list[int]:
        """The epochs that are compared."""
        return list(self.here)

    def stretches(self, side: int, table: str) -> list[tuple[Recorded, list[int]]]:
        """The epochs of one side (0 or 1) that have a table, put together by the query whose they are."""
        snapshots = (self.here, self.there)[side].values()
        return stretches((one.epoch, one.history) for one in snapshots if table in one.tables())


def timelines(here: Recorded, there: Recorded, epochs: Sequence[int] | None, tables: Sequence[str] | None) -> Timelines:
    """What of two histories is compared.

    Args:
        here: one.
        there: the other.
        epochs: those that are asked for; None: all that both have and do not share.
        tables: those that are asked for; None: all that both have.

    Raises:
        UnknownEpochError, UnknownTableError, InvalidArgumentError: see :meth:`History.compare`.
    """
    if same_history(here, there):
        raise InvalidArgumentError(
            f"{here.name} cannot be compared with itself.\nGive another query's history, such as a fork's; for two of"
            " its own epochs use diff(a, b)."
        )
    names = branch_names(here, there)
    sides = [{epoch: one.at(epoch) for epoch in epochs or ()} for one in (here, there)]
    if epochs is None:
        sides = _in_both(here, there, names)
    of = [list(dict.fromkeys(name for one in side.values() for name in one.tables())) for side in sides]
    chosen = [shared_table(name, of[0], of[1], names) for name in tables or ()]
    if tables is None:
        chosen = [name for name in of[0] if name in of[1]]
        if not chosen and (of[0] or of[1]):
            shared_table(None, of[0], of[1], names)  # says what each has
    left_out = [f"{name} (only in {names[side]})" for side in (0, 1) for name in of[side] if name not in of[1 - side]]
    return Timelines(names, sides[0], sides[1], chosen, tuple(left_out if tables is None else ()))


def _in_both(here: Recorded, there: Recorded, names: Sequence[str]) -> list[dict[int, Snapshot]]:
    """The snapshots at the epochs that both have, those left out that are one and the same."""
    lines = line_of(here), line_of(there)
    common = [epoch for epoch in lines[0] if epoch in lines[1]]
    parted = [epoch for epoch in common if not same_history(lines[0][epoch], lines[1][epoch])]
    if not parted:
        told = "\n".join(f"  {name}: {_span(line)}" for name, line in zip(names, lines, strict=True))
        raise UnknownEpochError(
            f"{names[0]} and {names[1]} have no epoch of their own in common.\nTheir captured epochs:\n{told}"
        )
    return [{epoch: line[epoch].own(epoch) for epoch in parted} for line in lines]


def _span(line: dict[int, Recorded]) -> str:
    if not line:
        return "none yet"
    return f"{min(line)} to {max(line)}" if len(line) > 1 else str(min(line))
