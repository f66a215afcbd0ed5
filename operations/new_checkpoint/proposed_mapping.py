"""A proposed mapping as text and HTML, to review before anything is written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, overload

from pandas.api.types import is_numeric_dtype

from streamstate.errors import StateWriteError
from streamstate.operations.report_html import ColumnPair, cell, columns_html, columns_text, report
from streamstate.snapshots.calls.html import Html, head, joined, table, tag
from streamstate.state_inspect.cell_text import cell as value_cell
from streamstate.state_inspect.frames import as_text, frame_tuples

if TYPE_CHECKING:
    import pandas as pd

FEW_ROWS = 10_000
"""Rows of each old state table that are read and counted without being asked to read all."""


@dataclass(frozen=True)
class Preview:
    """A few rows of a state table before and after a mapping."""

    before: pd.DataFrame
    """Old rows; those that become one are beside each other."""
    after: pd.DataFrame
    """The rows that the mapping returns for them."""
    groups: tuple[int, ...] | None = None
    """For each row of ``after``, from how many old rows it comes; None if the mapping does not say which they are."""
    shown: tuple[int, ...] = ()
    """The number of these in ``before``."""
    rows_before: int | None = None
    """The number of old rows; None if there are more than were read."""
    rows_after: int | None = None
    """The number of new rows; None if not all old rows were read."""


@dataclass(frozen=True)
class Proposal:
    """The mapping of one state table."""

    table: str
    """The new state table."""
    sql: str | None
    """None: it is mapped by a function, or not at all."""
    notes: tuple[str, ...] = ()
    """Everything that it does beside copying, in sentences."""
    problem: str | None = None
    """The problem found, for which :meth:`Checkpoint.migrate` would refuse it; None if none."""
    old: str | None = None
    """The old state table that it follows from."""
    columns: tuple[ColumnPair, ...] = field(default=(), repr=False)
    """The old and the new columns, side by side."""
    preview: Preview | None = field(default=None, repr=False, compare=False)
    """A few rows of both, and how many there are; None if no rows were read."""


@dataclass(frozen=True, repr=False)
class ProposedMapping(Sequence[Proposal]):
    """A :class:`Proposal` for each state table of the changed query, from :meth:`Checkpoint.propose_mapping`.

    Example:
        >>> proposed = ss.Checkpoint("checkpoints/by_route").propose_mapping(build_by_carrier)
        >>> [(proposal.table, proposal.problem) for proposal in proposed]
        [('op0', None)]
    """

    checkpoint: str
    """The old checkpoint."""
    epoch: int
    """The epoch whose state would be migrated."""
    proposals: tuple[Proposal, ...]

    @overload
    def __getitem__(self, at: int) -> Proposal: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Proposal]: ...
    def __getitem__(self, at: int | slice) -> Proposal | Sequence[Proposal]:
        return self.proposals[at]

    def __len__(self) -> int:
        return len(self.proposals)

    @property
    def problems(self) -> list[str]:
        """Problems found, for which :meth:`Checkpoint.migrate` would refuse; empty if none."""
        return [proposal.problem for proposal in self.proposals if proposal.problem]

    def check(self) -> None:
        """Raise a ``StateWriteError`` for the first problem that :meth:`Checkpoint.migrate` would refuse."""
        if self.problems:
            raise StateWriteError(self.problems[0])

    @property
    def _headline(self) -> str:
        tables = ", ".join(proposal.table for proposal in self.proposals if proposal.problem)
        verdict = f"Checkpoint.migrate would refuse it, because of {tables}" if tables else "nothing is written yet"
        return f"epoch {self.epoch} of {self.checkpoint}; {verdict}"

    def __repr__(self) -> str:
        lines = [f"ProposedMapping: {self._headline}"]
        return "\n".join([*lines, *(line for proposal in self.proposals for line in _text(proposal))])

    def _repr_html_(self) -> str:
        title = tag("p", tag("strong", "Proposed mapping"), f": {self._headline}")
        return report(title, *(part for proposal in self.proposals for part in _html(proposal)))


def _counted(preview: Preview | None) -> str:
    """Return the number of rows before and after, as text."""
    if preview is None:
        return ""
    before = preview.rows_before
    rows = f"more than {FEW_ROWS:,} rows" if before is None else f"{before:,} row{'s' * (before != 1)}"
    return rows if preview.rows_after is None else f"{rows} become {preview.rows_after:,}"


def _notes(proposal: Proposal) -> list[str]:
    preview = proposal.preview
    if preview is None or preview.rows_before is not None:
        return [*proposal.notes]
    part = f"The rows below come from the first {FEW_ROWS:,} old rows alone; whole=True reads and counts all."
    return [*proposal.notes, part]


def _titles(proposal: Proposal) -> tuple[str, str]:
    return f"old {proposal.old}", f"new {proposal.table}"


def _text(proposal: Proposal) -> Iterator[str]:
    counted = _counted(proposal.preview)
    yield f"\n{proposal.table}{': ' * bool(counted)}{counted}"
    if proposal.problem:
        yield f"  ✗ {proposal.problem}".replace("\n", "\n    ")
    if proposal.sql:
        yield f"  {proposal.sql}".replace("\n", "\n  ")
    yield from (f"  · {note}" for note in _notes(proposal))
    if proposal.columns:
        yield from (f"  {line}" for line in columns_text(_titles(proposal), proposal.columns))
    if proposal.preview is not None:
        for title, frame in zip(_titles(proposal), (proposal.preview.before, proposal.preview.after), strict=True):
            if len(frame):
                yield f"  rows of {title}:"
                yield "    " + as_text(frame).replace("\n", "\n    ")


def _html(proposal: Proposal) -> Iterator[Html]:
    counted = _counted(proposal.preview)
    yield tag("h4", tag("code", proposal.table), " ", tag("span", counted, class_="faint"))
    if proposal.problem:
        yield tag("p", f"✗ {proposal.problem}", class_="problem")
    if proposal.columns:
        yield columns_html(_titles(proposal), proposal.columns)
    if proposal.sql:
        yield tag("pre", proposal.sql)
    yield from (tag("p", note) for note in _notes(proposal))
    if proposal.preview is not None:
        yield _rows_html(proposal, proposal.preview)


def _rows_html(proposal: Proposal, preview: Preview) -> Html:
    """New rows beside the old rows that they come from; else the first of each."""
    old, new = frame_tuples(preview.before), frame_tuples(preview.after)
    if preview.groups is None:
        sides = zip(_titles(proposal), (preview.before, preview.after), (old, new), strict=True)
        return joined(
            table(_heads(frame), map(_cells, rows), caption=f"rows of {title}") for title, frame, rows in sides if rows
        )
    lines, starts = list[list[Html]](), [0, *accumulate(preview.shown)]
    for row, count, (start, end) in zip(new, preview.groups, pairwise(starts), strict=True):
        hidden = count - (end - start)
        merged = _cells(row, "right", rows=end - start + bool(hidden))
        lines += [_cells(old[at]) + merged * (at == start) for at in range(start, end)]
        lines += [[cell(f"… and {hidden:,} more", "faint", columns=len(old[0]))]] * bool(hidden)
    heads = [*_heads(preview.before), *_heads(preview.after, "right")]
    return table(heads, lines, caption="old rows, and the new rows that they become")


def _heads(frame: pd.DataFrame, first: str = "") -> list[Html]:
    """Return the heads of a frame's columns; ``first`` is the class of the first."""
    kinds = ["number" * is_numeric_dtype(kind) for kind in frame.dtypes]
    return [
        head(str(name), f"{kind} {first * (not at)}".strip())
        for at, (name, kind) in enumerate(zip(frame.columns, kinds, strict=True))
    ]


def _cells(row: Sequence[object], first: str = "", *, rows: int = 1) -> list[Html]:
    """Return the cells of a row; ``first`` is the class of the first."""
    return [cell(value_cell(value), first * (not at), rows=rows) for at, value in enumerate(row)]
