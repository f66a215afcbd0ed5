"""The rows of an epoch that an operator dropped, because the watermark had passed them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING

from streamstate.errors import InvalidArgumentError
from streamstate.snapshots.calls.html import joined, paragraphs, tag
from streamstate.snapshots.checkpoint.state_tables import operator_number
from streamstate.state_inspect.frames import as_html, as_text
from streamstate.state_inspect.inputs.shown_rows import LATENESS, InputOfEpoch, LateSides
from streamstate.state_inspect.results.results import state_name
from streamstate.state_inspect.snapshot import choose_table
from streamstate.state_inspect.suspects.suspect import Suspect

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from streamstate.state_inspect.captured_query import CapturedQuery


@dataclass(frozen=True, repr=False)
class Late(LateSides):
    """The rows that an operator dropped in an epoch.

    Attributes:
        epoch: the epoch.
        operator: the stateful operator's number.
        watermark: what a row's time, or its window's end, had to exceed; None if the operator drops no rows, or if
            there was no watermark yet.
        sides: the dropped rows by side: ``left`` and ``right`` of a join, otherwise one with the name ``rows``. They
            are DataFrames of Spark, as in :class:`Why`, with ``_late_by``: how far the watermark was past each.
        groups: how many groups they form, which is what Spark's own ``numRowsDroppedByWatermark`` counts for an
            aggregation; None for other operators, for which it counts rows.
        came: how many rows came in.
        nondeterministic: as :attr:`Why.nondeterministic`.
    """

    epoch: int
    operator: int
    watermark: datetime | None
    sides: Mapping[str, DataFrame]
    came: int
    groups: int | None = None
    nondeterministic: tuple[Suspect, ...] = ()
    _keep: InputOfEpoch | None = None
    _drops: bool = True

    def longer_delay(self, keep: float = 0.99) -> timedelta:
        """By how much longer every delay of the query has to be for a share of the rows that came in to be kept.

        A longer delay moves the watermark back by the same time, at every epoch.

        Args:
            keep: the share of all rows that came in, above 0 and at most 1.

        Returns:
            Zero if enough rows are kept already.

        Raises:
            InvalidArgumentError: ``keep`` is not such a share.
        """
        if not 0 < keep <= 1:
            raise InvalidArgumentError(f"Invalid keep: {keep!r}. Expected a share above 0 and at most 1, such as 0.99.")
        from pyspark.sql import functions as F

        dropped = self.count()
        may_drop = int(self.came * (1 - keep) + 1e-9)
        if dropped <= may_drop:
            return timedelta(0)
        # The (may_drop + 1)-th latest of all has to be kept: its time must exceed the watermark.
        latest: list[int] = []
        for rows in self.sides.values():
            micros = F.unix_micros(F.timestamp_micros(F.lit(0)) + F.col(LATENESS)).alias("late")
            with self.bound():
                found = rows.select(micros).orderBy(F.desc("late")).limit(may_drop + 1).collect()
            latest += [row.late for row in found]
        latest.sort(reverse=True)
        return delay_past(latest[may_drop])

    def __repr__(self) -> str:
        shown = as_text(self.rows) if self.count() else ""
        return "\n".join(filter(None, [self._title(), shown, *self._notes()]))

    def _repr_html_(self) -> str:
        rows = as_html(self.rows) if self.count() else None
        return joined(tag("p", self._title()), rows, paragraphs(self._notes()))

    def _title(self) -> str:
        said = f"op{self.operator}, epoch {self.epoch}: "
        if not self._drops:
            return said + "this operator drops no late rows"
        said += f"{self.count():,} of {self.came:,} rows dropped"
        if self.watermark is None and not self.count():
            return f"{said}: there was no watermark yet"
        # Spark's own watermark begins in 1970.
        said += f", not later than {f'the watermark {self.watermark}' if self.watermark else '1970-01-01'}"
        if self.groups is not None and self.count():
            said += f"; they form {self.groups:,} group{'s' * (self.groups != 1)}"
        if longer := self._longer_delay:
            said += f". A delay that is longer by {longer} would keep 99 %"
        return said

    @cached_property
    def _longer_delay(self) -> timedelta:
        return self.longer_delay()


def delay_past(late_by: int) -> timedelta:
    """By how much longer a delay has to be for a row to be kept that is late by so many microseconds."""
    # Delays are kept in whole milliseconds.
    return timedelta(milliseconds=late_by // 1000 + 1)


def operator_of_table(query: CapturedQuery, table: str) -> int:
    """Return the number of the operator that a state table or a result belongs to."""
    return operator_number(choose_table(state_name(query, table), query.tables(), query.name))


def dropped(query: CapturedQuery, epoch: int, table: str | None) -> Late:
    """Return the rows that an operator dropped, as :meth:`streamstate.History.late`."""
    from streamstate.state_inspect.inputs.epoch_input import EpochInput

    number = None if table is None else operator_of_table(query, table)
    input_of = EpochInput(query, epoch)
    number = input_of.lowest if number is None else number
    sides, groups, came = {}, None, 0
    found = input_of.of(number)
    for side in found:
        with input_of.bound():
            came += side.rows.count()
        late = sides[side.came.side or "rows"] = input_of.late(side)
        if side.came.late is not None and side.came.is_aggregation:
            with input_of.bound():
                groups = (groups or 0) + input_of.keys_of(side, late).distinct().count()
    drops = [side for side in found if side.came.late is not None]
    return Late(
        epoch,
        number,
        drops[-1].came.watermark if drops else None,
        sides,
        came,
        groups,
        input_of.nondeterministic(number),
        input_of,
        bool(drops),
    )
