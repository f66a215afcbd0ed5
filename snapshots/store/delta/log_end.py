"""The end of a table's log, read without opening the table: one listing and the newest entries.

Opening a table reads its log from the newest log checkpoint on. What concerns a whole version, its writer keeps with
the commit (see ``commits``), so that the newest entry is enough. A fact belongs to the version that holds it: it is out
of date as soon as there is a later entry that changes what it describes.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from streamstate.errors import StreamStateError
from streamstate.snapshots.store.delta.commits import check_still_there
from streamstate.snapshots.store.delta.log_checks import check_entries, entry_name, names_in
from streamstate.snapshots.store.delta.place import LOG, Place
from streamstate.snapshots.store.delta.table import LONG_AGO

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

_FILE = re.compile(r"^(\d{20})\.(?P<kind>json|checkpoint\.parquet)$")
_MOST_BACK = 8
"""The newest entries among which a fact is looked for."""
_MOST_BYTES = 1 << 20
"""The size of an entry that is read; opening the table reads any."""
_KINDS = ("add", "remove", "protocol", "commitInfo")

UNREADABLE = (StreamStateError, OSError, ValueError, ArithmeticError, LookupError, TypeError, RecursionError)
"""Errors of an entry that is damaged, or that says something else than streamstate writes: then open the table."""


@dataclass(frozen=True)
class LogEntry:
    """One entry of a log: its actions by kind."""

    actions: Mapping[str, list[Mapping[str, Any]]]

    @classmethod
    def parsed(cls, text: bytes) -> LogEntry:
        """Return an entry from its text.

        Raises:
            ValueError: it is no log entry.
        """
        actions: dict[str, list[Mapping[str, Any]]] = {kind: [] for kind in _KINDS}
        for line in text.splitlines():
            for kind, action in _object(json.loads(line)).items():
                if kind in actions:
                    actions[kind].append(_object(action))
        return cls(actions)

    @cached_property
    def changes_files(self) -> bool:
        """True if the table's files are others afterwards."""
        return bool(self.actions["add"] or self.actions["remove"] or self.actions["protocol"])

    @cached_property
    def changes_rows(self) -> bool:
        """True if the table's rows may be others afterwards; merging files does not change them."""
        files = (*self.actions["add"], *self.actions["remove"])
        return bool(self.actions["protocol"]) or any(file.get("dataChange") is not False for file in files)

    def fact(self, name: str) -> str | None:
        """Return what the entry's writer keeps with the commit under a name; None if it keeps nothing."""
        found = next((info[name] for info in self.actions["commitInfo"] if name in info), None)
        return found if isinstance(found, str) else None

    def most(self, column: str) -> int | None:
        """Return the largest value of an integer column in the files that the entry adds, by their statistics."""
        statistics = [_object(json.loads(file["stats"])) for file in self.actions["add"]]
        values = [_object(found["maxValues"])[column] for found in statistics]
        return max(values, default=None)


class LogEnd:
    """The newest entries of a table's log, looked at again after each :meth:`has_changed`. Any thread may use it."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self._version: int | None = None
        self._folder = place.folder
        self._looked_at = 0.0
        self._sizes: dict[str, int] = {}
        self._entries: dict[int, LogEntry] = {}
        self.is_missing = False
        """True if the table had no log when it was looked at last."""
        self._lock = threading.Lock()

    def has_changed(self) -> bool:
        """Look for newer entries; returns False if the log is known to have none since the last call.

        Raises:
            StoreError: the table was removed or replaced since.
        """
        with self._lock:
            before, looked_at, self._looked_at = self._version, self._looked_at, time.monotonic()
            try:
                if before is not None and self._looked_at - looked_at < LONG_AGO and not self._has(before + 1):
                    check_still_there(self.place, before)
                    return False
                self._version = self._newest()
            except OSError:
                self._version = None  # opening the table says what is wrong
            self._entries.clear()
            return self._version is None or self._version != before

    def entries(self) -> Iterator[LogEntry]:
        """Return the newest entries, the newest first; the log's older ones are left out.

        Raises:
            DamagedStoreError, OSError, ValueError: an entry is damaged, or too large to be one of streamstate's.
        """
        newest = -1 if self._version is None else self._version
        for version in range(newest, max(newest - _MOST_BACK, -1), -1):
            if version not in self._entries:
                try:
                    check_entries(self.place, version, version)
                    self._entries[version] = LogEntry.parsed(self._read(version))
                except BaseException:
                    self._version = None  # a damaged entry may go again
                    raise
            yield self._entries[version]

    @cached_property
    def _files(self) -> FileSystem:
        return self.place.filesystem()

    def _has(self, version: int) -> bool:
        path = f"{LOG}/{entry_name(version)}"
        if self._folder is not None:
            return (self._folder / path).exists()
        try:
            self._files.open_input_file(path).close()
        except FileNotFoundError:
            return False
        return True

    def _newest(self) -> int | None:
        """Return the newest version; None if there is no log, or one with gaps, which opening the table reports."""
        names = self._listed()
        self.is_missing = not names
        found = [(int(match[1]), match["kind"]) for name in names if (match := _FILE.match(name))]
        entries = {version for version, kind in found if kind == "json"}
        since = max((version for version, kind in found if kind != "json"), default=0)
        newest = max(entries, default=-1)
        if newest < since or any(version not in entries for version in range(since, newest)):
            return None
        return newest

    def _listed(self) -> Collection[str]:
        """Return the names of the log's files."""
        if self._folder is not None:
            return names_in(self._folder / LOG)
        from pyarrow.fs import FileSelector

        found = self._files.get_file_info(FileSelector(LOG, recursive=False, allow_not_found=True))
        self._sizes = {f"{LOG}/{info.base_name}": info.size for info in found}  # they save a request for each
        return [info.base_name for info in found]

    def _read(self, version: int) -> bytes:
        path = f"{LOG}/{entry_name(version)}"
        if self._folder is not None:
            with (self._folder / path).open("rb") as file:
                text = file.read(_MOST_BYTES + 1)
        else:
            with self.place.filesystem(self._sizes).open_input_file(path) as file:
                text = file.read(_MOST_BYTES + 1)
        if len(text) > _MOST_BYTES:
            raise ValueError("a log entry of this size is not streamstate's")
        return text


def _object(value: object) -> Mapping[str, Any]:
    if isinstance(value, dict):
        return value
    raise ValueError("no JSON object")
