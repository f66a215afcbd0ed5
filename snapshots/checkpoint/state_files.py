"""The files of a state store that make up its state at a version.

A store's folder has files for each version: its changes (``7.delta``, ``7.changelog``) and, now and then, a snapshot of
the whole state (``7.snapshot``; RocksDB: ``7.zip``, which names the ``.sst`` files with the data). In checkpoint format
2 the names carry a unique id (``7_<id>.changelog``), and the commit log says which id belongs to the epoch. The state
at a version is the newest snapshot up to it and all changes after that; epoch N writes version N + 1.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Container, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any, TypeAlias

_NAME = re.compile(r"(\d+)(?:_([0-9a-f]{8}-[0-9a-f-]{27}))?\.(delta|snapshot|changelog|zip)", re.ASCII)
CHANGES = {"RocksDB": "changelog", "HDFS": "delta"}
"""The suffix of files with changes, by provider."""
SNAPSHOTS = {"RocksDB": "zip", "HDFS": "snapshot"}
"""The suffix of files with a whole state, by provider."""
_DATA_FILES = {"sstFiles": ("SSTs", "dfsSstFileName"), "logFiles": ("logs", "dfsLogFileName")}
SIDE_FOLDERS = tuple(folder for folder, _ in _DATA_FILES.values())
"""The folders in which RocksDB keeps the files that a ``.zip`` names."""

Ids: TypeAlias = "Callable[[int], Collection[str] | None]"
"""Returns the unique ids that the commit log has of a version's files; nothing in format 1, and once it is purged."""


@dataclass(frozen=True)
class StateFile:
    """A file of one version of a store."""

    version: int
    kind: str
    """``delta``, ``changelog`` (changes), ``snapshot`` or ``zip`` (the whole state)."""
    unique_id: str | None
    name: str

    @classmethod
    def parse(cls, name: str) -> StateFile | None:
        """Return the file with a name; None if the name is not that of a versioned file."""
        match = _NAME.fullmatch(name)
        return None if match is None else cls(int(match[1]), match[3], match[2], name)

    @property
    def whole(self) -> bool:
        """True if it holds the whole state."""
        return self.kind in SNAPSHOTS.values()


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
    """Return the files that the metadata of a snapshot of RocksDB lists.

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
class StateChain:
    """The files that make up a state, oldest first: its newest snapshot, if it has one, and all changes after that."""

    files: tuple[StateFile, ...]
    snapshot: StateFile | None = None
    missing: int | None = None
    """The version without changes that breaks the chain; None if the state is complete."""

    @property
    def changes(self) -> list[StateFile]:
        """The files with the changes after the snapshot, oldest first."""
        first = self.snapshot.version + 1 if self.snapshot else 1
        return [file for file in self.files if file.version >= first and not file.whole]


@dataclass(frozen=True)
class StoreFiles:
    """The names in a store's folder."""

    names: Collection[str]

    @cached_property
    def files(self) -> tuple[StateFile, ...]:
        """The files of all versions, ascending."""
        parsed = (file for name in self.names if (file := StateFile.parse(name)) is not None)
        return tuple(sorted(parsed, key=lambda file: (file.version, file.kind, file.name)))

    def chain(
        self,
        version: int,
        ids: Ids,
        *,
        lineage: Callable[[StateFile], Mapping[int, str]] | None = None,
        skipped: Container[str] = (),
    ) -> StateChain:
        """Follow a version back to the newest snapshot, or to version 0, which is empty.

        In format 2 a version can have files of several attempts. With ``lineage`` one counts: the attempt that the
        commit log or a later changelog names. Otherwise all are kept that may have been committed.

        Args:
            version: epoch N writes version N + 1.
            ids: the ids in the commit log.
            lineage: reads a file with changes, and returns the ids of the versions before.
            skipped: names of snapshots to pass over.
        """
        known: dict[int, Collection[str]] = {}
        later: list[StateFile] = []
        for at in range(version, 0, -1):
            committed = known.get(at) or ids(at)
            files = self._of(at, committed, exact=lineage is not None)
            snapshots = (file for file in reversed(files) if file.whole and file.name not in skipped)
            snapshot = next((file for file in snapshots if committed or self._is_certain(file)), None)
            if snapshot is not None:
                # In format 2, the changes of the same version record the lineage of the snapshot.
                same = [file for file in files if not file.whole and file.unique_id == snapshot.unique_id]
                return StateChain((*same, snapshot, *reversed(later)), snapshot)
            changes = [file for file in files if not file.whole]
            if not changes:
                return StateChain((*reversed(later),), missing=at)
            if lineage is not None:
                known |= {before: [unique_id] for before, unique_id in lineage(changes[-1]).items()}
            later += reversed(files)
        return StateChain((*reversed(later),))

    def newest_snapshots(self, version: int, ids: Ids) -> list[StateFile]:
        """Return the newest snapshot up to a version; several if failed attempts cannot be told from it."""
        for at in sorted({file.version for file in self.files if file.whole and file.version <= version}, reverse=True):
            if found := [file for file in self._of(at, ids(at)) if file.whole]:
                return found
        return []

    @cached_property
    def since_snapshot(self) -> list[StateFile]:
        """The files with changes after the newest snapshot, of all attempts, ascending."""
        newest = max((file.version for file in self.files if file.whole), default=0)
        return [file for file in self.files if file.version > newest]

    def beside(self, name: str) -> list[str]:
        """Return the checksum files that belong to a file."""
        checksums = (f".{name}.crc", f"{name}.crc", f".{name}.crc.crc")
        return [checksum for checksum in checksums if checksum in self._names]

    def _of(self, version: int, committed: Collection[str] | None, *, exact: bool = False) -> list[StateFile]:
        """Return the files of a version, without those of attempts that were never committed."""
        files = self._by_version.get(version, [])
        if not committed:
            return [file for file in files if file.unique_id is None] if exact else files
        return [file for file in files if file.unique_id in committed or (file.unique_id is None and not exact)]

    def _is_certain(self, snapshot: StateFile) -> bool:
        """Check that a snapshot belongs to the committed attempt: only that one left files."""
        return snapshot.unique_id is None or len({file.unique_id for file in self._by_version[snapshot.version]}) == 1

    @cached_property
    def _by_version(self) -> dict[int, list[StateFile]]:
        return {version: list(files) for version, files in groupby(self.files, key=lambda file: file.version)}

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(self.names)
