"""How a fix is proved: its replay gives what a batch over the right input gives, and more where that is not all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeAlias

import pandas as pd

from streamstate.tutorials.exercises import grading

if TYPE_CHECKING:
    from streamstate.reports import Audit
    from streamstate.state_inspect import History

KEYS = {"board": ("day", "carrier", "origin"), "aircraft": ("tailnum",)}
"""The columns of each query's keys."""

_STAYS = 3
"""For how many files after its last one a key may stay in the state."""
_BUSY = 20
"""How many departures of a day a key may have. An aircraft has up to eight."""
_NEW_YORK = pd.Timedelta(hours=5)

Files: TypeAlias = Sequence[pd.DataFrame]
"""The departures of each file."""
Key: TypeAlias = tuple[str, ...]
Departures: TypeAlias = Mapping[Key, tuple[int, int]]
"""Each key's departures in the newest file that has it, and the number of that file."""


@dataclass(frozen=True)
class Replayed:
    """The replay of a fix.

    Args:
        history: its captured epochs.
        epochs: the epoch of each file.
        query: "board" or "aircraft".
        right: the files that should have arrived.
        at: the file with which the incident began.
        audit: audits the fix at an epoch.
    """

    history: History
    epochs: Sequence[int]
    query: str
    right: Files
    at: int
    audit: Callable[[int], Audit]

    def captured(self) -> list[int]:
        """Return its epochs."""
        return self.history.captured()

    def state(self, epoch: int) -> pd.DataFrame:
        """Return the keys of the state at an epoch, with their departures."""
        snapshot = self.history.at(epoch)
        return (snapshot.result() if self.query == "board" else snapshot.table("op0_aircraft")).to_pandas()


Proof: TypeAlias = Callable[[Replayed], str]
"""Says what is wrong with a replay; empty if nothing is."""


def as_text(value: Any) -> str:
    """A key's value as text; a window or a time by the day on which it begins."""
    value = value.get("start") if isinstance(value, dict) else value
    if isinstance(value, datetime):
        return (value.astimezone(UTC) if value.tzinfo else value).date().isoformat()
    return str(value)


def batch(files: Files, query: str) -> Departures:
    """Count the departures of each key in its newest file; those of which the key is not known are left out."""
    found: dict[Key, tuple[int, int]] = {}
    for number, rows in enumerate(files):
        named = rows.assign(day=(rows["scheduled"] - _NEW_YORK).dt.strftime("%Y-%m-%d"))
        counts = Counter(named[list(KEYS[query])].dropna().itertuples(index=False, name=None))
        found |= {key: (count, number) for key, count in counts.items()}
    return found


def gives_batch(replayed: Replayed, *, others: bool = False) -> str:
    """Say where a replay differs from a batch over the right input; empty if it does nowhere.

    Args:
        replayed: the replay.
        others: keys that the batch does not have are allowed.
    """
    names = [*KEYS[replayed.query], "departures"]
    for file, epoch in enumerate(replayed.epochs):
        rows = replayed.state(epoch)
        if not set(names) <= set(rows.columns):
            return f"The result needs the columns {', '.join(f'`{name}`' for name in names)}."
        found: Counter[Key] = Counter()
        for *key, count in rows[names].itertuples(index=False):
            found[tuple(map(as_text, key))] += count
        right = batch(replayed.right[: file + 1], replayed.query)
        compared = {key: count for key, count in found.items() if key in right or not others}
        if fault := difference(compared, right, file):
            return f"At epoch {epoch}, {fault}"
    return ""


def difference(found: Mapping[Key, int], right: Departures, file: int) -> str:
    """Say where a state differs from what it should be after a file; empty if it does nowhere."""
    for key, count in sorted(found.items()):
        wanted, last = right.get(key, (0, file))
        if count != wanted:
            return f"the `departures` of {', '.join(key)} are {count:,}. They should be {wanted:,}."
        if file - last > _STAYS:
            return f"the state still has {', '.join(key)}, which came {file - last} files earlier: it leaks."
    missing = [key for key, (_, last) in sorted(right.items()) if last == file and key not in found]
    return f"the state has no row for {', '.join(missing[0])}, which just came." if missing else ""


def is_spread(replayed: Replayed) -> str:
    """Say whether rows are lost, or a key is hot, on the newest day; empty if neither is."""
    epoch, wanted = replayed.epochs[-1], len(replayed.right[-1])
    rows = replayed.state(epoch)
    newest = rows.loc[rows["day"] == rows["day"].max(), "departures"]
    if newest.sum() != wanted:
        return f"At epoch {epoch}, the newest day has {newest.sum():,} departures. It should have {wanted:,}."
    if newest.max() > _BUSY:
        return f"At epoch {epoch}, one key still has {newest.max():,} of the newest day's {wanted:,} departures."
    return ""


def does_not_grow(replayed: Replayed) -> str:
    """Say which state table grows; empty if none does."""
    return grading.does_not_grow(replayed.history)


def is_deterministic(replayed: Replayed) -> str:
    """Say where an audit of the epoch with which the incident began found a difference; empty if nowhere."""
    audit = replayed.audit(replayed.epochs[replayed.at])
    return "" if audit.clean else f"An audit runs it again, and gets something else: {audit.first}"
