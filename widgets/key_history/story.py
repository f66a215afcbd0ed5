"""A key's changes, and for each column the runs of epochs in which it kept a value."""

from __future__ import annotations

import datetime as dt
import math
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal

from streamstate.state_inspect.cell_text import canonical, number, plain, timestamp
from streamstate.state_inspect.expiry_times import rows_with_times
from streamstate.widgets.number_text import ranges

if TYPE_CHECKING:
    import pyarrow as pa

    from streamstate.snapshots.store.entries import Entry

OWN = 3
"""Columns of a key history before the values: epoch, change, commit time. The last column is the cause."""
_DELETE, KEYFRAME, _LOST = "delete", "keyframe", "lost"


@dataclass(frozen=True)
class EpochRuns:
    """The captured epochs, ascending, the gaps between them as inclusive ranges, and when each was committed."""

    captured: Sequence[int]
    gaps: Sequence[tuple[int, int]]
    committed: Mapping[int, dt.datetime | None]

    @classmethod
    def of(cls, entries: Sequence[Entry]) -> EpochRuns:
        """The epochs of a manifest. Epochs dropped by retention are no gap: the epochs around them are complete."""
        gaps = [(first, last) for first, last in ranges([entry.epoch for entry in entries if not entry.captured])]
        committed = {entry.epoch: entry.committed_at for entry in entries}
        return cls([entry.epoch for entry in entries if entry.captured], gaps, committed)

    def gap_after(self, epoch: int, before: int) -> tuple[int, int] | None:
        """Return the first gap after ``epoch`` that begins before ``before``."""
        at = bisect_left(self.gaps, (epoch, epoch))
        return self.gaps[at] if at < len(self.gaps) and self.gaps[at][0] < before else None

    def captured_after(self, epoch: int) -> int | None:
        """Return the first captured epoch after ``epoch``."""
        at = bisect_left(self.captured, epoch + 1)
        return self.captured[at] if at < len(self.captured) else None


@dataclass(frozen=True)
class KeyChange:
    """A change of a key: what happened, the values after it, and which of them differ from the values before.

    ``mark`` is ``+``, ``~`` or ``−``, or empty if the same values were written again. ``description`` is the change in
    words.
    """

    epoch: int
    mark: str
    description: str
    committed: str
    cause: str
    values: Sequence[Any] = ()
    differ: Sequence[int] = ()

    @property
    def gone(self) -> bool:
        """True if the key was removed."""
        return self.mark == "−"


@dataclass(frozen=True)
class Spell:
    """The epochs from ``start`` up to, but not including, ``end`` in which the values of a change were current."""

    start: int
    end: int
    change: int


@dataclass(frozen=True)
class Story:
    """All changes of a key, ascending, its spells, and the epochs of the query."""

    columns: Sequence[str]
    changes: Sequence[KeyChange]
    spells: Sequence[Spell]
    epochs: EpochRuns


_Row = tuple[Any, ...]


def story_of(history: pa.Table, epochs: EpochRuns, expiring: frozenset[str] = frozenset()) -> Story:
    """The changes and spells of a key, from its :meth:`History.key_history_arrow`; ``expiring`` have expiry times."""
    columns = history.column_names[OWN:-1]
    rows = list(_with_losses(rows_with_times(history, expiring), epochs))
    changes = [change_of(row, before) for before, row in zip([None, *rows], rows, strict=False)]
    return Story(columns, changes, list(_spells(changes, epochs)), epochs)


def _with_losses(rows: Sequence[_Row], epochs: EpochRuns) -> Iterator[_Row]:
    """The rows, and a row for each gap in which the key was lost: after a gap, the changelog holds all live keys."""
    for at, row in enumerate(rows):
        yield row
        following = rows[at + 1][0] if at + 1 < len(rows) else epochs.captured[-1] + 1
        gap = None if row[1] == _DELETE else epochs.gap_after(row[0], following)
        seen = None if gap is None else epochs.captured_after(gap[1])
        if seen is not None and seen < following:
            yield (seen, _LOST, epochs.committed.get(seen), *([None] * (len(row) - OWN - 1)), "unknown")


