"""From which epoch on a query saw each version of its shared variables."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from streamstate.snapshots.checkpoint.bindings import Version, binding_in_manifest
from streamstate.snapshots.store.entries import Entries
from streamstate.state_inspect.captured_query import CapturedQuery


@dataclass(frozen=True)
class BoundFrom:
    """A version, and the first captured epoch that saw it; it holds until the next one does."""

    epoch: int
    version: Version

    @property
    def number(self) -> int:
        """The version's number."""
        return -1 if self.version.number is None else self.version.number


class BoundVersions:
    """Reads the binding of each captured epoch once. Not for several threads at a time."""

    def __init__(self, query: CapturedQuery) -> None:
        self._query = query
        self._begins: object = None
        self._read = 0
        self._found: dict[str, list[BoundFrom]] = {}

    def all(self) -> Mapping[str, Sequence[BoundFrom]]:
        """Return each variable that epochs are bound to, with its versions in the order of epochs.

        Variables that operators only add to, or read outside of the epoch, are left out.
        """
        entries = self._query.entries()
        # Retention may have dropped epochs anywhere; then all of them are read again.
        begins = (entries[0].epoch, entries.generation) if entries else None
        if begins != self._begins or len(entries) < self._read:
            self._begins, self._read, self._found = begins, 0, {}
        self._read_on(entries)
        return self._found

    def of(self, variable: str) -> Sequence[BoundFrom]:
        """Return the versions of one variable."""
        return self.all().get(variable, [])

    def held_from(self, variable: str, number: int) -> int | None:
        """Return the first captured epoch that saw a version or a later one, no fork's own; None if none did yet."""
        known = [bound for bound in self.of(variable) if not bound.version.branch]
        at = bisect_left(known, number, key=lambda bound: bound.number)
        return known[at].epoch if at < len(known) else None

    def _read_on(self, entries: Entries) -> None:
        for entry in entries[self._read :]:
            binding = binding_in_manifest(entry.offsets) if entry.captured else None
            for name, version in ({} if binding is None else binding.versions).items():
                if version is None or version.number is None:
                    continue
                known = self._found.setdefault(name, [])
                if not known or known[-1].version != version:
                    known.append(BoundFrom(entry.epoch, version))
        self._read = len(entries)
