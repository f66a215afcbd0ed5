"""Replacing what a checkpoint's folder holds, where a folder is not renamed in one step, as in an object store.

Only a single file is replaced at once there. So ``metadata``, without which no query starts, becomes a barrier first:
text that Spark refuses and that :func:`barrier_in` knows. Then the other files are deleted, and those of the other
checkpoint are copied, on the server's side where it can. At last the other checkpoint's ``metadata`` takes the
barrier's place. Both checkpoints are complete elsewhere meanwhile, so that all of it can be done again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

from streamstate.errors import CheckpointError
from streamstate.snapshots.checkpoint.filesystem import Files, local_path
from streamstate.snapshots.checkpoint.fork_record import Barrier, barrier_in

_RENAMING = {"hdfs", "viewfs"}
_METADATA = "metadata"


def renames_folders(checkpoint: str) -> bool:
    """Return whether the file system of a checkpoint renames a folder in one step."""
    return local_path(checkpoint) is not None or urlsplit(checkpoint).scheme in _RENAMING


@dataclass(frozen=True)
class Replacement:
    """A checkpoint whose files another one's replace; it may have none."""

    files: Files
    over: str
    """The checkpoint."""
    source: str
    """The other one, complete and unused."""
    left_out: frozenset[str] = frozenset()
    """Files of the other one that the checkpoint does not get."""

    def run(self, check: Callable[[], None] | None = None) -> None:
        """Replace the files.

        Args:
            check: called once no query can start any more; if it raises, the checkpoint is as before.
        """
        before = self.files.text(f"{self.over}/{_METADATA}") or ""
        if check is not None:
            self._write(Barrier(before, replacing=False).text())
            try:
                check()
            except BaseException:
                self._write(before)
                raise
        self._write(Barrier(before, replacing=True).text())
        self._replace()

    def settle(self) -> None:
        """Complete a replacement that was killed; one that had replaced nothing is reversed."""
        barrier = barrier_in(self.files.text(f"{self.over}/{_METADATA}"))
        if barrier is not None and barrier.replacing:
            self._replace()
        elif barrier is not None:
            self._write(barrier.before)

    def _replace(self) -> None:
        metadata = self.files.text(f"{self.source}/{_METADATA}")
        if metadata is None:
            raise CheckpointError(
                f"{self.source}, whose files belong into {self.over}, is gone.\nRestore it; nothing was deleted."
            )
        for delete in (self.files.remove_tree, self.files.remove):  # the first deletes no file on the local disk
            for name in self.files.names(self.over):
                if name != _METADATA:
                    delete(f"{self.over}/{name}")
        copy_contents(self.files, self.source, self.over, self.left_out | {_METADATA})
        self._write(metadata)

    def _write(self, metadata: str) -> None:
        self.files.write(f"{self.over}/{_METADATA}", metadata, replace=True)


def copy_contents(files: Files, source: str, target: str, left_out: frozenset[str] = frozenset()) -> None:
    """Copy the files of a folder into another one, which has none of them."""
    names = [name for name in files.tree(source) if not name.endswith("/") and name not in left_out]
    files.copy((f"{source}/{name}", f"{target}/{name}") for name in sorted(names))
