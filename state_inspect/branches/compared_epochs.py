"""The epochs and tables at which two branches are compared, and how many keys differ at each epoch.

All epochs of a table are counted at once. Versions that are the same in both branches, from and to the same epochs,
are set aside first, so the cost follows what differs. Of the rest, each key's versions are merged by epoch.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import numpy as np

from streamstate.errors import InvalidArgumentError, UnknownEpochError
from streamstate.snapshots.store.duckdb_sql import quoted
from streamstate.state_inspect.branches.ancestors import branch_names, by_owner, epoch_owners, same_branch
from streamstate.state_inspect.branches.branch_diff import CommonColumns, common_columns, common_table
from streamstate.state_inspect.branches.fingerprints import (
    Fingerprint,
    fingerprints_at,
    sums_by_epoch,
    versions_between,
)
from streamstate.state_inspect.captured_query import QueryHistory
from streamstate.state_inspect.snapshot import Snapshot, own_snapshot, snapshot_at

KINDS = ("differing", "only_here", "only_there")
"""Kinds of differing keys: both branches have the key, with different values, or only one has it."""


@dataclass(frozen=True)
class ComparedEpochs:
    """The snapshots of two branches at the same epochs."""

    names: tuple[str, str]
    here: dict[int, Snapshot]
    """Ascending by epoch, as is ``there``."""
    there: dict[int, Snapshot]
    tables: list[str]
    """The state tables to compare."""
    left_out: tuple[str, ...]
    """State tables that only one of them has, in words."""

    @property
    def epochs(self) -> list[int]:
        """The epochs to compare."""
        return list(self.here)

    def owners(self, side: int, table: str) -> list[tuple[QueryHistory, list[int]]]:
        """Return the epochs of one side (0 or 1) at which it has a table, grouped by the history that has them."""
        snapshots = (self.here, self.there)[side].values()
        return by_owner((snapshot.epoch, snapshot.history) for snapshot in snapshots if table in snapshot.tables())


def compared_epochs(
    here: QueryHistory, there: QueryHistory, epochs: Sequence[int] | None, tables: Sequence[str] | None
) -> ComparedEpochs:
    """Return the snapshots and tables by which two histories are compared; see :meth:`History.compare`.

    Without ``epochs`` those that both have and do not share, without ``tables`` those that both have.
    """
    if same_branch(here, there):
        raise InvalidArgumentError(
            f"{here.name} cannot be compared with itself.\nPass the history of another query, such as a fork; to"
            " compare two epochs of the same query use diff(a, b)."
        )
    names = branch_names(here, there)
    sides = [{epoch: snapshot_at(history, epoch) for epoch in epochs or ()} for history in (here, there)]
    if epochs is None:
        sides = _common_epochs(here, there, names)
    of = [list(dict.fromkeys(name for snapshot in side.values() for name in snapshot.tables())) for side in sides]
    chosen = [common_table(name, of[0], of[1], names) for name in tables or ()]
    if tables is None:
        chosen = [name for name in of[0] if name in of[1]]
        if not chosen and (of[0] or of[1]):
            common_table(None, of[0], of[1], names)  # raises and lists the tables of each
    left_out = [f"{name} (only in {names[side]})" for side in (0, 1) for name in of[side] if name not in of[1 - side]]
    return ComparedEpochs(names, sides[0], sides[1], chosen, tuple(left_out if tables is None else ()))


def _common_epochs(here: QueryHistory, there: QueryHistory, names: Sequence[str]) -> list[dict[int, Snapshot]]:
    """Return the snapshots at the epochs that both have, without those that they share."""
    owners = epoch_owners(here), epoch_owners(there)
    common = [epoch for epoch in owners[0] if epoch in owners[1]]
    diverged = [epoch for epoch in common if not same_branch(owners[0][epoch], owners[1][epoch])]
    if not diverged:
        listing = "\n".join(f"  {name}: {_span(side)}" for name, side in zip(names, owners, strict=True))
        raise UnknownEpochError(
            f"{names[0]} and {names[1]} have no epochs of their own in common.\nTheir captured epochs:\n{listing}"
        )
    return [{epoch: own_snapshot(side[epoch], epoch) for epoch in diverged} for side in owners]


def _span(owners: dict[int, QueryHistory]) -> str:
    if not owners:
        return "none yet"
    return f"{min(owners)} to {max(owners)}" if len(owners) > 1 else str(min(owners))


@dataclass(frozen=True)
class ComparedTable:
    """One state table of two branches, by epoch. A branch that lacks the table at an epoch has no fingerprint there."""

    columns: CommonColumns
    here: dict[int, Fingerprint]
    there: dict[int, Fingerprint]
    counts: dict[int, list[int]]
    """The number of differing keys, in each of :data:`KINDS`."""


def compare_table(compared: ComparedEpochs, table: str) -> ComparedTable:
    """Compare a state table of two branches at all epochs."""
    owners = [compared.owners(side, table) for side in (0, 1)]
    newest = [side[0][0].recorded.interval_table(table, side[0][1][0], side[0][1][-1]) for side in owners]
    columns = common_columns(newest[0], newest[1], table, compared.names)
    sides = [" UNION ALL ".join(_versions(history, at, table, columns) for history, at in side) for side in owners]
    here, there = (side[0][0].recorded.index for side in owners)
    with here.connection() as cursor:
        if here is not there:
            cursor.register("_there_versions", there.query(_in_halves(sides[1])))
            sides[1] = _rejoined("_there_versions")
        for name, side in zip(("here", "there"), sides, strict=True):
            cursor.execute(f"CREATE TEMP TABLE {name} AS {side}")
        sums = [_rows(cursor, sums_by_epoch(f"FROM temp.{name}")) for name in ("here", "there")]
        spans = _rows(cursor, _differing(len(columns.key_columns), max(compared.epochs)))
    at = [[epoch for _, epochs in side for epoch in epochs] for side in owners]
    fingerprints = [fingerprints_at(epochs, found) for epochs, found in zip(at, sums, strict=True)]
    return ComparedTable(columns, fingerprints[0], fingerprints[1], _counts(compared.epochs, spans))


def _versions(history: QueryHistory, epochs: Sequence[int], table: str, columns: CommonColumns) -> str:
    intervals = history.recorded.interval_table(table, epochs[0], epochs[-1])
    keys = [f"{quoted(name)} AS k{at}" for at, name in enumerate(columns.key_columns)]
    return versions_between(intervals, epochs[0], epochs[-1], columns.types, keys)


def _in_halves(versions: str) -> str:
    """Return the versions for another database: Arrow has no 128-bit integers."""
    halves = f"(_hash128 >> 64)::UBIGINT AS _high, (_hash128 & {2**64 - 1}::UHUGEINT)::UBIGINT AS _low"
    return f"SELECT * EXCLUDE (_hash128), {halves} FROM ({versions})"


def _rejoined(relation: str) -> str:
    together = f"_high::UHUGEINT * {2**64}::UHUGEINT + _low::UHUGEINT AS _hash128"
    return f"SELECT * EXCLUDE (_high, _low), {together} FROM {relation}"


def _rows(cursor: duckdb.DuckDBPyConnection, sql: str) -> list[dict[str, Any]]:
    return list(cursor.sql(sql).to_arrow_table().to_pylist())


def _differing(keys: int, last: int) -> str:
    """Return SQL for spans of epochs in which keys differ, and how many differ in which way."""
    key = "".join(f"k{at}, " for at in range(keys))
    same = "here._hash128 = there._hash128 AND here._begins = there._begins AND here._ends = there._ends"
    counted = dict(zip(KINDS, ("here <> 0 AND there <> 0", "there = 0", "here = 0"), strict=True))
    return (
        f"WITH unmatched AS (SELECT true AS mine, * FROM temp.here ANTI JOIN temp.there ON {same}"
        f" UNION ALL BY NAME SELECT false AS mine, * FROM temp.there ANTI JOIN temp.here ON {same}),"
        # The end of a version counts as 0, which is less than a version that begins at the same epoch.
        f" events AS (SELECT {key}epoch, max(h) FILTER (mine) AS here, max(h) FILTER (NOT mine) AS there FROM"
        f" (SELECT mine, {key}_begins AS epoch, _hash128 AS h FROM unmatched"
        f" UNION ALL SELECT mine, {key}_ends, 0::UHUGEINT FROM unmatched) GROUP BY {key}epoch),"
        f" held AS (SELECT epoch, coalesce(lead(epoch) OVER of_key, {last + 1}) AS until,"
        " coalesce(last_value(here IGNORE NULLS) OVER of_key, 0) AS here,"
        " coalesce(last_value(there IGNORE NULLS) OVER of_key, 0) AS there"
        f" FROM events WINDOW of_key AS (PARTITION BY {key.rstrip(', ')} ORDER BY epoch))"
        f" SELECT epoch, until, {', '.join(f'count(*) FILTER ({how}) AS {name}' for name, how in counted.items())}"
        " FROM held WHERE here <> there GROUP BY epoch, until"
    )


def _counts(epochs: Sequence[int], spans: Sequence[Mapping[str, Any]]) -> dict[int, list[int]]:
    steps = np.zeros((len(epochs) + 1, len(KINDS)), dtype="int64")
    for span in spans:
        keys = [span[kind] for kind in KINDS]
        steps[bisect_left(epochs, span["epoch"])] += keys
        steps[bisect_left(epochs, span["until"])] -= keys
    return dict(zip(epochs, steps.cumsum(axis=0).tolist(), strict=False))
