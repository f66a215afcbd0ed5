"""New stores keep away from checkpoints: Spark and the tools of its users own those folders."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from urllib.parse import urlsplit

from streamstate.errors import CaptureError, MissingDependencyError, NotAStoreError
from streamstate.snapshots.checkpoint.filesystem import ReadableFiles, local_path
from streamstate.snapshots.checkpoint.local_files import LocalFiles
from streamstate.snapshots.checkpoint.object_files import ObjectFiles, in_object_store

_MOST = 10_000
"""Folders that are looked at below a place, at most."""
_CHILDREN = 20
"""The same in an object store."""


def check_outside(root: str, options: Mapping[str, str] | None = None) -> None:
    """Raise if a place is at, in or above a query's checkpoint; links and ``..`` in its path are followed.

    Args:
        root: the path or URI where a store, or a table, is going to be created.
        options: deltalake's ``storage_options``.

    Raises:
        NotAStoreError: it is.
    """
    found = _of_folder(local) if (local := local_path(root)) is not None else _of_objects(root, options)
    if found is None:
        return
    where, checkpoint = found
    raise NotAStoreError(
        f"{root} {where} a query's checkpoint: {checkpoint}. No store is created there.\n"
        "A store is a folder of its own, such as one beside the checkpoints."
    )


def _of_folder(folder: Path) -> tuple[str, str] | None:
    """Return a folder's relation to a checkpoint, and that checkpoint; None if there is none."""
    real = Path(os.path.realpath(folder))
    for above in (real, *real.parents):
        if _is_checkpoint(LocalFiles(), str(above)):
            return "is" if above == real else "is inside", str(above)
    below = (path for path in islice(_folders(real), _MOST) if _is_checkpoint(LocalFiles(), path))
    return next((("holds", path) for path in below), None)


def _folders(folder: Path) -> Iterator[str]:
    """Return the folders below one, the closest first."""
    waiting = [str(folder)]
    while waiting:
        children: list[str] = []
        for parent in waiting:
            with contextlib.suppress(OSError), os.scandir(parent) as entries:  # it cannot be read, or is gone
                children += (entry.path for entry in entries if entry.is_dir(follow_symlinks=False))
        yield from children
        waiting = children


def _of_objects(uri: str, options: Mapping[str, str] | None) -> tuple[str, str] | None:
    """The same for a place in an object store: it takes a request for each part of the path, and for what is below."""
    if not in_object_store(uri):
        return None
    parts = urlsplit(uri)
    names = [name for name in parts.path.split("/") if name]
    bucket = f"{parts.scheme}://{parts.netloc}"
    # Without obstore nothing is looked up. A store that cannot be reached is an error of its own.
    with contextlib.suppress(MissingDependencyError, CaptureError):
        files = ObjectFiles(bucket, options)
        for count in range(len(names), -1, -1):
            above = "/".join([bucket, *names[:count]])
            if _has_metadata(files, above):
                return "is" if count == len(names) else "is inside", above
        below = (f"{uri.rstrip('/')}/{name}" for name in sorted(files.names(uri))[:_CHILDREN])
        return next((("holds", path) for path in below if _has_metadata(files, path)), None)
    return None


def _has_metadata(files: ReadableFiles, path: str) -> bool:
    return files.content(f"{path}/metadata") is not None and _is_checkpoint(files, path)


def _is_checkpoint(files: ReadableFiles, path: str) -> bool:
    """Return whether a folder has the logs of a query, or one of them and its metadata."""
    names = {*files.names(path)}
    return len(names & {"metadata", "offsets", "commits"}) > 1 and bool(names & {"offsets", "commits"})
