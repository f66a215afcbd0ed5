"""Which files of a state store make up its state at a version.

A store's folder has files for each version: its changes (``7.delta``, ``7.changelog``) and, now and then, a snapshot of
the whole state (``7.snapshot``; RocksDB: ``7.zip``, which names the ``.sst`` files with the data). In checkpoint format
2 the names carry a unique id (``7_<id>.changelog``), and the commit log says which id belongs to the epoch. The state
at a version is the newest snapshot up to it and all changes after that; epoch N writes version N + 1.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

_NAME = re.compile(r"(\d+)(?:_([0-9a-f]{8}-[0-9a-f-]{27}))?\.(delta|snapshot|changelog|zip)", re.ASCII)
_CHANGES = ("delta", "changelog")
_DATA_FILES = {"sstFiles": ("SSTs", "dfsSstFileName"), "logFiles": ("logs", "dfsLogFileName")}
SIDE_FOLDERS = tuple(folder for folder, _ in _DATA_FILES.values())
"""Where RocksDB keeps the files that a ``.zip`` names."""


@dataclass(frozen=True, order=True)
class StateFile:
    """A file of one version of a store."""

    version: int
    kind: str
    """``delta``, ``changelog`` (changes), ``snapshot`` or ``zip`` (the whole state)."""
    unique_id: str | None
    name: str

    @classmethod
    def parse(cls, name: str) -> StateFile | None:
        """The file with a name; None if the name is not that of a versioned file."""
        match = _NAME.fullmatch(name)
        return None if match is None else cls(int(match[1]), match[3], match[2], name)

    @property
    def whole(self) -> bool:
        """Whether it holds the whole state."""
        return self.kind not in _CHANGES


@dataclass(frozen=True)
class DataFile:
    """A file with data that a snapshot of RocksDB lists."""

    folder: str
    """Its folder, beside the snapshot."""
    name: str
    """Its name in the folder."""
    local_name: str
    """Its name for RocksDB."""
    size: int
    """Its bytes."""


def data_files(metadata: Mapping[str, Any]) -> list[DataFile]:
    """The files that the metadata of a snapshot of RocksDB lists.

    Raises:
        ValueError: it does not list them as Spark does.
    """
    try:
        return [
            DataFile(folder, _text(file[name]), _text(file["localFileName"]), int(file["sizeBytes"]))
            for key, (folder, name) in _DATA_FILES.items()
            for file in metadata.get(key) or ()
        ]
    except (LookupError, TypeError, AttributeError) as error:
        raise ValueError("it does not list its files as Spark does") from error


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


@dataclass(frozen=True)
class StoreFiles:
    """The names in a store's folder."""

    names: Collection[str]

    @cached_property
    def files(self) -> tuple[StateFile, ...]:
        """The files of all versions, ascending."""
        parsed = (StateFile.parse(name) for name in self.names)
        return tuple(sorted(file for file in parsed if file is not None))

    def chain(self, version: int, ids: Mapping[int, Collection[str]]) -> list[StateFile] | None:
        """The files that make up the state at a version, oldest first; None if some are gone.

        Args:
            version: epoch N writes version N + 1.
            ids: in format 2, the unique ids in the commit log, by version; files of these versions with other ids
                belong to attempts that were never committed.
        """
        if version == 0:
            return []
        upto = [file for file in self.files if file.version <= version and _is_committed(file, ids)]
        for snapshot in reversed([file for file in upto if file.whole]):
            if self._is_certain(snapshot, ids) and (chain := _chain_from(snapshot, upto, version)) is not None:
                return chain
        return _changes_after(upto, 0, version)

    def _is_certain(self, snapshot: StateFile, ids: Mapping[int, Collection[str]]) -> bool:
        """Whether a snapshot is certain to belong to the attempt that was committed."""
        if snapshot.unique_id is None or snapshot.version in ids:
            return True
        return len({file.unique_id for file in self.files if file.version == snapshot.version}) == 1

    def beside(self, name: str) -> list[str]:
        """The checksum files that belong to a file."""
        checksums = (f".{name}.crc", f"{name}.crc", f".{name}.crc.crc")
        return [checksum for checksum in checksums if checksum in self._names]

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(self.names)


def _is_committed(file: StateFile, ids: Mapping[int, Collection[str]]) -> bool:
    committed = ids.get(file.version)
    return file.unique_id is None or not committed or file.unique_id in committed


def _chain_from(snapshot: StateFile, upto: Sequence[StateFile], version: int) -> list[StateFile] | None:
    """The chain that begins with a snapshot."""
    later = _changes_after(upto, snapshot.version, version)
    if later is None:
        return None
    # In format 2, the changes of the same version record the lineage of the snapshot.
    attempt = (snapshot.version, snapshot.unique_id)
    same = [file for file in upto if (file.version, file.unique_id) == attempt and file != snapshot]
    return [*same, snapshot, *later]


def _changes_after(upto: Sequence[StateFile], after: int, version: int) -> list[StateFile] | None:
    """The changes of all later versions, and snapshots between them; None if the changes of a version are missing.

    In format 2 a version may have the files of several attempts: all are kept, and the ids say which one counts.
    """
    later = [file for file in upto if file.version > after]
    with_changes = {file.version for file in later if not file.whole}
    return later if with_changes >= {*range(after + 1, version + 1)} else None
