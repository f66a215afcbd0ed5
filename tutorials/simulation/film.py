"""What a player is given: items, frames made of items, and the actions that lead from frame to frame."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from streamstate.tutorials.simulation.graph import Graph
from streamstate.tutorials.simulation.protocol import Action, Key, S
from streamstate.tutorials.simulation.runs import ENDS, Trace, violations
from streamstate.tutorials.simulation.scene import Item, Scene

Edges: TypeAlias = Sequence[Sequence[tuple[Action, int]]]


@dataclass(frozen=True)
class Reel:
    """The frames of one graph or trace, before they are packed.

    Args:
        scenes: the picture of each state.
        edges: for each state: the label of each action, what it does in a sentence, and the state that it leads to.
        broken: for each state: the invariants that it breaks, with the reasons.
        path: for each step of the example, the position of its action.
        complete: every action that is enabled is there.
        invariants: the names of all invariants.
    """

    scenes: Sequence[Scene]
    edges: Sequence[Sequence[tuple[str, str, int]]]
    broken: Sequence[Mapping[str, str]]
    path: Sequence[int]
    complete: bool
    invariants: Sequence[str]


def reel(shown: Graph[S] | Trace[S], example: Iterable[Key] | None = None) -> Reel:
    """Return the frames of a graph or a trace.

    Args:
        shown: the graph or trace.
        example: for a graph, the schedule that the player begins with. By default, none: the reader chooses each step.
    """
    if isinstance(shown, Trace):
        edges: Edges = [[(action, index + 1)] for index, action in enumerate(shown.actions)] + [[]]
        path = [0] * len(shown.actions)
        complete = not shown.protocol.actions(shown.states[-1])
    else:
        edges, complete = shown.edges, shown.complete
        schedule = tuple(example or ())
        path = [
            [action.key for action, _ in edges[frame]].index(key)
            for frame, key in zip(shown.path(schedule), schedule, strict=False)
        ]
    protocol, states = shown.protocol, shown.states
    told = [
        [(action.label, protocol.tell(states[index], action, states[there]), there) for action, there in actions]
        for index, actions in enumerate(edges)
    ]
    broken = [
        dict(violations(protocol, state, stuck=complete and not edges[index])) for index, state in enumerate(states)
    ]
    if isinstance(shown, Trace):
        for violation in shown.violations:  # what only the whole run shows
            broken[violation.tick].setdefault(violation.invariant, violation.reason)
    scenes = [protocol.scene(state) for state in states]
    return Reel(scenes, told, broken, path, complete, [*protocol.invariants, ENDS])


def packed(reels: Sequence[Reel]) -> dict[str, Any]:
    """Return the data of a player, in which each item and each text is there once."""
    items: dict[Item, int] = {}
    texts: dict[str, int] = {}

    def number_of(text: str) -> int:
        return texts.setdefault(text, len(texts))

    names = list(dict.fromkeys(name for each in reels for name in each.invariants))
    graphs = [
        {
            "frames": [[items.setdefault(item, len(items)) for item in scene.items] for scene in each.scenes],
            "edges": [
                [[number_of(label), number_of(said), there] for label, said, there in edges] for edges in each.edges
            ],
            "broken": [[[names.index(name), number_of(why)] for name, why in broken.items()] for broken in each.broken],
            "path": list(each.path),
            "complete": each.complete,
        }
        for each in reels
    ]
    scenes = [scene for each in reels for scene in each.scenes]
    return {
        "width": max(scene.width for scene in scenes),
        "height": max(scene.height for scene in scenes),
        "items": list(items),
        "texts": list(texts),
        "invariants": names,
        "graphs": graphs,
    }


def in_script(data: object) -> str:
    r"""Return data as JavaScript that no text in it can end.

    Example:
        >>> print(in_script(["</script>"]))
        ["\u003c/script>"]
    """
    written = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    for character in "<\u2028\u2029":
        written = written.replace(character, f"\\u{ord(character):04x}")
    return written
