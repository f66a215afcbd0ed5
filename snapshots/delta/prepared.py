"""Files that take long to write, for a commit that others keep getting in the way of.

A commit has to follow the version that its writer looked at; rewriting a large log takes longer than the captures of a
running query leave between their commits. So the files are kept for the next attempt, as long as they still say what is
right, and as long as no fence came in between: whoever set it may delete what no commit holds (see ``sweep``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from deltalake import DeltaTable

from streamstate.snapshots.delta.commits import FENCE, version_of
from streamstate.snapshots.delta.data_files import DataFile, delete_files
from streamstate.snapshots.delta.place import Place
from streamstate.snapshots.delta.reading import Committed, TableVersion


@dataclass
class Prepared:
    """Gives :func:`commit_once` the files, writing them again only where that is needed.

    Its ``write`` is what to pass, with ``keeps_files=True``.
    """

    place: Place
    by: str
    """The whole-number column by which the table's files follow each other."""
    make: Callable[[TableVersion], Sequence[DataFile]]
    """Writes the files for a version of the table."""
    fits: Callable[[TableVersion, Sequence[Committed], set[str]], bool]
    """Whether they are right for a later version too, given the files that came and the paths of those that left."""
    _seen: dict[str, Committed] | None = field(default=None, init=False)
    _fence: int = field(default=-1, init=False)
    _files: list[DataFile] = field(default_factory=list, init=False)

    def write(self, table: DeltaTable, _stands: int) -> list[DataFile]:
        """The files."""
        version = TableVersion(self.place, table)
        if self._seen is None or not self._good(version):
            self.discard()
            self._seen = {one.path: one for one in version.files(self.by)}
            self._fence = version_of(table, FENCE)
            self._files = list(self.make(version))
        return self._files

    @property
    def size(self) -> int:
        """Bytes of the files."""
        return sum(one.size for one in self._files)

    def discard(self) -> None:
        """Delete the files, which somebody else's commit has made needless."""
        delete_files(self.place, [one.path for one in self._files])
        self._files = []

    def _good(self, version: TableVersion) -> bool:
        assert self._seen is not None
        now = {one.path: one for one in version.files(self.by)}
        came = [one for path, one in now.items() if path not in self._seen]
        unfenced = version_of(version.table, FENCE) == self._fence
        return unfenced and self.fits(version, came, self._seen.keys() - now.keys())
