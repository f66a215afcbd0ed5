"""``%stream status``: every query of a notebook at a glance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streamstate.magics.signs import signed
from streamstate.magics.table import Shown, Table

if TYPE_CHECKING:
    from collections.abc import Iterable

    from streamstate.magics.running import QueryStatus, RunningQuery

__all__ = ["status_rows", "status_table"]

_COLUMNS = ["name", "state", "epoch", "behind", "freshness", "rows/s", "rows", "last error"]
_ERROR_LENGTH = 80


def status_table(running: Iterable[RunningQuery]) -> Table:
    """Every query at a glance: what it does, how far it is captured, how fast it is, and what went wrong."""
    return status_rows(one.status() for one in running)


def status_rows(statuses: Iterable[QueryStatus]) -> Table:
    """The same of statuses that were taken before."""
    rows = [_row(status) for status in statuses]
    return Table(_COLUMNS, rows, empty="No queries yet: start one with %%stream NAME.", caption="Streaming queries")


def _row(status: QueryStatus) -> list[Any]:
    fresh = None if status.freshness is None else Shown(f"{status.freshness:.1f} s", number=True)
    rate = Shown(status.rate, None if status.rate is None else _rate(status.rate))
    return [
        status.name,
        signed(status.state, status.restart),
        status.epoch,
        status.behind,
        fresh,
        rate,
        status.rows,
        _shortened(status.error),
    ]


def _rate(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 10 or rate == 0 else f"{rate:,.1f}"


def _shortened(error: str | None) -> Shown:
    """The first line of an error, cut; all of it is the title, and what ``to_pandas`` gives."""
    if error is None:
        return Shown(None)
    line = error.strip().splitlines()[0] if error.strip() else error
    cut = line if len(line) <= _ERROR_LENGTH else f"{line[: _ERROR_LENGTH - 1].rstrip()}…"
    return Shown(error, cut, title=error)
