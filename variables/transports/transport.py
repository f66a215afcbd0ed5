"""The interface of a transport."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Protocol

from streamstate.errors import InvalidArgumentError, TransportError, VariableError

MAX_BYTES = 16 * 2**20
"""The most that one version, or what one task contributes, may take."""

_KEY, _QUOTED = r"[A-Za-z][A-Za-z0-9_]{0,62}-[A-Za-z0-9_]{1,63}", r"(?!\.)[A-Za-z0-9_.~%-]{1,400}"
_GROUP = re.compile(rf"log/{_KEY}(?:@{_QUOTED})?|stage/{_KEY}/{_QUOTED}|(?:runs|decided)/{_QUOTED}|heard/{_KEY}")

BINDINGS = "bindings"
"""The group in which a driver's server answers for a checkpoint: ``12/<path>`` is its offset log of epoch 12,
``committed/<path>`` its newest epoch, ``id/<path>`` the query's id."""


class Transport(Protocol):
    """A store of bytes in groups, which several processes use at once. Every method raises a TransportError."""

    address: str
    """Its location, without secrets: a folder, or a URL."""

    def add(self, group: str, name: str, data: bytes) -> bool:
        """Add bytes under a name, whole or not at all; False if the name is taken."""

    def put(self, group: str, name: str, data: bytes) -> None:
        """Set the bytes under a name, whole or not at all."""

    def get(self, group: str, name: str) -> bytes | None:
        """Return the bytes under a name; None if there is none."""

    def names(self, group: str) -> list[str]:
        """Return the names in a group, in no particular order."""

    def get_all(self, group: str, names: list[str]) -> list[bytes]:
        """Return the bytes under some names, in their order, without those that are gone."""

    def remove(self, group: str, names: list[str]) -> None:
        """Remove names; those that are gone are fine."""


def check_group(group: str) -> str:
    """Return the group if it is valid: a group is also a folder, and must not lead out of its transport.

    Raises:
        InvalidArgumentError: it is not.
    """
    if _GROUP.fullmatch(group):
        return group
    raise InvalidArgumentError(
        f"Invalid group {group[:100]!r} of a transport: expected log/…, stage/…, runs/…, decided/… or heard/… of a"
        " variable."
    )


def numbers_among(names: Iterable[str], *, width: int = 1) -> list[int]:
    """Return the numbers among a group's names; a system may put files of its own there."""
    found = [int(name) for name in names if re.fullmatch(r"[0-9]{1,18}", name)]
    spelled = {f"{number:0{width}}" for number in found}.intersection(names)
    return [int(name) for name in spelled]


def number_in(data: bytes, transport: Transport, what: str) -> int:
    """Return the number that bytes spell.

    Raises:
        VariableError: they spell none; ``what`` says what they are.
    """
    if re.fullmatch(rb"-?[0-9]{1,18}", data):
        return int(data)
    raise VariableError(f"{what} in {transport.address} is damaged: expected a number, got {data[:40]!r}.")


def unreachable(address: str, error: object) -> TransportError:
    """Return the error for a transport that does not answer."""
    reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return TransportError(
        f"The shared variables at {address} cannot be reached: {reason}\n"
        "Nothing was read or written. Start the server, or make the folder reachable, then run the query again."
    )
