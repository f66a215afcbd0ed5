"""The part of a manifest that an overview shows, so that the manifest need not be read.

A summary follows from the manifest's entries alone. Each commit of the manifest keeps the one of the version that it
makes, in its own log entry: there is no summary without its version, and none outlives it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from streamstate.snapshots.store.delta.log_end import UNREADABLE, LogEnd
from streamstate.snapshots.store.entries import Entries, Entry
from streamstate.snapshots.store.epoch_progress import RECENT, progress_in_store, stands_still
from streamstate.snapshots.store.names import is_base_name

SUMMARY = "streamstate/summary"
"""The name under which a commit of the manifest keeps its summary."""

_FORMAT = 1
_NEWEST = 10
"""The newest epochs whose changes are counted."""
WINDOW = 100
"""The newest captured epochs in which a state may grow."""
FEWEST = 5
"""The fewest epochs that show it."""
_MOST = 1 << 62
_LONGEST = 100_000
"""Characters of a summary that is kept."""
_BEGIN = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class NewestEpoch:
    """The newest captured epoch."""

    epoch: int
    committed_at: datetime | None
    captured_at: datetime
    watermark: datetime | None
    rows: Mapping[str, int | None]
    """The rows of each state table; None if they are not counted."""


@dataclass(frozen=True)
class Growth:
    """The rows of the state tables at the first, the middle and the last of the newest epochs."""

    epochs: tuple[int, int, int]
    rows: Mapping[str, tuple[int, int, int]]
    """By state table; one that lacks one of the epochs, or whose rows are not counted there, is left out."""

    @property
    def any_grew(self) -> bool:
        """True if a table has more rows at the last of the epochs than at the middle one."""
        return any(last > middle for _, middle, last in self.rows.values())

    def of(self, tables: Sequence[str]) -> tuple[int, int, int] | None:
        """Return the rows of some tables together; None if those of one are not known."""
        found = [self.rows[table] for table in tables if table in self.rows]
        if len(found) < len(tables) or not found:
            return None
        first, middle, last = map(sum, zip(*found, strict=True))
        return first, middle, last


@dataclass(frozen=True)
class ManifestSummary:
    """The part of a manifest that an overview shows."""

    epochs: int = 0
    """The number of epochs, captured or not."""
    captured: int = 0
    first: int | None = None
    last: int | None = None
    """The first and the last epoch, captured or not; None if there is none."""
    generation: int = 0
    """The number of runs of retention."""
    newest: NewestEpoch | None = None
    changes: int | None = None
    """Rows of state that an epoch changes, the mean of the newest; None if none of those is captured."""
    tables: tuple[str, ...] = ()
    """All state tables that any epoch has, in the order in which they appeared."""
    growth: Growth | None = None
    """None with few captured epochs."""
    stands_still: bool = False
    """True if the watermark does not move, for unusually long, or if the newest epoch leaves none."""
    has_watermark: bool = False
    """True if the newest epoch leaves a watermark."""

    @property
    def state(self) -> object:
        """A value that changes with the epochs."""
        return None if not self.epochs else (self.epochs, self.first, self.last, self.generation)

    @classmethod
    def of(cls, entries: Entries) -> ManifestSummary:
        """Return the summary of a manifest's entries."""
        if not entries:
            return cls()
        recent = entries.newest_of(RECENT)
        progress = progress_in_store(recent) or progress_in_store(entries)
        return cls(
            len(entries),
            int(entries.is_captured.sum()),
            int(entries.epochs[0]),
            int(entries.epochs[-1]),
            entries.generation,
            _newest(recent) or _newest(entries),
            _mean_changes(recent[-_NEWEST:]),
            tuple(entries.tables),
            _growth(entries),
            stands_still(entries, progress),
            bool(progress) and progress[-1].watermark is not None,
        )

    def kept(self) -> dict[str, str]:
        """Return the metadata of the commit of the version that it summarizes; none if it would be long."""
        text = json.dumps({"format": _FORMAT, **asdict(self)}, default=_microseconds, separators=(",", ":"))
        return {SUMMARY: text} if len(text) <= _LONGEST else {}

    @classmethod
    def from_json(cls, text: str) -> ManifestSummary:
        """Return a summary from the text that a commit keeps.

        Raises:
            ValueError, LookupError, TypeError: the text is not that of a summary.
        """
        found = json.loads(text) if len(text) <= _LONGEST else None
        if not isinstance(found, dict) or found.pop("format") != _FORMAT:
            raise ValueError("no summary, or one of another version")
        newest, growth = found.pop("newest"), found.pop("growth")
        tables = tuple(found.pop("tables"))
        summary = cls(
            newest=None if newest is None else _newest_from(newest),
            growth=None if growth is None else _growth_from(growth),
            tables=tables,
            **found,
        )
        if not summary._is_sound():
            raise ValueError("a summary that contradicts itself")
        return summary

    def _is_sound(self) -> bool:
        """Return whether the values have their types, and fit each other."""
        newest, growth = self.newest, self.growth
        rows = {} if newest is None else newest.rows
        grown = {} if growth is None else growth.rows
        counts: list[object] = [self.epochs, self.captured, self.generation]
        counts += [number for number in (*rows.values(), self.first, self.last, self.changes) if number is not None]
        counts += [number for all_of in grown.values() for number in all_of]
        counts += () if newest is None else (newest.epoch,)
        counts += () if growth is None else growth.epochs
        return (
            all(isinstance(number, int) and 0 <= number < _MOST for number in counts)
            and all(map(is_base_name, self.tables))
            and {*rows, *grown} <= {*self.tables}
            and self.captured <= self.epochs
            and (newest is None) == (self.captured == 0)
            and {type(self.stands_still), type(self.has_watermark)} == {bool}
        )


