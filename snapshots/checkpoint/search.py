"""The checkpoints under a folder."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

from streamstate.snapshots.checkpoint.filesystem import ReadableFiles, local_path

_MARKS = frozenset({"metadata", "offsets"})
"""The names by which a checkpoint is recognized."""
_OF_SPARK = _MARKS | {"commits", "state", "sources"}
"""The names that Spark gives to the files of a checkpoint."""
_TABLE_LOG = "_delta_log"


def checkpoints_below(files: ReadableFiles, root: str, *, most_folders: int | None = None) -> Iterator[str]:
    """Yield the checkpoints in and under a folder, level by level; the folders of a level are listed at once.

    Delta tables, and Spark's own folders in a checkpoint, are not searched. A folder that symbolic links lead to twice
    is searched once.

    Args:
        files: the file system.
        root: the path or URI of the folder.
        most_folders: the number of folders to list at most.
    """
    level, seen = [root], set[str]()
    while level:
        level = [folder for folder in level if _is_new(folder, seen)]
        following: list[str] = []
        for folder, entries in zip(level, files.each(files.entries, level), strict=True):
            is_checkpoint = entries.keys() >= _MARKS
            if is_checkpoint:
                yield folder
            following += (f"{folder}/{name}" for name in _to_search(entries, is_checkpoint=is_checkpoint))
        level = following if most_folders is None else following[: max(most_folders - len(seen), 0)]


def _is_new(folder: str, seen: set[str]) -> bool:
    """Add the real path of a folder to those that were seen; False if it is one of them."""
    real = folder if local_path(folder) is None else os.path.realpath(folder)
    new = real not in seen
    seen.add(real)
    return new


def _to_search(entries: Mapping[str, bool], *, is_checkpoint: bool) -> list[str]:
    """Return the folders in a folder that may hold checkpoints."""
    if _TABLE_LOG in entries:
        return []
    own = _OF_SPARK if is_checkpoint else frozenset[str]()
    return [name for name, is_folder in entries.items() if is_folder and name not in own]
