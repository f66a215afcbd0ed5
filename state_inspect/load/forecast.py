"""Forecasts of when a state or a backlog reaches a limit."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import numpy as np

from streamstate.errors import InvalidArgumentError, UnknownEpochError
from streamstate.snapshots.calls.checks import byte_size, whole_number
from streamstate.snapshots.calls.html import tag
from streamstate.state_inspect.load.trend import FEWEST, Ahead, ahead, clock

if TYPE_CHECKING:
    from streamstate.state_inspect.load.epochs import EpochColumns
    from streamstate.state_inspect.load.trend import Numbers

_LONGEST = timedelta(days=36_525)
"""Beyond this, a trend leads nowhere."""


@dataclass(frozen=True)
class Forecast:
    """When a level reaches a limit, if it goes on as in the recorded epochs.

    Attributes:
        what: ``state rows``, ``state bytes`` or ``backlog rows``.
        limit: the limit.
        level: the level at the epoch.
        epoch: the epoch from which the forecast is made.
        at: when that epoch was planned.
        reached: when the limit is reached; None: never at this trend.
        earliest, latest: the bounds of most forecasts from resampled parts of the history, wider if forecasts from its
            earlier parts would have been wrong by more; None: never.
    """

    what: str
    limit: int
    level: float
    epoch: int
    at: datetime
    reached: datetime | None
    earliest: datetime | None
    latest: datetime | None

    @property
    def never(self) -> bool:
        """True if the trend does not lead to the limit."""
        return self.reached is None

    def __str__(self) -> str:
        """Return the forecast in words."""
        amount = _size if self.what == "state bytes" else _rows
        noun = "backlog" if self.what == "backlog rows" else "state"
        now = f"At epoch {self.epoch} the {noun} is {amount(self.level)}"
        if self.reached == self.at:
            return f"{now}, which reaches the limit of {amount(self.limit)}."
        if self.reached is None:
            early = "" if self.earliest is None else f", at the earliest at {_shown(self.earliest)}"
            return f"{now}, and never reaches {amount(self.limit)} at this trend{early}."
        bounds = [None if bound is None else _shown(bound) for bound in (self.earliest, self.latest)]
        range_ = "" if bounds[0] == bounds[1] else f", between {bounds[0]} and {bounds[1] or 'never'}"
        return f"{now}, and reaches {amount(self.limit)} at {_shown(self.reached)} at this trend{range_}."

    def _repr_html_(self) -> str:
        return tag("p", str(self))


def forecast(columns: EpochColumns, state: str | int | None, backlog: int | None, at: int | None) -> Forecast:
    """Return a forecast; see :meth:`Load.forecast`."""
    if (state is None) == (backlog is None):
        raise InvalidArgumentError(
            'Expected either state= or backlog=: state="10GB", state=1_000_000 or backlog=50_000.'
        )
    what, limit = _limit(state, backlog)
    levels: Numbers = {
        "state rows": lambda: columns.state_rows,
        "state bytes": lambda: columns.state_bytes,
        "backlog rows": lambda: columns.backlog_rows,
    }[what]()
    known = np.isfinite(levels) & np.isfinite(columns.began)
    if at is not None:
        if at not in columns.epochs:
            raise UnknownEpochError(
                f"Epoch {at} is not captured; choose one of {columns.epochs[0]} to {columns.epochs[-1]}."
            )
        known &= columns.epochs <= at
    if known.sum() < FEWEST:
        raise InvalidArgumentError(
            f"The {what} are known at {known.sum()} epochs, and a forecast needs {FEWEST}. load.unknown says why."
        )
    times, level = columns.began[known], levels[known]
    even = clock(times, columns.epochs[known].astype(float), level)
    found = Ahead(0, 0, 0) if level[-1] >= limit else ahead(even, level, limit)
    moments = [_after(float(times[-1]), seconds) for seconds in (found.seconds, found.earliest, found.latest)]
    began = datetime.fromtimestamp(float(times[-1]), UTC)
    return Forecast(what, limit, float(level[-1]), int(columns.epochs[known][-1]), began, *moments)


def _limit(state: str | int | None, backlog: int | None) -> tuple[str, int]:
    if state is None:
        return "backlog rows", whole_number(backlog, "backlog")
    if isinstance(state, str):
        size = byte_size(state)
        if not size:
            raise InvalidArgumentError(f"Invalid state={state!r}: expected a size such as '10GB', or a number of rows.")
        return "state bytes", size
    return "state rows", whole_number(state, "state")


def _after(began: float, seconds: float) -> datetime | None:
    if not math.isfinite(seconds) or seconds > _LONGEST.total_seconds():
        return None
    return datetime.fromtimestamp(began, UTC) + timedelta(seconds=seconds)


def _shown(moment: datetime) -> str:
    return f"{moment.astimezone():%Y-%m-%d %H:%M:%S}"


def _rows(count: float) -> str:
    return f"{count:,.0f} rows"


def _size(count: float) -> str:
    unit, factor = ("GB", 1e9) if count >= 1e9 else ("MB", 1e6)
    return f"{count / factor:,.2f} {unit}"
