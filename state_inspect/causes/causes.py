"""Causes of changes: the changes of some keys, each with its cause if that can be known."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from operator import itemgetter
from typing import Any

import pyarrow as pa

from streamstate.snapshots.checkpoint.state_tables import HASH, NO_KEY, POSITION
from streamstate.snapshots.store.changelog import operator_of
from streamstate.snapshots.store.duckdb_sql import quoted, same
from streamstate.snapshots.store.entries import Entries
from streamstate.state_inspect.causes.cause_rules import INPUT, UNKNOWN, EpochFacts, KeyEvent, Rule, rule_of
from streamstate.state_inspect.differences.diff_sql import TableColumns
from streamstate.state_inspect.temporal_index.index import Index
from streamstate.state_inspect.temporal_index.interval_table import IntervalTable
from streamstate.state_inspect.temporal_index.small_append import FEW_KEYS, hashed_as
from streamstate.state_inspect.unix_time import milliseconds

TIMEOUT, TTL, TIMER = "timeoutTimestamp", "ttlExpirationMs", "expiration_timestamp_ms"
"""Spark's columns with the time at which a row expires, in milliseconds: of ``applyInPandasWithState``, of a variable
with a time to live, of registered timers."""


@dataclass(frozen=True)
class Caused:
    """One change of a key and its cause."""

    epoch: int
    removed: bool
    same: bool
    """True if it was written again with the same values."""
    cause: str
    version: Mapping[str, Any]
    """The version that was written or removed: ``_valid_from``, ``_valid_to`` and the requested columns."""


@dataclass(frozen=True)
class KeyRows:
    """Keys of a state table, numbered."""

    name: str
    """The state table."""
    table: IntervalTable
    rows: pa.Table
    """``_row`` (any number), ``_hash`` and the key columns of each."""
    columns: tuple[str, ...] = ()
    """Additional columns of the versions, as SQL."""


class Causes:
    """Finds the causes of changes in the state tables of one query."""

    def __init__(
        self,
        index: Index,
        entries: Entries,
        columns: Callable[[str], TableColumns],
        versions_of: Callable[[str, pa.Table, int, int], IntervalTable],
    ) -> None:
        self._index = index
        self._columns = columns
        self._versions_of = versions_of
        self._epochs = entries.epochs.tolist()
        self._facts = _EpochFactsOf(entries)
        self._tables = entries.tables

    def of(self, keys: KeyRows, first: int, last: int) -> dict[int, list[Caused]]:
        """Return the changes of some keys after epoch ``first`` up to ``last``, ascending, by the keys' numbers."""
        if not keys.table.covers(first, last):
            only = keys.rows.select(keys.table.key_columns)
            keys = replace(keys, table=self._versions_of(keys.name, only, first, last))
        operator = operator_of(keys.table.schema)
        timed = operator is not None and operator.time_mode in ("EventTime", "ProcessingTime")
        timers = self._timers_of(keys.name) if timed else None
        standing = self._standing_timers(timers, keys, first, last) if timed else {}
        rule = rule_of(operator, timers=keys.name == timers)
        found: dict[int, list[Caused]] = {}
        rows = self._index.query(_versions(keys, first, last), frames={"keys": keys.rows})
        for row, versions in groupby(rows.to_pylist(), key=itemgetter("_row")):
            changes = _changes(self._at_kept_epochs(versions), first, last)
            found[row] = [
                self._caused(change, rule, keys.table, _before(standing, row, change.epoch)) for change in changes
            ]
        return found

    def _caused(self, change: _Change, rule: Rule, table: IntervalTable, timers: tuple[int, ...] | None) -> Caused:
        facts = self._facts.get(change.epoch)
        if facts is None or change.epoch in table.starts:
            return Caused(change.epoch, change.removed, same=False, cause=UNKNOWN, version=change.version)
        before = change.before or {}
        written = None if _at_start(before, table) else self._facts.get(before.get("_valid_from", -1))
        event = KeyEvent(
            change.epoch,
            removed=change.removed,
            added=change.before is None,
            same=change.same,
            same_but_matched=change.same_but_matched,
            keyed=table.key_columns != [NO_KEY],
            positional=POSITION in table.key_columns,
            ends=before.get("_ends"),
            expired=before.get("_expires"),
            written=written,
            timers=timers,
        )
        cause = rule(event, facts)
        if cause == INPUT and facts.no_input:
            cause = UNKNOWN
        return Caused(change.epoch, change.removed, change.same, cause, change.version)

    def _at_kept_epochs(self, versions: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return a key's versions; those of dropped epochs as seen by the next epoch that is kept.

        Retention drops epochs from the manifest shortly before it rewrites the changelog.
        """

        def seen(epoch: int) -> int:
            at = bisect_left(self._epochs, epoch)
            return self._epochs[at] if at < len(self._epochs) else epoch

        moved = [version | {name: seen(version[name]) for name in ("_valid_from", "_valid_to")} for version in versions]
        return [version for version in moved if version["_valid_from"] != version["_valid_to"]]

    def _timers_of(self, name: str) -> str | None:
        """Return the table of registered timers of the operator that a state table belongs to."""
        prefix = f"{_operator_id(name)}_timers"
        named = [table for table in self._tables if table.startswith(prefix)]
        return next((table for table in named if _is_timers(self._columns(table))), None)

    def _standing_timers(self, timers: str | None, keys: KeyRows, first: int, last: int) -> _Standing:
        """For each key its timers, with the epochs from and to which they existed; None without a table of timers."""
        if timers is None:
            return None
        shared = self._columns(timers).key_columns[:-1]
        held = self._versions_of(timers, keys.rows.select(shared), first, last)
        match = same("keys", "held", shared)
        time = f"held.{quoted(held.key_columns[-1])}"
        sql = (
            f"SELECT _row, held._valid_from, held._valid_to, {time} AS time"
            f" FROM keys JOIN {held.relation} AS held ON {match}"
            f" WHERE held._valid_to > {first} AND held._valid_from <= {last}"
        )
        found: dict[int, list[_Timer]] = {}
        for row in self._index.query(sql, frames={"keys": keys.rows}).to_pylist():
            found.setdefault(row["_row"], []).append((row["_valid_from"], row["_valid_to"], row["time"]))
        return found


_Timer = tuple[int, int, int]
"""The epochs from and to which a timer existed, and when it was due."""
_Standing = Mapping[int, Sequence[_Timer]] | None


def _before(standing: _Standing, row: int, epoch: int) -> tuple[int, ...] | None:
    """Return the due times of the timers that a key had before an epoch."""
    if standing is None:
        return None
    return tuple(time for start, end, time in standing.get(row, ()) if start < epoch <= end)


@dataclass(frozen=True)
class _Change:
    """A change as seen in the versions."""

    epoch: int
    version: dict[str, Any]
    """The version that it wrote or removed."""
    before: dict[str, Any] | None
    """The version that it replaced or removed."""
    removed: bool = False
    same: bool = False
    same_but_matched: bool = False


def _changes(versions: Sequence[dict[str, Any]], first: int, last: int) -> Iterator[_Change]:
    """Yield the changes of one key after epoch ``first`` up to ``last``."""
    for at, version in enumerate(versions):
        start, end = version["_valid_from"], version["_valid_to"]
        before = versions[at - 1] if at and versions[at - 1]["_valid_to"] == start else None
        if first < start <= last:
            yield _Change(start, version, before, same=version["_same"], same_but_matched=version["_same_but_matched"])
        replaced = at + 1 < len(versions) and versions[at + 1]["_valid_from"] == end
        if not replaced and first < end <= last:
            yield _Change(end, version, version, removed=True)


def _at_start(version: Mapping[str, Any], table: IntervalTable) -> bool:
    """Return whether the epoch that wrote a version is unknown."""
    return version.get("_valid_from") in {*table.starts, table.low}


def _versions(keys: KeyRows, first: int, last: int) -> str:
    """Return SQL for the versions of some keys between two epochs, with the columns that determine causes."""
    table = keys.table
    values = table.value_columns
    mark = table.schema.field(values[-1]) if values else None
    if mark is not None and re.fullmatch(r"matched(_\d+)?", mark.name) and pa.types.is_boolean(mark.type):
        values = values[:-1]  # a join records there whether a row has been matched
    window = "OVER (PARTITION BY _row ORDER BY _valid_from)"
    before = f"lag(_valid_to) {window} IS NOT DISTINCT FROM _valid_from"
    columns = [
        f"{_repeats(table.value_columns, window, before)} AS _same",
        f"{_repeats(values, window, before)} AS _same_but_matched",
        f"{_expiry(table)} AS _expires",
        f"{_session_end(table)} AS _ends",
        *keys.columns,
    ]
    held = f"SELECT * FROM {table.relation} WHERE _valid_to > {first} AND _valid_from <= {last}"
    if keys.rows.num_rows <= FEW_KEYS:
        held += f" AND {hashed_as(keys.rows[HASH].to_pylist(), table.versions)}"
    return (
        f"WITH versions AS (SELECT keys._row, held.* FROM keys JOIN ({held}) AS held"
        f" ON {same('keys', 'held', [HASH, *table.key_columns])})"
        f" SELECT _row, _valid_from, _valid_to, {', '.join(columns)}"
        " FROM versions ORDER BY _row, _valid_from"
    )


def _repeats(values: Sequence[str], window: str, follows: str) -> str:
    """Return SQL for whether a version has the values of the version that it replaced."""
    equal = [f"lag({quoted(name)}) {window} IS NOT DISTINCT FROM {quoted(name)}" for name in values]
    return f"({' AND '.join([follows, *equal])})"


def _expiry(table: IntervalTable) -> str:
    longs = {name for name in table.columns if pa.types.is_int64(table.schema.field(name).type)}
    found = next((name for name in (TIMEOUT, TTL, TIMER) if name in longs), None)
    return quoted(found) if found else "NULL::BIGINT"


def _session_end(table: IntervalTable) -> str:
    """Return SQL for the end of a session window, which is in a struct of any name."""
    for name in table.value_columns:
        kind = table.schema.field(name).type
        names = [field.name for field in kind] if pa.types.is_struct(kind) else []
        if names == ["start", "end"] and pa.types.is_timestamp(kind[1].type):
            return f'CAST(ceil(epoch_us({quoted(name)}."end") / 1000) AS BIGINT)'
    return "NULL::BIGINT"


class _EpochFactsOf:
    """The captured epochs' facts for the rules, each computed on first use."""

    def __init__(self, entries: Entries) -> None:
        self._entries = entries
        self._known: dict[int, EpochFacts | None] = {}

    @cached_property
    def _is_only_operator(self) -> bool:
        return len({_operator_id(name) for name in self._entries.tables}) == 1

    def get(self, epoch: int) -> EpochFacts | None:
        if epoch not in self._known:
            self._known[epoch] = self._found(epoch)
        return self._known[epoch]

    def _found(self, epoch: int) -> EpochFacts | None:
        entries = self._entries
        at = entries.place(epoch)
        if at is None or not entries.is_captured[at]:
            return None
        single = epoch == 0 or (at > 0 and bool(entries.is_captured[at - 1]) and entries.epochs[at - 1] == epoch - 1)
        offsets, began, watermark = (entries.values(name) for name in ("offsets", "began_at", "watermark"))
        unchanged = at > 0 and offsets[at] is not None and offsets[at] == offsets[at - 1]
        read_nothing = entries.values("input_rows")[at] == 0 or unchanged
        return EpochFacts(
            epoch,
            # 0 if there was none; None if Spark had purged it.
            watermark=milliseconds(watermark[at]) if watermark[at] else None if offsets[at] is None else 0,
            began=None if began[at] is None else milliseconds(began[at]),
            # Another operator may emit rows that it held back, although nothing was read.
            no_input=self._is_only_operator and single and read_nothing,
            single=single,
            only_operator=self._is_only_operator,
        )


def _operator_id(table: str) -> str:
    """Return the operator's part of a table's name, such as ``op0``."""
    found = re.match(r"op\d+", table)
    return found[0] if found else table


def _is_timers(table: TableColumns) -> bool:
    return not table.value_columns and table.key_columns[-1].startswith(TIMER) and len(table.key_columns) > 1
