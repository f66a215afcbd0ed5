"""How one state table is spread: over partitions and over keys. What it costs follows the state, so it is kept."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from streamstate.widgets.chart import ACCENT, Chart
from streamstate.widgets.dashboard.figures import amount, percent
from streamstate.widgets.values import Cell, cell, records

if TYPE_CHECKING:
    from streamstate.snapshots.manifest import Entry
    from streamstate.state_inspect import History

__all__ = ["EPOCHS", "KEYS", "HeavyKey", "Spread", "spread_of", "window"]

EPOCHS = 20
"""Epochs back that writes are counted over, at most."""
WRITES = 300_000
"""Writes that are looked at, at most: with more an epoch, fewer epochs."""
KEYS = 8
"""Keys that are listed."""
CELLS = 200
"""Partitions that get a cell each; beyond that neighbours share one, which shows the fullest of them."""
_LABELLED = 12
_EVEN = 1.2

Rows = Mapping[int, int]


@dataclass(frozen=True)
class HeavyKey:
    """One of the keys that were written most often."""

    key: Mapping[str, Any]
    cells: Sequence[Cell]
    writes: int
    last: int
    """The epoch of its last write."""


@dataclass(frozen=True)
class Spread:
    """One state table at one epoch."""

    table: str
    epoch: int
    since: int
    """Writes are counted from the epoch after this one."""
    epochs: int
    """Captured epochs since."""
    columns: Sequence[str] = ()
    rows: Rows = field(default_factory=dict)
    """Live rows by partition."""
    writes: Rows = field(default_factory=dict)
    """Writes by partition."""
    keys: Sequence[HeavyKey] = ()
    bytes: int = 0
    """Of the change log on disk."""

    @property
    def sentences(self) -> list[str]:
        """What the map shows, in words."""
        lately = f"in the last {amount(self.epochs, 'epoch')}" if self.epochs > 1 else "in the newest epoch"
        return [
            _sentence(self.rows, "row", "holds", ""),
            _sentence(_over(self.writes, self.rows), "write", "took", f" {lately}"),
        ]

    def chart(self) -> Chart:
        """Partitions against rows and writes: the stronger the colour, the more than its even share."""
        cells = [
            {"partition": name, "what": what, "count": count, "share": share, "times": times, "told": percent(share)}
            for what, counted in (("rows", self.rows), ("writes", _over(self.writes, self.rows)))
            for name, count, share, times in _cells(counted)
        ]
        labelled = len(self.rows) <= _LABELLED
        return Chart(f"Rows and writes of {self.table} by partition", _spec(cells, labelled=labelled), cells, height=64)


def window(entries: Sequence[Entry], table: str) -> tuple[int, int]:
    """The epoch after which writes are counted, and how many captured epochs those are.

    Args:
        entries: the manifest, ascending.
        table: the state table.
    """
    changes = taken = 0
    since = -1
    for entry in reversed(entries):
        if not entry.captured or table not in entry.tables:
            continue
        since = entry.epoch - 1
        taken += 1
        changes += entry.tables[table].changes
        if taken == EPOCHS or changes >= WRITES:
            break
    return since, taken


def spread_of(history: History, table: str, entries: Sequence[Entry]) -> Spread:
    """The table's spread at the newest epoch; reads the temporal index from the oldest epoch that counts."""
    from streamstate.state_inspect.analytics.busy_partitions import busy_partitions
    from streamstate.state_inspect.analytics.skew import busy_keys

    since, epochs = window(entries, table)
    intervals = history.interval_table(table, since + 1)
    newest = next(entry for entry in reversed(entries) if entry.captured)
    log = history.change_log(table)
    told = records(history.at(newest.epoch).table(table).skew())
    return Spread(
        table,
        newest.epoch,
        since,
        epochs,
        intervals.key_columns,
        {int(one["partition"]): int(one["rows"]) for one in told},
        busy_partitions(intervals, history.index, since),
        [_heavy(one, intervals.key_columns) for one in records(busy_keys(intervals, history.index, since, KEYS))],
        sum(file.size for file in log.version.files("_epoch")),
    )


def _heavy(found: Mapping[str, Any], columns: Sequence[str]) -> HeavyKey:
    key = {name: found[name] for name in columns}
    return HeavyKey(key, [cell(value) for value in key.values()], int(found["_writes"]), int(found["_last_written"]))


def _over(writes: Rows, rows: Rows) -> Rows:
    """Writes of all partitions, also of those that had none."""
    return {partition: writes.get(partition, 0) for partition in sorted({*rows, *writes})}


def _sentence(counted: Rows, one: str, verb: str, when: str) -> str:
    total = sum(counted.values())
    if not total:
        return f"No {one}s{when}."
    if len(counted) == 1:
        return f"All {amount(total, one)}{when} are in one partition."
    fullest = max(counted, key=lambda partition: counted[partition])
    share, even = counted[fullest] / total, 1 / len(counted)
    start = f"Partition {fullest} {verb} {percent(share)} of {amount(total, one)}{when}"
    if share / even < _EVEN:
        return f"Even: {start[0].lower()}{start[1:]}, the most of {len(counted):,} (even would be {percent(even)})."
    return f"{start} (even would be {percent(even)})."


def _cells(counted: Rows) -> list[tuple[str, int, float, float]]:
    """Of each cell: its partitions, and the count, the share and the multiple of the even share of the fullest."""
    total, wide = sum(counted.values()) or 1, math.ceil(len(counted) / CELLS) or 1
    partitions = list(counted)
    cells = []
    for start in range(0, len(partitions), wide):
        group = partitions[start : start + wide]
        most = max(counted[partition] for partition in group)
        name = f"{group[0]}" if len(group) == 1 else f"{group[0]}–{group[-1]}"
        cells.append((name, most, most / total, most / total * len(counted)))
    return cells


def _spec(cells: Sequence[Mapping[str, Any]], *, labelled: bool) -> dict[str, Any]:
    x = {"field": "partition", "type": "ordinal", "sort": None, "title": "partition", "axis": _axis(len(cells) // 2)}
    y = {"field": "what", "type": "nominal", "sort": ["rows", "writes"], "title": None}
    most = max([2.0, *(one["times"] for one in cells)])
    strength = {
        "field": "times",
        "type": "quantitative",
        "scale": {"domain": [0, most], "range": [0.05, 0.75]},
        "legend": None,
    }
    tooltip = [
        {"field": "partition", "title": "partition"},
        {"field": "count", "format": ",", "title": "count"},
        {"field": "told", "title": "share"},
        {"field": "times", "format": ".2f", "title": "times its even share"},
    ]
    map_ = {"mark": {"type": "rect", "color": ACCENT, "cornerRadius": 2}, "encoding": {"opacity": strength}}
    layers: list[dict[str, Any]] = [map_ | {"encoding": {"opacity": strength, "tooltip": tooltip}}]
    if labelled:
        layers.append({"mark": {"type": "text", "fontSize": 10}, "encoding": {"text": {"field": "told"}}})
    return {"layer": layers, "encoding": {"x": x, "y": y}}


def _axis(count: int) -> dict[str, Any]:
    """A label for each of few partitions, and for some of many."""
    axis: dict[str, Any] = {"labelAngle": 0, "labelOverlap": True, "ticks": False, "domain": False}
    return axis | ({"labels": False} if count > CELLS else {})
