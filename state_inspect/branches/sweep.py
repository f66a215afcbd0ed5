"""How many keys of a state table differ between two branches, at all epochs at once.

Versions that are the same in both, from and to the same epochs, are set aside first: what is left follows what differs.
Of that, each key's versions in both branches are walked through in the order of the epochs.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from streamstate.snapshots.change_log import quoted
from streamstate.state_inspect.branches.common import CommonColumns, common_columns
from streamstate.state_inspect.branches.fingerprints import Fingerprint, sums_by_epoch, told_at, versions_between

if TYPE_CHECKING:
    import duckdb

    from streamstate.state_inspect.branches.timelines import Timelines
    from streamstate.state_inspect.recorded import Recorded

__all__ = ["Counts", "Swept", "sweep"]

_KINDS = ("differing", "only_here", "only_there")


@dataclass
class Counts:
    """How many keys differ at one epoch."""

    differing: int = 0
    """Keys that both have, with other values."""
    only_here: int = 0
    only_there: int = 0

    @property
    def total(self) -> int:
        """All of them."""
        return self.differing + self.only_here + self.only_there


@dataclass(frozen=True)
class Swept:
    """One state table of two branches, by epoch; an epoch at which a branch lacks it has no fingerprint there."""

    columns: CommonColumns
    here: dict[int, Fingerprint]
    there: dict[int, Fingerprint]
    counts: dict[int, Counts]


def sweep(lines: Timelines, table: str) -> Swept:
    """Compare a state table of two branches at all epochs.

    Raises:
        InvalidArgumentError: where the table has other keys in one than in the other.
    """
    parts = [lines.stretches(side, table) for side in (0, 1)]
    first_of = [one[0][0].interval_table(table, one[0][1][0]) for one in parts]
    columns = common_columns(first_of[0], first_of[1], table, lines.names)
    sides = [" UNION ALL ".join(_versions(one, epochs, table, columns) for one, epochs in part) for part in parts]
    own, other = (part[0][0].index for part in parts)
    with own.connection() as cursor:
        if own is not other:
            cursor.register("_there_versions", other.query(_in_halves(sides[1])))
            sides[1] = _whole("_there_versions")
        for name, side in zip(("here", "there"), sides, strict=True):
            cursor.execute(f"CREATE TEMP TABLE {name} AS {side}")
        told = [_rows(cursor, sums_by_epoch(f"FROM temp.{name}")) for name in ("here", "there")]
        spans = _rows(cursor, _differing(len(columns.key_columns), max(lines.epochs)))
    at = [[epoch for _, epochs in part for epoch in epochs] for part in parts]
    return Swept(columns, told_at(at[0], told[0]), told_at(at[1], told[1]), _counts(lines.epochs, spans))


def _versions(history: Recorded, epochs: Sequence[int], table: str, columns: CommonColumns) -> str:
    intervals = history.interval_table(table, epochs[0])
    keys = [f"{quoted(name)} AS k{at}" for at, name in enumerate(columns.key_columns)]
    return versions_between(intervals, epochs[0], epochs[-1], columns.types, keys)


def _in_halves(versions: str) -> str:
    """The versions for another database: Arrow has no whole number of 128 bits."""
    halves = f"(_hash128 >> 64)::UBIGINT AS _high, (_hash128 & {2**64 - 1}::UHUGEINT)::UBIGINT AS _low"
    return f"SELECT * EXCLUDE (_hash128), {halves} FROM ({versions})"


def _whole(relation: str) -> str:
    together = f"_high::UHUGEINT * {2**64}::UHUGEINT + _low::UHUGEINT AS _hash128"
    return f"SELECT * EXCLUDE (_high, _low), {together} FROM {relation}"


def _rows(cursor: duckdb.DuckDBPyConnection, sql: str) -> list[dict[str, Any]]:
    return list(cursor.sql(sql).to_arrow_table().to_pylist())


def _differing(keys: int, last: int) -> str:
    """SQL for spans of epochs in which keys differ, and how many in which way."""
    key = "".join(f"k{at}, " for at in range(keys))
    same = "here._hash128 = there._hash128 AND here._begins = there._begins AND here._ends = there._ends"
    counted = {
        "differing": "here <> 0 AND there <> 0",
        "only_here": "there = 0",
        "only_there": "here = 0",
    }
    return (
        f"WITH odd AS (SELECT true AS mine, * FROM temp.here ANTI JOIN temp.there ON {same}"
        f" UNION ALL BY NAME SELECT false AS mine, * FROM temp.there ANTI JOIN temp.here ON {same}),"
        # What ends is 0, which is less than what begins at the same epoch.
        f" events AS (SELECT {key}epoch, max(h) FILTER (mine) AS here, max(h) FILTER (NOT mine) AS there FROM"
        f" (SELECT mine, {key}_begins AS epoch, _hash128 AS h FROM odd"
        f" UNION ALL SELECT mine, {key}_ends, 0::UHUGEINT FROM odd) GROUP BY {key}epoch),"
        f" held AS (SELECT epoch, coalesce(lead(epoch) OVER one, {last + 1}) AS until,"
        " coalesce(last_value(here IGNORE NULLS) OVER one, 0) AS here,"
        " coalesce(last_value(there IGNORE NULLS) OVER one, 0) AS there"
        f" FROM events WINDOW one AS (PARTITION BY {key.rstrip(', ')} ORDER BY epoch))"
        f" SELECT epoch, until, {', '.join(f'count(*) FILTER ({how}) AS {name}' for name, how in counted.items())}"
        " FROM held WHERE here <> there GROUP BY epoch, until"
    )


def _counts(epochs: Sequence[int], spans: Sequence[Mapping[str, Any]]) -> dict[int, Counts]:
    steps = [Counts() for _ in range(len(epochs) + 1)]
    for span in spans:
        for place, sign in ((bisect_left(epochs, span["epoch"]), 1), (bisect_left(epochs, span["until"]), -1)):
            for kind in _KINDS:
                setattr(steps[place], kind, getattr(steps[place], kind) + sign * span[kind])
    found, now = {}, Counts()
    for epoch, step in zip(epochs, steps, strict=False):
        now = Counts(*(getattr(now, kind) + getattr(step, kind) for kind in _KINDS))
        found[epoch] = now
    return found
