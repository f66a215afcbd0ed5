"""Find the checkpoints under a folder."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial

from streamstate.errors import CheckpointError, InvalidArgumentError
from streamstate.operations.checkpoint import Checkpoint
from streamstate.operations.many_checkpoints import Checkpoints
from streamstate.snapshots.capture.capture import open_checkpoint
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.checkpoint.default_names import distinct_default_names
from streamstate.snapshots.checkpoint.filesystem import local_path
from streamstate.snapshots.checkpoint.search import checkpoints_below


def checkpoints(root: str | os.PathLike[str], *, storage_options: Mapping[str, str] | None = None) -> Checkpoints:
    """Find every checkpoint under a folder, at any depth, such as those of a pipeline.

    A checkpoint is a folder with Spark's ``metadata`` and ``offsets``. Delta tables and the state of checkpoints are
    not searched. The name of each has as many folders of its path as it takes to tell it from the others: under
    ``team=a/orders`` and ``team=b/orders`` are ``team_a_orders`` and ``team_b_orders``.

    Args:
        root: a path, or a URI as :class:`Checkpoint` takes it; it may be a checkpoint itself.
        storage_options: deltalake's options for reaching an object store.

    Returns:
        The checkpoints, sorted by their path: a list that can be captured and followed as a whole, and whose
        ``overview()`` is a frame with the newest epoch of each.

    Raises:
        InvalidArgumentError: ``root`` is not a folder.
        CheckpointError: a folder cannot be read.

    Example:
        >>> [checkpoint.name for checkpoint in ss.checkpoints("checkpoints")]
        ['airports', 'by_route', 'delays', 'delays_by_hour', 'payments', 'sessions', 'what_if']
    """
    opened = open_checkpoint(root, None, storage_options)
    local = local_path(opened.path)
    if local is not None and not local.is_dir():
        raise InvalidArgumentError(f"{opened.path} is not a folder.\nPass a folder that holds checkpoints.")
    try:
        paths = sorted(checkpoints_below(opened.files, opened.path))
    except OSError as error:
        raise CheckpointError(f"{error.filename or opened.path} cannot be read: {error.strerror}.") from error
    found = (
        Checkpoint._found(CheckpointFiles(path, files=opened.files), name, storage_options)  # noqa: SLF001 (of this room)
        for path, name in zip(paths, distinct_default_names(paths, opened.path), strict=True)
    )
    again = partial(checkpoints, root, storage_options=storage_options)
    return Checkpoints(found, opened.files, again, storage_options)
