"""A key's changes, and the stretches of epochs in which it held its values."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from streamstate.widgets.values import canonical, objects, timestamp

if TYPE_CHECKING:
    import pandas as pd

    from streamstate.snapshots.manifest import Entry

__all__ = ["Change", "Epochs", "Spell", "Story", "story_of"]

_OWN = 3
"""Columns of a key's history before the values: the epoch, the change, when it was committed. The last is the cause."""
_PUT, _DELETE, _KEYFRAME, _LOST = "put", "delete", "keyframe", "lost"


@dataclass(frozen=True)
class Epochs:
    """The epochs there are: those captured, ascending, and the gaps between them as inclusive runs."""

    captured: Sequence[int]
    gaps: Sequence[tuple[int, int]]

    @classmethod
    def of(cls, entries: Sequence[Entry]) -> Epochs:
        """Those of a manifest; what retention dropped is no gap: nothing is unknown between its neighbours."""
        gaps: list[tuple[int, int]] = []
        for entry in entries:
            if entry.captured:
                continue
            if gaps and gaps[-1][1] == entry.epoch - 1:
                gaps[-1] = (gaps[-1][0], entry.epoch)
            else:
                gaps.append((entry.epoch, entry.epoch))
        return cls([entry.epoch for entry in entries if entry.captured], gaps)

    def gap_after(self, epoch: int, before: int) -> tuple[int, int] | None:
        """The first gap after an epoch that begins before another."""
        at = bisect_left(self.gaps, (epoch, epoch))
        return self.gaps[at] if at < len(self.gaps) and self.gaps[at][0] < before else None

    def captured_after(self, epoch: int) -> int | None:
        """The first captured epoch after one."""
        at = bisect_left(self.captured, epoch + 1)
        return self.captured[at] if at < len(self.captured) else None


@dataclass(frozen=True)
class Change:
    """One change of a key: what happened, the values after it, and which of them differ from those before.

    ``mark`` is ``+``, ``~`` or ``−``, and empty where it was written again as it was.
    """

    epoch: int
    mark: str
    said: str
    committed: str
    cause: str
    values: Sequence[Any] = ()
    differ: Sequence[int] = ()

    @property
    def gone(self) -> bool:
        """Whether the key is no longer there."""
        return self.mark == "−"


@dataclass(frozen=True)
class Spell:
    """Epochs ``start`` up to, not including, ``end``, in which the values of one change held."""

    start: int
    end: int
    change: int


@dataclass(frozen=True)
class Story:
    """All changes of a key, ascending, and its spells."""

    columns: Sequence[str]
    changes: Sequence[Change]
    spells: Sequence[Spell]


_Row = tuple[Any, ...]


def story_of(frame: pd.DataFrame, epochs: Epochs, committed: dict[int, Any]) -> Story:
    """The story that a key's history tells.

    Args:
        frame: what :meth:`History.key_history` gave.
        epochs: those of the query.
        committed: when each was committed.
    """
    columns = [str(name) for name in frame.columns[_OWN:-1]]
    named = frame.set_axis(range(frame.shape[1]), axis="columns")
    rows = list(_with_losses(list(objects(named).itertuples(index=False, name=None)), epochs, committed))
    changes = [_change(row, before) for before, row in zip([None, *rows], rows, strict=False)]
    return Story(columns, changes, list(_spells(changes, epochs)))


def _with_losses(rows: Sequence[_Row], epochs: Epochs, committed: dict[int, Any]) -> Iterator[_Row]:
    """The rows, and one for each gap in which the key was lost: after a gap the log has all keys that are there."""
    for at, row in enumerate(rows):
        yield row
        following = rows[at + 1][0] if at + 1 < len(rows) else epochs.captured[-1] + 1
        gap = None if row[1] == _DELETE else epochs.gap_after(row[0], following)
        seen = None if gap is None else epochs.captured_after(gap[1])
        if seen is not None and seen < following:
            yield (seen, _LOST, committed.get(seen), *([None] * (len(row) - _OWN - 1)), "unknown")


def _change(row: _Row, before: _Row | None) -> Change:
    kind, values = row[1], row[_OWN:-1]
    gone = kind in (_DELETE, _LOST)
    fresh = before is None or before[1] in (_DELETE, _LOST)
    differ = [] if gone or fresh or before is None else _differing(values, before[_OWN:-1])
    mark = "−" if gone else "+" if fresh else "~" if differ else ""
    moment = "" if row[2] is None else timestamp(row[2])
    return Change(int(row[0]), mark, _said(kind, mark), moment, row[-1] or "", () if gone else values, differ)


def _differing(values: Sequence[Any], before: Sequence[Any]) -> list[int]:
    return [at for at, (new, old) in enumerate(zip(values, before, strict=True)) if canonical(new) != canonical(old)]


def _said(kind: str, mark: str) -> str:
    """What happened, in words; what a gap hides is not claimed."""
    if kind == _LOST:
        return "gone after a gap"
    if kind == _KEYFRAME:
        return {"+": "there when the log starts anew", "~": "other values after a gap"}.get(
            mark, "the same after a gap"
        )
    return {"+": "added", "~": "changed", "−": "removed"}.get(mark, "written again, the same")


def _spells(changes: Sequence[Change], epochs: Epochs) -> Iterator[Spell]:
    """Each change's values hold until the next change or the next gap."""
    for at, change in enumerate(changes):
        if change.gone:
            continue
        end = changes[at + 1].epoch if at + 1 < len(changes) else epochs.captured[-1] + 1
        gap = epochs.gap_after(change.epoch, end)
        yield Spell(change.epoch, gap[0] if gap else end, at)
