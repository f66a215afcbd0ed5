"""How key groups look: a router, the groups below it with a way from each to its task, and the tasks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from streamstate.tutorials.simulation.keyed_state import Cluster
from streamstate.tutorials.simulation.scene import Scene, Tone

_GROUP, _TASKS = 55, 446
"""Width of a group, and of all tasks if there are few; with the gap."""


def picture(state: Cluster, records: Sequence[str]) -> Scene:
    """Return the picture of a state; ``records`` are all that come."""
    wide = max(86, _TASKS // len(state.tasks))
    scene = Scene(8 + max(_TASKS, wide * len(state.tasks)))
    coming = f"next: {records[state.sent]}" if state.sent < len(records) else "all records came"
    scene.text("router", 8, 14, f"router: {coming}{f'; holds {listed(state.held)}' if state.held else ''}")
    for group, task in enumerate(state.routing):
        tone: Tone = "bad" if group in state.stopped else ""
        left = 8 + _GROUP * group
        scene.cell(f"group {group}", left, 28, _GROUP - 3, f"group {group}", tone=tone, spoken=False)
        if task >= 0:
            end = (8 + wide * task + (wide - 6) * (group + 1) / (len(state.routing) + 1), 92)
            words = f"group {group}: {'stopped' if tone else f'to task {task}'}."
            scene.arrow(f"way {group}", (left + _GROUP / 2 - 2, 50), end, tone=tone, words=words)
    for number, (groups, queue, counted) in enumerate(state.tasks):
        counts = Counter(record[0] for record in counted)
        cells = [
            f"groups {listed(groups)}",
            f"waiting: {listed(queue)}",
            f"counts {listed([f'{key}: {counts[key]}' for key in sorted(counts)])}",
        ]
        used = bool(groups or queue or counted)
        title = f"task {number}" if used else f"task {number}: not in use"
        scene.box(f"task {number}", 8 + wide * number, 94, wide - 6, title, cells=cells if used else (), lines=3)
    return scene


def listed(things: Sequence[object]) -> str:
    """Return things in words."""
    return ", ".join(map(str, things)) or "nothing"
