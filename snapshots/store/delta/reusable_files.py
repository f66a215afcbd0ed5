"""Files that take long to write, kept across attempts to commit them.

A commit has to follow the version that its writer looked at, but rewriting a large log takes longer than the time
between two captures of a running query. So the files are kept for the next attempt, as long as they are still valid and
no sweep has made a fence in between: that sweep may delete files that no commit holds (see ``maintenance``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from deltalake import DeltaTable

from streamstate.snapshots.store.delta.commits import FENCE, version_of
from streamstate.snapshots.store.delta.data_files import DataFile, delete_files
from streamstate.snapshots.store.delta.place import Place
from streamstate.snapshots.store.delta.reading import Committed, TableVersion


@dataclass
class Prepared:
    """Files for :func:`commit_once`, written again only if necessary.

    Pass its ``write``, with ``keeps_files=True``.
    """

    place: Place
    by: str
    """The integer column by which the table's files are ordered."""
    make: Callable[[TableVersion], Sequence[DataFile]]
    """Writes the files for a version of the table."""
    fits: Callable[[TableVersion, Sequence[Committed], set[str]], bool]
    """True if they are valid for a later version too, given the added files and the paths of the removed ones."""
    _seen: dict[str, Committed] | None = field(default=None, init=False)
    _fence: int = field(default=-1, init=False)
    _files: list[DataFile] = field(default_factory=list, init=False)

    def write(self, table: DeltaTable, _committed: int) -> list[DataFile]:
        """Return the files."""
        version = TableVersion(self.place, table)
        if self._seen is None or not self._good(version):
            self.discard()
            self._seen = {file.path: file for file in version.files(self.by)}
            self._fence = version_of(table, FENCE)
            self._files = list(self.make(version))
        return self._files

    @property
    def size(self) -> int:
        """The size of the files in bytes."""
        return sum(file.size for file in self._files)

    def discard(self) -> None:
        """Delete the files, if another commit made them unnecessary."""
        delete_files(self.place, [file.path for file in self._files])
        self._files = []

    def _good(self, version: TableVersion) -> bool:
        assert self._seen is not None
        now = {file.path: file for file in version.files(self.by)}
        added = [file for path, file in now.items() if path not in self._seen]
        unfenced = version_of(version.table, FENCE) == self._fence
        return unfenced and self.fits(version, added, self._seen.keys() - now.keys())
