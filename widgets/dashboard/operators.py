"""The operators of a query as boxes in layers, from its sources down to its sink.

If the query runs in this process, the boxes are those of Spark's plan. The store alone does not know how operators are
connected: it has a box for each source and each stateful operator, without lines between them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from streamstate.snapshots.checkpoint.delta_offsets import is_delta
from streamstate.snapshots.checkpoint.source_offsets import in_words, read_topics
from streamstate.snapshots.checkpoint.source_progress import recorded_by_source
from streamstate.widgets.number_text import amount, size, span

if TYPE_CHECKING:
    from streamstate.snapshots.spark.plan_graph import PlanGraph, PlanNode
    from streamstate.snapshots.store.entries import Entry

_FOLDED = {"Project", "ColumnarToRow", "InputAdapter"}
"""Operators without figures of interest: they only select columns or convert them to rows."""
_OPERATOR = re.compile(r"^op(\d+)")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12},? ?")
_TIMES = ("pipelineTime", "scanTime", "sortTime", "aggTime")
_STATE_TIMES = ("allUpdatesTimeMs", "allRemovalsTimeMs", "commitTimeMs")
_BYTES = (("dataSize", "shuffled"), ("stateMemory", "in memory"), ("filesSize", "read"))
_DETAIL = 60


@dataclass(frozen=True)
class OperatorBox:
    """An operator as it is drawn."""

    id: int
    label: str
    detail: str
    """What it reads, groups by or writes, cut to a short text."""
    whole: str
    kind: str
    rows: str = ""
    bytes: str = ""
    time: str = ""
    state: str = ""
    """What a stateful operator holds."""
    tables: tuple[str, ...] = ()
    inputs: tuple[int, ...] = ()
    feeds: str = ""
    row: int = 1
    column: int = 1
    columns: int = 1
    """The number of columns that it spans: those of all its inputs."""

    def figures(self) -> str:
        """Its figures in a line."""
        return " · ".join(part for part in (self.rows, self.bytes, self.time, self.state) if part)


@dataclass(frozen=True)
class Operators:
    """All boxes, inputs first, and a note on how to read them."""

    note: str
    boxes: tuple[OperatorBox, ...] = ()
    linked: bool = True


def from_plan(
    graph: PlanGraph, *, complete: bool, progress: Mapping[str, Any] | None, tables: Sequence[str]
) -> Operators:
    """Return the boxes of a plan, whose batch may still run; Spark's ``progress`` names its sources and its sink."""
    kept = _without_folded(graph.nodes)
    names = iter(_sources(progress, sum(node.kind == "source" for node in kept)))
    boxes = [_box(node, next(names, "") if node.kind == "source" else "", tables) for node in kept]
    if boxes and boxes[-1].kind != "sink":
        boxes.append(OperatorBox(boxes[-1].id + 1, "Sink", "", "", "sink", inputs=(boxes[-1].id,)))
    boxes[-1] = _named(boxes[-1], "Sink", str(((progress or {}).get("sink") or {}).get("description", "")))
    running = "" if complete else ", which is still running: the figures grow"
    note = f"Spark's plan of epoch {graph.epoch:,}{running}. Times are summed over tasks and include waiting."
    return Operators(note, tuple(_placed(boxes)))


def from_store(entry: Entry) -> Operators:
    """Return a box for each source and each stateful operator of an epoch in the manifest."""
    offsets = recorded_by_source(entry.offsets)
    rows = "" if entry.input_rows is None or len(offsets) != 1 else f"{amount(entry.input_rows, 'row')} in"
    boxes = []
    for at, (source, offset) in enumerate(offsets.items()):
        topics = ", ".join(read_topics(offset) or ())
        said = in_words(offset) if topics or is_delta(offset) else json.dumps(offset)
        detail = "" if offset is None else f"up to {said}"
        number = f"Source {topics}" if topics else "Source" if len(offsets) == 1 else f"Source {at + 1}"
        label = f"Source {source}" if isinstance(source, str) else number
        boxes.append(OperatorBox(at, label, _cut(detail), detail, "source", rows=rows, column=at + 1))
    operators: dict[str, list[str]] = {}
    for table in entry.tables:
        found = _OPERATOR.match(table)
        operators.setdefault(found[1] if found else table, []).append(table)
    for at, (number, names) in enumerate(operators.items()):
        held = replace(entry, tables={name: entry.tables[name] for name in names}).rows
        state = "" if held is None else f"{amount(held, 'row')} of state, "
        changed = sum(entry.tables[name].changes for name in names)
        boxes.append(
            OperatorBox(
                len(offsets) + at,
                f"Operator {number}",
                "stateful",
                "",
                "state",
                state=f"{state}{amount(changed, 'change')}",
                tables=tuple(names),
                row=2 if offsets else 1,
                column=at + 1,
            )
        )
    note = (
        f"Epoch {entry.epoch:,}, from the store. For the connections between operators and their times, pass the"
        " running query: QueryDashboard(history, query)."
    )
    return Operators(note, tuple(boxes), linked=False)


