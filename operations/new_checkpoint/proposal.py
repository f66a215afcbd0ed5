"""The mapping of one state table, and a few rows to look at."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from streamstate.operations.report_html import ColumnPair

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
    """What the mapping makes of them."""
    groups: tuple[int, ...] | None = None
    """For each row of ``after``, from how many old rows it comes; None if the mapping does not say which they are."""
    shown: tuple[int, ...] = ()
    """How many of these are in ``before``."""
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
    """What it does that is not a plain copy, in sentences."""
    problem: str | None = None
    """The problem found, for which :meth:`Checkpoint.migrate` would refuse it; None if none."""
    old: str | None = None
    """The old state table that it follows from."""
    columns: tuple[ColumnPair, ...] = field(default=(), repr=False)
    """The old and the new columns, side by side."""
    preview: Preview | None = field(default=None, repr=False, compare=False)
    """A few rows of both, and how many there are; None if no rows were read."""
