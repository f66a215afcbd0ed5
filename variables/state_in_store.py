"""Versions that the transport has forgotten, read from the store by whoever needs one: few workers do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from streamstate.variables.declaration import Declaration


def state_in_store(declaration: Declaration) -> Callable[[int], Any]:
    """Return a function that reads a version's state from the store; it imports Delta when called."""

    def state(number: int) -> Any:
        from streamstate.variables.recorded_versions import recorded_state

        return recorded_state(declaration, number)

    return state
