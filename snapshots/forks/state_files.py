"""Which files of a state store hold its state at one version.

A store's folder has files for each version: what changed (``7.delta``, ``7.changelog``) and, now and then, all of it
(``7.snapshot``; RocksDB: ``7.zip``, which names the ``.sst`` files that hold the data). In checkpoint format 2 the
names carry a unique id (``7_<id>.changelog``), and the commit log says which id is the epoch's. The state at a version
is the newest whole one up to it and all changes after that; epoch N left version N + 1.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType

__all__ = ["StateFile", "StoreFiles"]

_NAME = re.compile(r"(\d+)(?:_([0-9a-f]{8}-[0-9a-f-]{27}))?\.(delta|snapshot|changelog|zip)")
EMPTY: Mapping[int, Collection[str]] = MappingProxyType({})
_CHANGES = ("delta", "changelog")
SIDE_FOLDERS = ("SSTs", "logs")
"""Where RocksDB keeps the files that a ``.zip`` names."""


@dataclass(frozen=True, order=True)
class StateFile:
    """One file of a version of a store."""

    version: int
    kind: str
    """``delta``, ``changelog`` (changes), ``snapshot`` or ``zip`` (whole)."""
    unique_id: str | None
    name: str

    @classmethod
    def parse(cls, name: str) -> StateFile | None:
        """The file of that name; None where it is none of a version."""
        match = _NAME.fullmatch(name)
        return None if match is None else cls(int(match[1]), match[3], match[2], name)

    @property
    def whole(self) -> bool:
        """Whether it holds all of the state."""
        return self.kind not in _CHANGES


@dataclass(frozen=True)
class StoreFiles:
    """A store's folder.

    Args:
        names: the names in it.
    """

    names: Collection[str]

    @cached_property
    def files(self) -> tuple[StateFile, ...]:
        """The files of all versions, ascending."""
        parsed = (StateFile.parse(name) for name in self.names)
        return tuple(sorted(one for one in parsed if one is not None))

    @property
    def newest(self) -> int | None:
        """The newest version that has a file."""
        return self.files[-1].version if self.files else None

    def chain(self, version: int, ids: Mapping[int, Collection[str]] = EMPTY) -> list[StateFile] | None:
        """The files that make up the state at a version, oldest first; None where some are gone.

        Args:
            version: epoch N left version N + 1.
            ids: in format 2, the unique ids that the commit log gives each version that it still knows; others of
                such a version are of attempts that were never committed.
        """
        if version == 0:
            return []
        upto = [one for one in self.files if one.version <= version and _committed(one, ids)]
        for whole in reversed([one for one in upto if one.whole]):
            if self._certain(whole, ids) and (chain := _from(whole, upto, version)) is not None:
                return chain
        return _linked(upto, 0, version)

    def _certain(self, whole: StateFile, ids: Mapping[int, Collection[str]]) -> bool:
        """Whether a whole state is of the attempt that was committed."""
        if whole.unique_id is None or whole.version in ids:
            return True
        return len({one.unique_id for one in self.files if one.version == whole.version}) == 1

    def beside(self, name: str) -> list[str]:
        """The checksum files that belong to a file."""
        return [one for one in (f".{name}.crc", f"{name}.crc", f".{name}.crc.crc") if one in self._names]

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(self.names)


def _committed(one: StateFile, ids: Mapping[int, Collection[str]]) -> bool:
    known = ids.get(one.version)
    return one.unique_id is None or not known or one.unique_id in known


def _from(whole: StateFile, upto: Sequence[StateFile], version: int) -> list[StateFile] | None:
    """The chain that begins with a whole state."""
    later = _linked(upto, whole.version, version)
    if later is None:
        return None
    # Changes of the same version say, in format 2, what the whole state descends from.
    same = [one for one in upto if one.version == whole.version and one.unique_id == whole.unique_id and one != whole]
    return [*same, whole, *later]


def _linked(upto: Sequence[StateFile], after: int, version: int) -> list[StateFile] | None:
    """The changes of all versions after one, and whole states between them; None where a version is missing.

    In format 2 a version may have the files of several attempts: all are kept, and the ids say which one counts.
    """
    found = [one for one in upto if one.version > after]
    has_changes = {one.version for one in found if not one.whole}
    return found if has_changes >= {*range(after + 1, version + 1)} else None
