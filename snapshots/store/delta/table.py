"""A handle on a Delta table that makes few requests to an object store."""

from __future__ import annotations

import contextlib
import functools
import json
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from deltalake import DeltaTable

from streamstate.errors import StoreError
from streamstate.snapshots.store.delta.log_checks import entry_name
from streamstate.snapshots.store.delta.place import LOG, Place
from streamstate.snapshots.store.delta.size import SIZE, Size, size_of

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

# With more new entries than this, letting deltalake read the whole log costs no more.
_FEW = 10

LONG_AGO = 3600
"""After so many seconds without a look at a table, the entries since may have been removed (see ``maintenance``)."""

# Errors of an entry that is not as streamstate writes them: then deltalake reads it.
_UNEXPECTED = (OSError, ValueError, LookupError, AttributeError, TypeError, StopIteration, RecursionError)

CHECKPOINT_INTERVAL = 20
"""Versions between two log checkpoints: what opening a table reads of its log."""


_FEATURES = frozenset({"timestampNtz"})
"""The features beyond Delta's first version that a reader of streamstate's tables needs."""


def check_features(table: DeltaTable, place: Place) -> None:
    """Raise unless a table's data files are read as they are: other writers can mark rows as deleted beside them.

    Raises:
        StoreError: reading it needs more of Delta than streamstate knows.
    """
    unknown = sorted(set(table.protocol().reader_features or ()) - _FEATURES)
    if unknown:
        raise StoreError(
            f"The table {place} uses {', '.join(unknown)} of Delta, which streamstate does not read: rows could be"
            " wrong.\nAnother program has changed the table. Restore it from a backup, or export it with that program."
        )


def gets_checkpoint(version: int) -> bool:
    """Return whether the commit of a version is followed by a log checkpoint."""
    return version > 0 and version % CHECKPOINT_INTERVAL == 0


class Table(DeltaTable):
    """A table that reads its log less often than deltalake does.

    To look up an application's version, deltalake reads all log entries since the last log checkpoint; to update, it
    lists the log. Here the versions are cached and updated from the new entries alone, and one request shows whether
    there are any.

    Args:
        place: where the table is.
    """

    def __init__(self, place: Place) -> None:
        super().__init__(place.client_uri, storage_options=place.storage_options)
        check_features(self, place)
        self._place = place
        self._versions: dict[str, int | None] = {}
        self._versions_at = self._opened_at = self.version()
        self._looked_at = time.monotonic()
        self._own: tuple[int, dict[str, int]] = (-1, {})
        self._size: tuple[int, Size] | None = None

    def committed(self, version: int, versions: dict[str, int]) -> None:
        """Remember what this process has committed after this version, so that it need not be read.

        Args:
            version: the version of the table.
            versions: the versions of applications that the commit sets.
        """
        self._own = (version, versions)

    def size(self) -> Size:
        """Return the size of this version's data files, computed once per version."""
        if self._size is None or self._size[0] != self.version():
            self._size = self.version(), self._kept_size() or size_of(self)
        return self._size[1]

    def has_size(self, version: int, size: Size) -> None:
        """Keep the size that a later version has."""
        self._size = version, size

    @property
    def is_slow(self) -> bool:
        """Return whether opening the table anew pays off: a handle gets slower with every version that it loads."""
        return self.version() - self._opened_at >= CHECKPOINT_INTERVAL

    @functools.cached_property
    def _files(self) -> FileSystem:
        return self._place.filesystem()

    def has_newer(self) -> bool:
        """Return whether the log has an entry after this version; versions have no gaps."""
        looked_at, self._looked_at = self._looked_at, time.monotonic()
        if self._looked_at - looked_at > LONG_AGO:
            return True  # let deltalake look
        if self._own[0] > self.version():
            return True
        entry = f"{LOG}/{entry_name(self.version() + 1)}"
        if self._place.folder is not None:
            return (self._place.folder / entry).exists()
        try:
            self._files.open_input_file(entry).close()
        except FileNotFoundError:
            return False
        except OSError:
            return True  # let deltalake find out and report what is wrong
        return True

    def update_incremental(self) -> None:
        """Update to the newest version."""
        before = self.version()
        super().update_incremental()
        check_features(self, self._place)
        self._follow(before)

    def transaction_version(self, app_id: str) -> int | None:
        """Return an application's version; None if it has committed nothing."""
        if self._versions_at != self.version():
            self._versions.clear()
            self._versions_at = self.version()
        if app_id not in self._versions:
            recent = self._recently_committed()
            self._versions[app_id] = recent[app_id] if app_id in recent else super().transaction_version(app_id)
        return self._versions[app_id]

    def _recently_committed(self) -> dict[str, int]:
        """Return the versions of applications that the newest entries set, as far as they are quick to read."""
        with contextlib.suppress(*_UNEXPECTED):
            if self._place.folder is not None:
                newest = self.version()
                return dict(self._committed(newest - 1)) | dict(self._committed(newest))
        return {}  # also if only the newest cannot be read: an older one's versions may be out of date

    def _kept_size(self) -> Size | None:
        """Return the size that this version's commit keeps; None if it keeps none, or is not quick to read."""
        with contextlib.suppress(*_UNEXPECTED):
            if self._place.folder is not None:
                return Size.from_json(next(self._actions(self.version(), "commitInfo"))[SIZE])
        return None

    def _follow(self, before: int) -> None:
        """Update the cached versions from the entries after a version."""
        if not self._versions or self._versions_at != before or self.version() - before > _FEW:
            return
        try:
            added = range(before + 1, self.version() + 1)
            committed = [pair for version in added for pair in self._committed(version)]
        except _UNEXPECTED:
            return  # an unexpected entry: the next lookup goes to deltalake
        self._versions |= {app: version for app, version in committed if app in self._versions}
        self._versions_at = self.version()

    def records(self) -> Iterator[dict[str, Any]]:
        """Return the metadata of each version's commit, the newest first, to the log's beginning.

        deltalake's own ``history`` is empty for a path with ``#`` or ``?``.
        """
        for version in range(self.version(), -1, -1):
            try:
                yield {"version": version} | next(self._actions(version, "commitInfo"), {})
            except FileNotFoundError:
                return

    def _committed(self, version: int) -> Iterable[tuple[str, int]]:
        """Return the applications whose version an entry sets, and their versions."""
        if version == self._own[0]:
            return self._own[1].items()
        return ((action["appId"], action["version"]) for action in self._actions(version, "txn"))

    def _actions(self, version: int, kind: str) -> Iterator[dict[str, Any]]:
        """Return the actions of one kind in a version's log entry."""
        path = f"{LOG}/{entry_name(version)}"
        folder = self._place.folder
        if folder is not None:
            text = (folder / path).read_bytes()
        else:
            with self._files.open_input_file(path) as file:
                text = file.read()
        marker = f'"{kind}"'.encode()
        for line in text.splitlines():
            action = json.loads(line).get(kind) if marker in line else None
            if action is not None:
                yield action
