"""What a transport does."""

from __future__ import annotations

from typing import Protocol

from streamstate.errors import TransportError

BINDINGS = "bindings"
"""The group in which a driver's server answers for a checkpoint: ``12/<path>`` is its offset log of epoch 12,
``committed/<path>`` its newest epoch, ``id/<path>`` the query's id."""


class Transport(Protocol):
    """A store of bytes in groups, which several processes use at once. Every method raises a TransportError."""

    address: str
    """Where it is, without secrets: a folder, or a URL."""

    def add(self, group: str, name: str, data: bytes) -> bool:
        """Add bytes under a name, whole or not at all; False if the name is taken."""

    def put(self, group: str, name: str, data: bytes) -> None:
        """Set the bytes under a name, whole or not at all."""

    def get(self, group: str, name: str) -> bytes | None:
        """The bytes under a name; None if there is none."""

    def names(self, group: str) -> list[str]:
        """The names in a group, in no particular order."""

    def get_all(self, group: str, names: list[str]) -> list[bytes]:
        """The bytes under some names, in their order, without those that are gone."""

    def remove(self, group: str, names: list[str]) -> None:
        """Remove names; those that are gone are fine."""


def unreachable(address: str, error: object) -> TransportError:
    """The error for a transport that does not answer."""
    reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return TransportError(
        f"The shared variables at {address} cannot be reached: {reason}\n"
        "Nothing was read or written. Start the server, or make the folder reachable, then run the query again."
    )
