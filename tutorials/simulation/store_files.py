"""The files of a log-structured store, and which of them a version is loaded from."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Literal, NamedTuple, TypeAlias

Kind: TypeAlias = Literal["changelog", "snapshot"]
Entries: TypeAlias = "tuple[tuple[str, int | None], ...]"
"""Keys in order, with their values; None: the key was deleted."""


class File(NamedTuple):
    """A file of the store.

    Args:
        version: the version that it belongs to.
        kind: a changelog has what changed since the version before; a snapshot has all that the version holds.
        entries: pairs of a key and its value; in a changelog, None says that the key was deleted.
    """

    version: int
    kind: Kind
    entries: Entries

    @property
    def name(self) -> str:
        """Its name, such as "changelog 3"."""
        return f"{self.kind} {self.version}"

    def __repr__(self) -> str:
        return f"{self.name}: {in_words(self.entries)}"


Files: TypeAlias = tuple[File, ...]


def newest_snapshot(files: Iterable[File], version: int) -> File | None:
    """Return the newest snapshot up to a version; None if there is none."""
    found = (file for file in files if file.kind == "snapshot" and file.version <= version)
    return max(found, key=lambda file: file.version, default=None)


def chain(files: Iterable[File], version: int, base: File | None) -> Files | None:
    """Return a snapshot, and the changelogs after it up to a version; None if one of these is missing.

    Args:
        files: the files that are there.
        version: the version to load.
        base: the snapshot to begin with; None: begin with the first changelog.
    """
    changelogs = {file.version: file for file in files if file.kind == "changelog"}
    numbers = range(base.version + 1 if base else 1, version + 1)
    if not changelogs.keys() >= set(numbers):
        return None
    return (*([base] if base else ()), *(changelogs[number] for number in numbers))


def needed(files: Collection[File], version: int) -> Files:
    """Return the files that a version is loaded from; none if it cannot be loaded."""
    return chain(files, version, newest_snapshot(files, version)) or ()


def merged(files: Iterable[File]) -> Entries:
    """Return what files hold together, each newer than those before it."""
    table: dict[str, int | None] = {}
    for file in files:
        table |= dict(file.entries)
    return held(table)


def held(table: Mapping[str, int | None]) -> Entries:
    """Return the entries of a table, without deleted keys."""
    return tuple(sorted((key, value) for key, value in table.items() if value is not None))


def with_file(files: Files, file: File) -> Files:
    """Return files with one more, which replaces one of the same name."""
    return tuple(sorted((file, *(other for other in files if other.name != file.name)), key=lambda each: each[:2]))


def in_words(entries: Entries) -> str:
    """Return entries in words: "x=1, y deleted"."""
    return ", ".join(f"{key} deleted" if value is None else f"{key}={value}" for key, value in entries) or "nothing"