def _without_folded(nodes: Sequence[PlanNode]) -> list[PlanNode]:
    """Return the nodes that are drawn, each connected to the nearest drawn nodes below it."""
    stands_for: dict[int, tuple[int, ...]] = {}
    kept = []
    for node in nodes:
        inputs = tuple(drawn for below in node.inputs for drawn in stands_for[below])
        if node.name in _FOLDED and node.inputs:
            stands_for[node.id] = inputs
        else:
            stands_for[node.id] = (node.id,)
            kept.append(replace(node, inputs=inputs))
    return kept


def _sources(progress: Mapping[str, Any] | None, count: int) -> list[str]:
    """Return the names of the sources, in Spark's order, if the report lists as many as the plan has."""
    listed = [str(source.get("description", "")) for source in (progress or {}).get("sources") or []]
    return listed if len(listed) == count else []


def _box(node: PlanNode, source: str, tables: Sequence[str]) -> OperatorBox:
    metrics = node.metrics
    detail = _UUID.sub("", node.text.removeprefix(node.name).strip().removeprefix("!" + node.name).strip())
    box = OperatorBox(node.id, node.name, _cut(detail), node.text, node.kind, inputs=node.inputs, time=_time(node))
    rows = metrics.get("numOutputRows", metrics.get("shuffleRecordsWritten"))
    found = next(((metrics[name], word) for name, word in _BYTES if metrics.get(name)), None)
    box = replace(
        box,
        rows="" if rows is None else amount(rows, "row"),
        bytes="" if found is None else f"{size(found[0])} {found[1]}",
    )
    if node.kind == "source":
        return _named(box, "Source", source)
    if node.kind != "state":
        return box
    held = (
        f"{amount(metrics['numTotalStateRows'], 'row')} of state, {metrics.get('numUpdatedStateRows', 0):,} written,"
        f" {metrics.get('numRemovedStateRows', 0):,} removed"
    )
    keys = _cut(detail.partition(", state info")[0])
    mine = tuple(table for table in tables if (of := _OPERATOR.match(table)) and int(of[1]) == node.operator)
    return replace(box, detail=keys, state=held, tables=mine)


def _named(box: OperatorBox, label: str, description: str) -> OperatorBox:
    """Return a source or a sink with its name from Spark's reports."""
    if not description:
        return box
    name, _, rest = description.partition("[")
    return replace(box, label=f"{label}: {name}", detail=_cut(rest.rstrip("]")), whole=f"{description}\n{box.whole}")


def _time(node: PlanNode) -> str:
    metrics = node.metrics
    if node.kind == "state":
        return span(sum(metrics.get(name, 0) for name in _STATE_TIMES) / 1_000)
    found = next((metrics[name] for name in _TIMES if name in metrics), None)
    if found is None and "shuffleWriteTime" in metrics:
        found = round(metrics["shuffleWriteTime"] / 1_000_000)
    return "" if found is None else span(found / 1_000)


def _placed(boxes: Sequence[OperatorBox]) -> list[OperatorBox]:
    """Place each box in its layer, above the box that it feeds; plans are trees."""
    places: dict[int, tuple[int, int]] = {}
    taken = 1
    for box in boxes:
        below = [places[source] for source in box.inputs]
        if not below:
            places[box.id] = (taken, 1)
            taken += 1
        else:
            first = min(column for column, _ in below)
            places[box.id] = (first, max(column + wide for column, wide in below) - first)
    depth = {boxes[-1].id: 0}
    feeds: dict[int, str] = {}
    for box in reversed(boxes):
        for source in box.inputs:
            depth[source] = depth[box.id] + 1
            feeds[source] = box.label
    deepest = max(depth.values())
    return [
        replace(
            box,
            row=deepest - depth[box.id] + 1,
            column=places[box.id][0],
            columns=places[box.id][1],
            feeds=feeds.get(box.id, ""),
        )
        for box in boxes
    ]


def _cut(text: str) -> str:
    return text if len(text) <= _DETAIL else text[: _DETAIL - 1] + "…"