def change_of(row: _Row, before: _Row | None) -> KeyChange:
    """Compare a row of a key history with the row before."""
    kind, values = row[1], row[OWN:-1]
    gone = kind in (_DELETE, _LOST)
    fresh = before is None or before[1] in (_DELETE, _LOST)
    differ = [] if gone or fresh or before is None else _differing(values, before[OWN:-1])
    mark = "−" if gone else "+" if fresh else "~" if differ else ""
    moment = "" if row[2] is None else timestamp(row[2])
    return KeyChange(int(row[0]), mark, _description(kind, mark), moment, row[-1] or "", () if gone else values, differ)


def _differing(values: Sequence[Any], before: Sequence[Any]) -> list[int]:
    return [at for at, (new, old) in enumerate(zip(values, before, strict=True)) if canonical(new) != canonical(old)]


def _description(kind: str, mark: str) -> str:
    """Describe a change; after a gap, only the result is known."""
    if kind == _LOST:
        return "gone after a gap"
    if kind == KEYFRAME:
        return {"+": "present at the first keyframe", "~": "different after a gap"}.get(mark, "unchanged after a gap")
    return {"+": "added", "~": "changed", "−": "removed"}.get(mark, "rewritten, unchanged")


def _spells(changes: Sequence[KeyChange], epochs: EpochRuns) -> Iterator[Spell]:
    """Yield the spell of each change: its values are current until the next change or the next gap."""
    for at, change in enumerate(changes):
        if change.gone:
            continue
        end = changes[at + 1].epoch if at + 1 < len(changes) else epochs.captured[-1] + 1
        gap = epochs.gap_after(change.epoch, end)
        yield Spell(change.epoch, gap[0] if gap else end, at)


PlotKind = Literal["number", "time", "other"]


@dataclass(frozen=True)
class ValueRun:
    """The epochs from ``start`` up to, but not including, ``end`` in which a column kept a value.

    ``change`` is the number of the change that began the run. A bin combines ``count`` runs: ``value`` is their last
    value, ``low`` and ``high`` are the extremes.
    """

    start: int
    end: int
    value: Any
    change: int
    low: Any = None
    high: Any = None
    count: int = 1


def kind_of(story: Story, column: int) -> PlotKind:
    """Return the form of a column's plot: a line of numbers or times, or labelled bars."""
    values = [plain(change.values[column]) for change in story.changes if not change.gone]
    known = [value for value in values if value is not None]
    if all(measure(value) is None for value in known):
        return "other"
    if all(isinstance(value, int | float | Decimal) and not isinstance(value, bool) for value in known):
        return "number"
    return "time" if all(isinstance(value, dt.date) for value in known) else "other"


def runs_of(story: Story, column: int) -> list[ValueRun]:
    """Return the runs of a column, ascending; writing the same value again does not end a run."""
    runs: list[ValueRun] = []
    for spell in story.spells:
        value = plain(story.changes[spell.change].values[column])
        last = runs[-1] if runs else None
        if last is not None and last.end == spell.start and canonical(last.value) == canonical(value):
            runs[-1] = replace(last, end=spell.end)
        else:
            runs.append(ValueRun(spell.start, spell.end, value, spell.change))
    return runs


def binned(runs: Sequence[ValueRun], limit: int) -> list[ValueRun]:
    """Return at most ``limit`` runs; if there are more, runs that begin in the same range of epochs are combined."""
    if len(runs) <= limit:
        return list(runs)
    first = runs[0].start
    width = math.ceil((runs[-1].start - first + 1) / limit)
    return [_merged(list(group)) for _, group in groupby(runs, lambda run: (run.start - first) // width)]


def _merged(runs: Sequence[ValueRun]) -> ValueRun:
    known = sorted((run.value for run in runs if measure(run.value) is not None), key=measure)
    low, high = (known[0], known[-1]) if known else (None, None)
    return replace(runs[-1], start=runs[0].start, low=low, high=high, count=len(runs))


def measure(value: Any) -> Any:
    """Return a value's place on an axis: a number or an ISO 8601 time; None for null, NaN, text and the like."""
    if isinstance(value, dt.datetime):  # local time, because a picture has no zone
        return (value.astimezone() if value.tzinfo else value).replace(tzinfo=None).isoformat()
    return f"{value.isoformat()}T00:00:00" if isinstance(value, dt.date) else number(value)
