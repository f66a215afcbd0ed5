"""The spread of a state table over partitions and keys. Its cost grows with the state, so callers cache it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from streamstate.state_inspect.cell_text import Cell, cell
from streamstate.state_inspect.python_rows import records
from streamstate.widgets.chart import ACCENT, Chart, quantity
from streamstate.widgets.number_text import amount, percent

if TYPE_CHECKING:
    from streamstate.snapshots.store.entries import Entry
    from streamstate.state_inspect import History

EPOCHS = 20
"""The most epochs over which writes are counted."""
WRITES = 300_000
"""The most writes that are counted; with many writes per epoch, fewer epochs are."""
KEYS = 8
"""The most keys that are listed."""
CELLS = 200
"""The most cells; with more partitions, neighbours share a cell, which shows the fullest of them."""
_LABELLED = 12
_EVEN = 1.2

Rows = Mapping[int, int]


@dataclass(frozen=True)
class HeavyKey:
    """One of the keys with the most writes."""

    key: Mapping[str, Any]
    cells: Sequence[Cell]
    writes: int
    last: int
    """The epoch of its last write."""


@dataclass(frozen=True)
class StateSpread:
    """The spread of a state table at an epoch."""

    table: str
    epoch: int
    since: int
    """Writes are counted from the epoch after this one."""
    epochs: int
    """The number of captured epochs after it."""
    columns: Sequence[str] = ()
    rows: Rows = field(default_factory=dict)
    """Live rows by partition."""
    writes: Rows = field(default_factory=dict)
    """Writes by partition."""
    keys: Sequence[HeavyKey] = ()
    bytes: int = 0
    """The size of the changelog on disk."""

    @property
    def sentences(self) -> list[str]:
        """The spread in words."""
        when = f"in the last {amount(self.epochs, 'epoch')}" if self.epochs > 1 else "in the newest epoch"
        return [
            _sentence(self.rows, "row", "holds", ""),
            _sentence(_over(self.writes, self.rows), "write", "took", f" {when}"),
        ]

    def chart(self) -> Chart:
        """Rows and writes by partition: the darker a cell, the more it exceeds an even share."""
        cells = [
            {"partition": name, "what": what, "count": count, "share": share, "times": times, "label": percent(share)}
            for what, counted in (("rows", self.rows), ("writes", _over(self.writes, self.rows)))
            for name, count, share, times in _cells(counted)
        ]
        labelled = len(self.rows) <= _LABELLED
        return Chart(f"Rows and writes of {self.table} by partition", _spec(cells, labelled=labelled), cells, height=64)


def window(entries: Sequence[Entry], table: str) -> tuple[int, int]:
    """Return the epoch after which writes are counted, and the number of captured epochs after it."""
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


def spread_of(history: History, table: str, entries: Sequence[Entry]) -> StateSpread:
    """Return the table's spread at the newest epoch; reads the temporal index from the oldest epoch that is counted."""
    from streamstate.state_inspect.analytics.skew import busy_keys, busy_partitions
    from streamstate.state_inspect.captured_query import HistoryPart

    since, epochs = window(entries, table)
    intervals, index = history.recorded.interval_table(table, since), history.recorded.index
    part = HistoryPart(intervals, since, intervals.high)
    newest = next(entry for entry in reversed(entries) if entry.captured)
    log = history.recorded.changelog(table)
    skew = history.at(newest.epoch).table(table).skew()
    return StateSpread(
        table,
        newest.epoch,
        since,
        epochs,
        intervals.key_columns,
        dict(zip(skew["partition"].tolist(), skew["rows"].tolist(), strict=True)),
        busy_partitions(intervals, index, since),
        [_heavy(row, intervals.key_columns) for row in records(busy_keys([part], index, intervals.key_columns, KEYS))],
        sum(file.size for file in log.version.files("_epoch")),
    )


def _heavy(found: Mapping[str, Any], columns: Sequence[str]) -> HeavyKey:
    key = {name: found[name] for name in columns}
    return HeavyKey(key, [cell(value) for value in key.values()], int(found["_writes"]), int(found["_last_written"]))


def _over(writes: Rows, rows: Rows) -> Rows:
    """Writes of all partitions, including those without any."""
    return {partition: writes.get(partition, 0) for partition in sorted({*rows, *writes})}


def _sentence(counted: Rows, unit: str, verb: str, when: str) -> str:
    total = sum(counted.values())
    if not total:
        return f"No {unit}s{when}."
    if len(counted) == 1:
        return f"All {amount(total, unit)}{when} are in a single partition."
    fullest = max(counted, key=lambda partition: counted[partition])
    share, even = counted[fullest] / total, 1 / len(counted)
    start = f"Partition {fullest} {verb} {percent(share)} of {amount(total, unit)}{when}"
    if share / even < _EVEN:
        return f"Even: {start[0].lower()}{start[1:]}, the most of {len(counted):,} (even would be {percent(even)})."
    return f"{start} (even would be {percent(even)})."


def _cells(counted: Rows) -> list[tuple[str, int, float, float]]:
    """For each cell, its partitions, and the count, share and multiple of an even share of the fullest one."""
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
    axis = {"labelAngle": 0, "labelOverlap": True, "ticks": False, "domain": False}
    x = {"field": "partition", "type": "ordinal", "sort": None, "title": "partition", "axis": axis}
    y = {"field": "what", "type": "nominal", "sort": ["rows", "writes"], "title": None}
    most = max([2.0, *(cell["times"] for cell in cells)])
    strength = quantity("times", scale={"domain": [0, most], "range": [0.05, 0.75]}, legend=None)
    tooltip = [
        {"field": "partition", "title": "partition"},
        {"field": "count", "format": ",", "title": "count"},
        {"field": "label", "title": "share"},
        {"field": "times", "format": ".2f", "title": "times an even share"},
    ]
    rect = {"type": "rect", "color": ACCENT, "cornerRadius": 2}
    layers: list[dict[str, Any]] = [{"mark": rect, "encoding": {"opacity": strength, "tooltip": tooltip}}]
    if labelled:
        layers.append({"mark": {"type": "text", "fontSize": 10}, "encoding": {"text": {"field": "label"}}})
    return {"layer": layers, "encoding": {"x": x, "y": y}}
