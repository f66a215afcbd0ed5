"""The graph of all states that a small scenario can reach."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic

from streamstate.tutorials.simulation.protocol import Action, Key, Protocol, S
from streamstate.tutorials.simulation.runs import Trace, replay, violations


@dataclass(frozen=True)
class Graph(Generic[S]):
    """States, in the order of their distance from the first one, and the actions between them.

    Args:
        protocol: the protocol and its scenario.
        states: the states; the first one is the start.
        edges: for each state, its actions with the indices of the states that they lead to.
        complete: every reachable state is in the graph. If not, the states at its rim have no edges.
    """

    protocol: Protocol[S]
    states: tuple[S, ...]
    edges: tuple[tuple[tuple[Action, int], ...], ...]
    complete: bool

    def path(self, schedule: Iterable[Key]) -> list[int]:
        """Return the states that a schedule passes, by index.

        Raises:
            ValueError: an action is not in the graph where its turn comes.
        """
        found = [0]
        for key in schedule:
            following = {action.key: index for action, index in self.edges[found[-1]]}
            if key not in following:
                raise ValueError(f"Action {key} is not in the graph. Known: {sorted(following, key=str)}")
            found.append(following[key])
        return found

    def shortest(self, invariant: str) -> Trace[S] | None:
        """Return the shortest trace that breaks an invariant, or None if no state breaks it."""
        came: dict[int, tuple[int, Key]] = {}
        for here, edges in enumerate(self.edges):
            for action, there in edges:
                if there > here:
                    came.setdefault(there, (here, action.key))
        for index, state in enumerate(self.states):
            if invariant in dict(violations(self.protocol, state, stuck=self.complete and not self.edges[index])):
                schedule: list[Key] = []
                while index:
                    index, key = came[index]  # noqa: PLW2901 (walks back to the start, then returns)
                    schedule.append(key)
                return replay(self.protocol, reversed(schedule))
        return None

    def __repr__(self) -> str:
        rest = "" if self.complete else ", and more that were not explored"
        return f"Graph of {self.protocol.name}: {len(self.states)} states, {sum(map(len, self.edges))} actions{rest}"


def explore(protocol: Protocol[S], limit: int = 5_000) -> Graph[S]:
    """Return the graph of the states that can be reached, those nearest to the start first.

    Args:
        protocol: the protocol and a small scenario.
        limit: so many states at most.

    Example:
        >>> from streamstate.tutorials.simulation import AlignedBarriers, Topology
        >>> explore(AlignedBarriers(Topology.chain(1), rounds=1, crashes=0)).complete
        True
    """
    first = protocol.start()
    states, indices = [first], {first: 0}
    edges: list[tuple[tuple[Action, int], ...]] = []
    complete = True
    while len(edges) < len(states):
        state = states[len(edges)]
        found = []
        for action in protocol.actions(state):
            reached = protocol.act(state, action)
            if reached not in indices:
                if len(states) >= limit:
                    complete = False
                    continue
                indices[reached] = len(states)
                states.append(reached)
            found.append((action, indices[reached]))
        edges.append(tuple(found))
    return Graph(protocol, tuple(states), tuple(edges), complete)
