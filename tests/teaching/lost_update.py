"""A small protocol for tests: two clerks add to one account, each in two steps, so that an addition can be lost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from streamstate.tutorials.simulation import Action, Protocol, Scene
from streamstate.tutorials.simulation.protocol import Invariant


class Account(NamedTuple):
    """The balance, what each clerk has read, and how often each may still add."""

    balance: int
    read: tuple[int | None, int | None]
    left: tuple[int, int]


class LostUpdate(Protocol[Account]):
    """Reading and writing are separate steps; ``times`` is how often each clerk adds 1."""

    name = "lost update"

    def __init__(self, times: int = 2) -> None:
        self.times = times

    def start(self) -> Account:
        """An empty account."""
        return Account(0, (None, None), (self.times, self.times))

    def actions(self, state: Account) -> list[Action]:
        """Each clerk reads, or writes what it has read, plus 1."""
        found = []
        for clerk, name in enumerate(("Ann", "<b>Bob</b></script>")):
            if state.read[clerk] is not None:
                found.append(Action(("write", clerk), f"{name} writes"))
            elif state.left[clerk]:
                found.append(Action(("read", clerk), f"{name} reads"))
        return found

    def act(self, state: Account, action: Action) -> Account:
        """Read or write."""
        kind, clerk = action.key
        assert isinstance(clerk, int)
        read, left = list(state.read), list(state.left)
        if kind == "read":
            read[clerk] = state.balance
            return state._replace(read=(read[0], read[1]))
        balance, read[clerk] = (read[clerk] or 0) + 1, None
        left[clerk] -= 1
        return Account(balance, (read[0], read[1]), (left[0], left[1]))

    def finished(self, state: Account) -> bool:
        """Nobody adds any more."""
        return state.left == (0, 0)

    @property
    def invariants(self) -> Mapping[str, Invariant[Account]]:
        """The balance is the number of additions."""
        return {"every addition counts": self._counts}

    def _counts(self, state: Account) -> str | None:
        added = 2 * self.times - sum(state.left)
        return None if state.balance == added else f"{added} additions, but {state.balance} in the account."

    def scene(self, state: Account) -> Scene:
        """A box, a bar and two chips."""
        scene = Scene(300)
        scene.box("account", 10, 10, 120, "account", cells=[f"balance {state.balance}"])
        scene.bar("share", 10, 90, 120, "filled", share=state.balance / 4)
        for clerk, value in enumerate(state.read):
            scene.chip(f"clerk {clerk}", 220, 20 + 30 * clerk, f"has read {value}")
        return scene


class Stuck(LostUpdate):
    """A clerk waits for ever once it has read."""

    def actions(self, state: Account) -> list[Action]:
        """Only reading is possible."""
        return [action for action in super().actions(state) if action.key[0] == "read"]


class Endless(LostUpdate):
    """An addition does not reduce the number of those left."""

    def act(self, state: Account, action: Action) -> Account:
        """Forget that something was added."""
        return super().act(state, action)._replace(left=state.left)
