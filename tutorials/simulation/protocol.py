"""A protocol as a transition system: states, the actions that are enabled in each, and what must always hold."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Generic, TypeAlias, TypeVar

if TYPE_CHECKING:
    from streamstate.tutorials.simulation.scene import Scene

S = TypeVar("S", bound=Hashable)
Key: TypeAlias = tuple[str | int, ...]
"""The name of an action: its kind, then where it happens."""
Invariant: TypeAlias = "Callable[[S], str | None]"
"""A function of a state: None, or the reason why the state is wrong."""


@dataclass(frozen=True, slots=True)
class Action:
    """Something that can happen next.

    Args:
        key: names the action; equal keys in equal states do the same.
        label: the action in words, without a full stop.
        weight: how likely a random run takes it, compared with the other enabled actions.
    """

    key: Key
    label: str
    weight: float = 1.0


class Protocol(ABC, Generic[S]):
    """The base of all protocols. An instance is one scenario; its methods change nothing.

    Two instances are equal if they are of the same class and have the same attributes. A mutant is a subclass that
    overrides one rule and has a ``fault``.
    """

    name: ClassVar[str]
    fault: ClassVar[str] = ""
    """What a mutant does wrong, in words; empty for a correct protocol."""

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((type(self), *vars(self).values()))

    @abstractmethod
    def start(self) -> S:
        """Return the first state."""

    @abstractmethod
    def actions(self, state: S) -> Sequence[Action]:
        """Return the enabled actions, always in the same order."""

    @abstractmethod
    def act(self, state: S, action: Action) -> S:
        """Return the state after an action that is enabled."""

    @abstractmethod
    def finished(self, state: S) -> bool:
        """Check that nothing is left to do."""

    @property
    @abstractmethod
    def invariants(self) -> Mapping[str, Invariant[S]]:
        """What must hold in every state, by name."""

    @abstractmethod
    def scene(self, state: S) -> Scene:
        """Return the picture of a state."""

    def tell(self, before: S, action: Action, after: S) -> str:
        """Return what an action did, in one or two sentences."""
        return f"{action.label}."
