"""Why keys changed: the events of some keys, each with its cause where it can be known."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from streamstate.snapshots.change_log import operator_of, quoted, same
from streamstate.snapshots.operators import HASH, NO_KEY, POSITION
from streamstate.state_inspect.differences.cause_rules import INPUT, UNKNOWN, Event, Moment, Rule, rule_of
from streamstate.state_inspect.temporal_index.few_rows import FEW_KEYS, hashed_as

if TYPE_CHECKING:
    from streamstate.snapshots.manifest import Entry
    from streamstate.state_inspect.temporal_index.index import Index
    from streamstate.state_inspect.temporal_index.interval_table import IntervalTable

_EPOCH_ZERO = datetime(1970, 1, 1, tzinfo=UTC)
_TIMER_COLUMN = "expiration_timestamp_ms"
# Where state says when it is to go, in milliseconds: timeouts, times to live, and timers themselves.
_EXPIRY_COLUMNS = ("timeoutTimestamp", "ttlExpirationMs", _TIMER_COLUMN)


@dataclass(frozen=True)
class Caused:
    """One change of a key and its cause."""

    epoch: int
    removed: bool
    same: bool
    """It was written again with the values that it had."""
    cause: str
    version: Mapping[str, Any]
    """What was written, or removed: ``_valid_from``, ``_valid_to`` and the columns that were asked for."""


@dataclass(frozen=True)
class Keys:
    """Some keys of a state table."""

    name: str
    """The state table."""
    table: IntervalTable
    rows: pa.Table
    """``_row`` (any number), ``_hash`` and the key columns of each."""
    columns: tuple[str, ...] = ()
    """Further columns of the versions to give, as SQL."""


class Causes:
    """Finds the causes of changes in the state tables of one query.

    Args:
        index: where the interval tables are.
        entries: the manifest.
        intervals: gives the interval table of a state table, with the epochs from one on.
    """

    def __init__(self, index: Index, entries: Sequence[Entry], intervals: Callable[[str, int], IntervalTable]) -> None:
        self._index = index
        self._intervals = intervals
        self._epochs = [entry.epoch for entry in entries]
        self._moments = dict(_moments(entries))
        self._tables = list(dict.fromkeys(name for entry in entries for name in entry.tables))

    def of(self, keys: Keys, first: int, last: int) -> dict[int, list[Caused]]:
        """The changes of some keys after one epoch up to another, by the keys' numbers, ascending by epoch."""
        operator = operator_of(keys.table.schema)
        timed = operator is not None and operator.time_mode in ("EventTime", "ProcessingTime")
        timers = self._timers_of(keys.name, first) if timed else None
        standing = self._standing_timers(timers, keys, first, last) if timed else {}
        rule = rule_of(operator, timers=keys.name == timers)
        found: dict[int, list[Caused]] = {}
        rows = self._index.query(_versions(keys, first, last), frames={"wanted": keys.rows})
        for row, versions in _by_row(rows):
            changes = _changes(self._at_kept_epochs(versions), first, last)
            found[row] = [self._caused(one, rule, keys.table, _before(standing, row, one.epoch)) for one in changes]
        return found

    def _caused(self, change: _Change, rule: Rule, table: IntervalTable, timers: tuple[int, ...] | None) -> Caused:
        moment = self._moments.get(change.epoch)
        if moment is None or change.epoch in table.starts:
            return Caused(change.epoch, change.removed, same=False, cause=UNKNOWN, version=change.version)
        before = change.before or {}
        written = None if _at_start(before, table) else self._moments.get(before.get("_valid_from", -1))
        event = Event(
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
        cause = rule(event, moment)
        if cause == INPUT and moment.no_input:
            cause = UNKNOWN
        return Caused(change.epoch, change.removed, change.same, cause, change.version)

    def _at_kept_epochs(self, versions: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """A key's versions, those of dropped epochs as the next epoch that stays sees them.

        A run of retention drops epochs from the manifest a moment before it rewrites the log.
        """

        def seen(epoch: int) -> int:
            at = bisect_left(self._epochs, epoch)
            return self._epochs[at] if at < len(self._epochs) else epoch

        moved = [one | {name: seen(one[name]) for name in ("_valid_from", "_valid_to")} for one in versions]
        return [one for one in moved if one["_valid_from"] != one["_valid_to"]]

    def _timers_of(self, name: str, first: int) -> str | None:
        """The table of registered timers of the operator that a state table belongs to."""
        wanted = f"{_operator_id(name)}_timers"
        named = [one for one in self._tables if one.startswith(wanted)]
        return next((one for one in named if _is_timers(self._intervals(one, first))), None)

    def _standing_timers(self, timers: str | None, keys: Keys, first: int, last: int) -> _Standing:
        """For each key its timers, as epochs from and to which they stood; None where there is no table of timers."""
        if timers is None:
            return None
        held = self._intervals(timers, first)
        match = same("wanted", "held", held.key_columns[:-1])
        time = f"held.{quoted(held.key_columns[-1])}"
        sql = (
            f"SELECT _row, held._valid_from, held._valid_to, {time} AS time"
            f" FROM wanted JOIN {held.relation} AS held ON {match}"
            f" WHERE held._valid_to > {first} AND held._valid_from <= {last}"
        )
        found: dict[int, list[_Timer]] = {}
        for one in self._index.query(sql, frames={"wanted": keys.rows}).to_pylist():
            found.setdefault(one["_row"], []).append((one["_valid_from"], one["_valid_to"], one["time"]))
        return found


_Timer = tuple[int, int, int]
"""The epochs from and to which a timer stood, and when it was to come."""
_Standing = Mapping[int, Sequence[_Timer]] | None


def _before(standing: _Standing, row: int, epoch: int) -> tuple[int, ...] | None:
    """When the timers of a key were to come that stood before an epoch."""
    if standing is None:
        return None
    return tuple(time for start, end, time in standing.get(row, ()) if start < epoch <= end)


@dataclass(frozen=True)
class _Change:
    """A change as the versions tell it."""

    epoch: int
    version: dict[str, Any]
    """The version that it wrote or removed."""
    before: dict[str, Any] | None
    """The version that it replaced or removed."""
    removed: bool = False
    same: bool = False
    same_but_matched: bool = False


def _changes(versions: Sequence[dict[str, Any]], first: int, last: int) -> Iterator[_Change]:
    """The changes of one key after an epoch up to another."""
    for at, version in enumerate(versions):
        start, end = version["_valid_from"], version["_valid_to"]
        before = versions[at - 1] if at and versions[at - 1]["_valid_to"] == start else None
        if first < start <= last:
            yield _Change(start, version, before, same=version["_same"], same_but_matched=version["_same_but_matched"])
        replaced = at + 1 < len(versions) and versions[at + 1]["_valid_from"] == end
        if not replaced and first < end <= last:
            yield _Change(end, version, version, removed=True)


def _at_start(version: Mapping[str, Any], table: IntervalTable) -> bool:
    """Whether it is not known which epoch wrote a version."""
    return version.get("_valid_from") in {*table.starts, table.low}


def _versions(keys: Keys, first: int, last: int) -> str:
    """SQL for the versions of some keys that held after an epoch or began up to another, with what speaks of causes."""
    table = keys.table
    values = table.value_columns
    if (
        values
        and re.fullmatch(r"matched(_\d+)?", values[-1])
        and pa.types.is_boolean(table.schema.field(values[-1]).type)
    ):
        values = values[:-1]  # a join notes there whether a row has met a partner
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
        f"WITH versions AS (SELECT wanted._row, held.* FROM wanted JOIN ({held}) AS held"
        f" ON {same('wanted', 'held', [HASH, *table.key_columns])})"
        f" SELECT _row, _valid_from, _valid_to, {', '.join(columns)}"
        " FROM versions ORDER BY _row, _valid_from"
    )


def _repeats(values: Sequence[str], window: str, follows: str) -> str:
    """SQL for whether a version has the values of the one that it replaced."""
    equal = [f"lag({quoted(name)}) {window} IS NOT DISTINCT FROM {quoted(name)}" for name in values]
    return f"({' AND '.join([follows, *equal])})"


def _expiry(table: IntervalTable) -> str:
    named = (one for one in _EXPIRY_COLUMNS if one in table.columns and pa.types.is_int64(table.schema.field(one).type))
    found = next(named, None)
    return quoted(found) if found else "NULL::BIGINT"


def _session_end(table: IntervalTable) -> str:
    """The end in the struct that a session window's row has, whatever it is called."""
    for name in table.value_columns:
        kind = table.schema.field(name).type
        if (
            pa.types.is_struct(kind)
            and [one.name for one in kind] == ["start", "end"]
            and pa.types.is_timestamp(kind[1].type)
        ):
            return f'CAST(ceil(epoch_us({quoted(name)}."end") / 1000) AS BIGINT)'
    return "NULL::BIGINT"


def _by_row(rows: pa.Table) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    gathered: dict[int, list[dict[str, Any]]] = {}
    for one in rows.to_pylist():
        gathered.setdefault(one["_row"], []).append(one)
    yield from gathered.items()


def _moments(entries: Sequence[Entry]) -> Iterator[tuple[int, Moment]]:
    only = len({_operator_id(name) for entry in entries for name in entry.tables}) == 1
    before: Entry | None = None
    for entry in entries:
        if entry.captured:
            single = entry.epoch == 0 or (before is not None and before.captured and before.epoch == entry.epoch - 1)
            yield (
                entry.epoch,
                Moment(
                    entry.epoch,
                    watermark=_watermark(entry),
                    began=None if entry.began_at is None else _ms(entry.began_at),
                    # Another operator may hand rows on that it held back, with nothing read.
                    no_input=only and single and _read_nothing(entry, before),
                    single=single,
                    only_operator=only,
                ),
            )
        before = entry


def _read_nothing(entry: Entry, before: Entry | None) -> bool:
    """Whether an epoch ends where the one before it ended in every source."""
    stood = entry.offsets is not None and before is not None and entry.offsets == before.offsets
    return entry.input_rows == 0 or stood


def _watermark(entry: Entry) -> int | None:
    """In milliseconds, 0 where there was none; None where Spark had purged what said so."""
    if entry.watermark is not None:
        return _ms(entry.watermark)
    return None if entry.offsets is None else 0


def _ms(moment: datetime) -> int:
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return (aware - _EPOCH_ZERO) // timedelta(milliseconds=1)


def _operator_id(table: str) -> str:
    """The operator's part of a table's name, such as ``op0``."""
    found = re.match(r"op\d+", table)
    return found[0] if found else table


def _is_timers(table: IntervalTable) -> bool:
    return not table.value_columns and table.key_columns[-1].startswith(_TIMER_COLUMN) and len(table.key_columns) > 1