def kept_summary(end: LogEnd) -> ManifestSummary | None:
    """Return the summary of the newest version of a manifest, as its commit keeps it.

    Returns:
        None if the log's end has none: an older version or another program wrote it, or it is damaged. Read the
        manifest itself then, which also says what is wrong.
    """
    try:
        changed = next((entry for entry in end.entries() if entry.changes_rows), None)
        text = None if changed is None else changed.fact(SUMMARY)
        if changed is None or text is None:
            return None
        summary = ManifestSummary.from_json(text)
        return summary if summary.last == changed.most("epoch") else None
    except UNREADABLE:
        return None


def _newest(entries: Entries) -> NewestEpoch | None:
    found = entries.newest
    if found is None:
        return None
    rows = {name: table.rows for name, table in found.tables.items()}
    return NewestEpoch(found.epoch, found.committed_at, found.captured_at, found.watermark, rows)


def _mean_changes(entries: Sequence[Entry]) -> int | None:
    """Return how many rows of state the epochs changed, on average."""
    changes = [sum(table.changes for table in entry.tables.values()) for entry in entries if entry.captured]
    return round(sum(changes) / len(changes)) if changes else None


def _growth(entries: Entries) -> Growth | None:
    places = entries.is_captured.nonzero()[0][-WINDOW:]
    if len(places) < FEWEST:
        return None
    window = entries.newest_of(len(entries) - int(places[0]))
    chosen = [int(places[at] - places[0]) for at in (0, len(places) // 2, -1)]
    rows = dict[str, tuple[int, int, int]]()
    for table in window.tables:
        facts = window.facts(table)
        if all(facts.is_there[at] and facts.rows[at] >= 0 for at in chosen):
            rows[table] = _three([int(facts.rows[at]) for at in chosen])
    return Growth(_three([int(window.epochs[at]) for at in chosen]), rows)


def _microseconds(moment: datetime) -> int:
    return (moment - _BEGIN) // timedelta(microseconds=1)


def _moment(microseconds: int | None) -> datetime | None:
    return None if microseconds is None else _BEGIN + timedelta(microseconds=microseconds)


def _newest_from(found: Mapping[str, Any]) -> NewestEpoch:
    times = {name: _moment(found[name]) for name in ("committed_at", "captured_at", "watermark")}
    return NewestEpoch(**{**found, **times})


def _growth_from(found: Mapping[str, Any]) -> Growth:
    return Growth(_three(found["epochs"]), {table: _three(rows) for table, rows in dict(found["rows"]).items()})


def _three(rows: Sequence[int]) -> tuple[int, int, int]:
    first, middle, last = rows
    return first, middle, last
