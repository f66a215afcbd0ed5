"""The versions of a variable, in its transport: a log to which all append, and in which each number is taken once.

A version holds the whole state, or of a map what changed since the version before. Who publishes a version names the
number after the newest that was read; if it is taken by then, the newest is read again (compare-and-set).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any
from urllib.parse import quote

from streamstate.errors import VariableError
from streamstate.variables.declaration import Declaration
from streamstate.variables.transports.transport import Transport, numbers_among
from streamstate.variables.version_bytes import VersionEntry, decoded_version, encoded_version

INIT, SET, MERGE = "init", "set", "merge"
"""The origin of a version."""

_WIDTH = 10  # digits of a version's name
# A map is written whole as often as that, or when most of it has changed.
_WHOLE_EVERY = 32


class VersionLog:
    """The versions of one variable; it remembers the newest state that it has read.

    Args:
        transport: where they are.
        declaration: the variable.
        branch: the query id of a fork, whose versions nobody else sees; empty: the variable's own.
        recorded: the state of a version that is no longer in the transport, from the store; None: it is not there.
    """

    def __init__(
        self,
        transport: Transport,
        declaration: Declaration,
        branch: str = "",
        recorded: Callable[[int], Any] | None = None,
    ) -> None:
        self.transport = transport
        self.declaration = declaration
        self.branch = branch
        self.recorded = recorded
        self.group = f"log/{declaration.key}" + (f"@{quote(branch, safe='')}" if branch else "")
        self._known: tuple[int, Any] | None = None

    @property
    def name(self) -> str:
        """The variable's name."""
        return self.declaration.name

    def numbers(self) -> list[int]:
        """Return the numbers of the versions in the transport, ascending."""
        return sorted(numbers_among(self.transport.names(self.group), width=_WIDTH))

    def head(self) -> int:
        """Return the newest version's number; −1 if there is none."""
        return max(self.numbers(), default=-1)

    def entry(self, number: int) -> VersionEntry:
        """Return a version.

        Raises:
            VariableError: the transport does not have it.
            TransportError: the transport cannot be reached.
        """
        found = self._found(number)
        if found is None:
            raise self.gone(number)
        return found

    def gone(self, number: int) -> VariableError:
        """Return the error for a version that is neither in the transport nor in the store."""
        return VariableError(
            f"Version {number} of {self.name} is gone: neither {self.transport.address} nor the store has it.\n"
            "Was the transport emptied, or the store copied without it? Nothing was read in its place."
        )

    def _found(self, number: int, *, with_state: bool = True) -> VersionEntry | None:
        data = self.transport.get(self.group, _spelled(number))
        what = f"Version {number} of {self.name} in {self.transport.address}"
        return (
            None if data is None else decoded_version(number, data, self.declaration, with_state=with_state, what=what)
        )

    def state(self, number: int) -> Any:
        """Return the state at a version, which others may hold too and nobody changes.

        Raises:
            VariableError, TransportError: as :meth:`entry`.
        """
        known, is_map = self._known, self.declaration.type.is_map
        near = known is not None and (number == known[0] or (is_map and 0 < number - known[0] <= _WHOLE_EVERY))
        later: list[VersionEntry] = []
        state: Any = known[1] if near and known is not None else None
        for at in range(number, known[0] if near and known is not None else -1, -1):
            entry = self._found(at, with_state=not near)
            if entry is None:
                state = self._from_store(at)
                break
            # What changed since a state that is known costs less than a whole one.
            if entry.whole and (not near or entry.change is None):
                state = self.entry(at).state if near else entry.state
                break
            later.append(entry)
        if later:
            state = dict(state or {})  # a task may hold the version before
        for entry in reversed(later):
            state.update(entry.change or {})
            for key in entry.removed:
                state.pop(key, None)
        self._known = number, state
        return state

    def _from_store(self, number: int) -> Any:
        if self.recorded is None:
            raise self.gone(number)
        return self.recorded(number)

    def value(self, number: int) -> Any:
        """Return the value at a version; of a map, a view that cannot be changed, which is empty if nothing was set."""
        try:
            found = self.declaration.merging.value(self.state(number))
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            raise VariableError(f"Version {number} of {self.name} is no state of its merge: {error}") from error
        return MappingProxyType(found or {}) if self.declaration.type.is_map else found

    def begin(self, state: Any, *, number: int = 0, kind: str = INIT, by: str = "", sets: int = 0) -> None:
        """Publish a log's first version, unless there is one of the number."""
        entry = VersionEntry(number, kind, by, datetime.now(UTC), sets, state=state)
        self.transport.add(self.group, _spelled(number), encoded_version(entry, self.declaration))

    def set(self, state: Any, by: str, expected: int | None) -> VersionEntry:
        """Publish a state that replaces all before.

        ``expected`` is the number of versions that the caller knows were set so far; None: it does not matter.

        Raises:
            Overtaken: another has set the variable since; nothing was published.
        """

        def made(newest: VersionEntry, before: Any) -> VersionEntry:
            if expected is not None and newest.sets != expected:
                raise Overtaken
            changed, removed = _changes(before, state) if self.declaration.type.is_map else (None, ())
            return self._next(
                newest, kind=SET, by=by, sets=newest.sets + 1, state=state, change=changed, removed=removed
            )

        entry = self._published(made)
        assert entry is not None
        return entry

    def merge(self, query: str, epoch: int, contribution: Any, contributions: int) -> VersionEntry | None:
        """Publish what an epoch contributed, merged into the newest state; None if a version has it already."""

        def made(newest: VersionEntry, before: Any) -> VersionEntry | None:
            if newest.merged.get(query, -1) >= epoch:
                return None
            state = self.declaration.merging.merged(before, contribution)
            changed = {key: state[key] for key in contribution} if self.declaration.type.is_map else contribution
            return self._next(
                newest,
                kind=MERGE,
                by=query,
                merged={**newest.merged, query: epoch},
                epoch=epoch,
                contributions=contributions,
                state=state,
                change=changed,
            )

        return self._published(made)

    def _next(self, newest: VersionEntry, **made: Any) -> VersionEntry:
        """Return the version after the newest; of a map, whole only now and then."""
        entry = replace(VersionEntry(newest.number + 1, "", "", datetime.now(UTC), newest.sets, newest.merged), **made)
        if not self.declaration.type.is_map or not entry.number % _WHOLE_EVERY or entry.change is None:
            return entry
        small = len(entry.change) + len(entry.removed) < len(entry.state or ()) // 2
        return replace(entry, whole=not small)

    def _published(self, made: Callable[[VersionEntry, Any], VersionEntry | None]) -> VersionEntry | None:
        while True:
            head = self.head()
            if head < 0:
                raise self.gone(0)
            newest, before = self._found(head, with_state=False) or self.entry(head), self.state(head)
            entry = made(newest, before)
            if entry is None:
                return None
            if self.transport.add(self.group, _spelled(entry.number), encoded_version(entry, self.declaration)):
                self._known = entry.number, entry.state
                return entry

    def drop(self, before: int) -> None:
        """Remove versions before one, which the store has; of a map, those that it does not build on."""
        if self.declaration.type.is_map:
            before -= _WHOLE_EVERY
        self.transport.remove(self.group, [_spelled(number) for number in self.numbers() if number < before])


class Overtaken(Exception):  # noqa: N818 (it never leaves this room)
    """Another has set the variable since."""


def _changes(before: dict[Any, Any] | None, after: dict[Any, Any] | None) -> tuple[dict[Any, Any], tuple[Any, ...]]:
    """Return the entries of a map that are new or changed, and the keys that are gone."""
    old, new = before or {}, after or {}
    changed = {key: value for key, value in new.items() if key not in old or old[key] != value}
    return changed, tuple(key for key in old if key not in new)


def _spelled(number: int) -> str:
    return f"{number:0{_WIDTH}}"
