"""Find the checkpoints under a folder."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path

from streamstate.errors import InvalidArgumentError
from streamstate.operations.checkpoint import Checkpoint
from streamstate.operations.many_checkpoints import Checkpoints
from streamstate.snapshots.capture.capture import open_checkpoint
from streamstate.snapshots.checkpoint.filesystem import ReadableFiles, local_path

_OF_SPARK = frozenset({"metadata", "offsets", "commits", "state", "sources"})
"""The names that Spark gives to the files of a checkpoint."""
_TABLE_LOG = "_delta_log"


def checkpoints(root: str | os.PathLike[str], *, storage_options: Mapping[str, str] | None = None) -> Checkpoints:
    """Find every checkpoint under a folder, at any depth, such as those of a pipeline.

    A checkpoint is a folder with Spark's ``metadata`` and ``offsets``. Delta tables and the state of checkpoints are
    not searched.

    Args:
        root: a path, or a URI as :class:`Checkpoint` takes it; it may be a checkpoint itself.
        storage_options: deltalake's options for reaching an object store.

    Returns:
        The checkpoints, sorted by their path: a list that can be captured and followed as a whole.

    Raises:
        InvalidArgumentError: ``root`` is not a folder.

    Example:
        >>> [checkpoint.name for checkpoint in ss.checkpoints("checkpoints")]
        ['airports', 'by_route', 'delays', 'delays_by_hour', 'payments', 'sessions', 'what_if']
    """
    opened = open_checkpoint(root, None, storage_options)
    local = local_path(opened.path)
    if local is not None and not local.is_dir():
        raise InvalidArgumentError(f"{opened.path} is not a folder.\nPass a folder that holds checkpoints.")
    found = _search(opened.files, opened.path) if local is None else _search_disk(local, set())
    return Checkpoints(
        (Checkpoint(path, storage_options=storage_options) for path in sorted(found)),
        partial(checkpoints, root, storage_options=storage_options),
        storage_options,
    )


def _search_disk(folder: Path, seen: set[Path]) -> Iterator[str]:
    """Search a folder of the local disk; a folder that links lead to twice is searched once."""
    real = folder.resolve()
    if real in seen:
        return
    seen.add(real)
    names = {entry.name: entry for entry in folder.iterdir()}
    if _is_checkpoint(names):
        yield str(folder)
    for name in _to_search(names):
        if names[name].is_dir():
            yield from _search_disk(names[name], seen)


def _search(files: ReadableFiles, folder: str) -> Iterator[str]:
    """Search a folder of an object store, or of another file system."""
    names = files.names(folder)
    if _is_checkpoint(names):
        yield folder
    for name in _to_search(names):
        yield from _search(files, f"{folder}/{name}")


def _is_checkpoint(names: Iterable[str]) -> bool:
    return {"metadata", "offsets"} <= {*names}


def _to_search(names: Collection[str]) -> Iterator[str]:
    if _TABLE_LOG in names:
        return
    own = _OF_SPARK if _is_checkpoint(names) else frozenset()
    yield from (name for name in sorted(names) if name not in own)
