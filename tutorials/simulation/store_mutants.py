"""Log-structured stores with one mistake each."""

from __future__ import annotations

from collections.abc import Collection

from streamstate.tutorials.simulation.log_structured import LogStructured, Stored
from streamstate.tutorials.simulation.store_files import Entries, File, Files, held, merged, needed


class NewestSnapshot(LogStructured):
    """A load begins with the newest snapshot of all."""

    fault = "a load takes the newest snapshot, though it may be newer than the version"

    def base(self, files: Collection[File], version: int) -> File | None:
        """Return the newest snapshot."""
        return super().base(files, self.versions)


class DropsTombstones(LogStructured):
    """A changelog has puts only."""

    fault = "a changelog leaves out deletions"

    def entries(self, memtable: Entries) -> Entries:
        """Return the puts."""
        return held(dict(memtable))


class Resurrects(LogStructured):
    """A compaction drops deletions before it merges."""

    fault = "a compaction drops deletions before it merges the files"

    def compact(self, files: Files) -> Entries:
        """Return the puts of all files."""
        return merged(file._replace(entries=held(dict(file.entries))) for file in files)


class PurgesByAge(LogStructured):
    """Files older than the retained versions are purged."""

    fault = "a purge counts versions, and not the snapshot and changelogs that they need"

    def may_purge(self, file: File, state: Stored) -> bool:
        """Check that a file is older than all retained versions."""
        return file.version < self.retained(state).start


class PurgesTooSoon(LogStructured):
    """A purge relies on snapshots that are not uploaded yet."""

    fault = "a purge relies on a snapshot that only the local disk has"

    def may_purge(self, file: File, state: Stored) -> bool:
        """Check that no retained version needs a file, with the local disk."""
        return all(file not in needed(state.visible, version) for version in self.retained(state))


class AcknowledgesFirst(LogStructured):
    """A version is acknowledged before its changelog is uploaded."""

    fault = "a version is acknowledged before its changelog is uploaded"

    def may_acknowledge(self, state: Stored, changelog: File) -> bool:
        """Check nothing: the changelog is on the local disk."""
        return True


STORE_MUTANTS: tuple[type[LogStructured], ...] = (
    NewestSnapshot,
    DropsTombstones,
    Resurrects,
    PurgesByAge,
    PurgesTooSoon,
    AcknowledgesFirst,
)
"""One mistake each."""
