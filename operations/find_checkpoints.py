"""Find the checkpoints under a folder, and say what each is."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from streamstate.errors import CheckpointError, InvalidArgumentError, StreamStateError, first_line
from streamstate.operations.checkpoint import Checkpoint
from streamstate.operations.checkup.examine import spark_version
from streamstate.snapshots.capture.capture import open_checkpoint
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.checkpoint.default_names import distinct_default_names
from streamstate.snapshots.checkpoint.filesystem import ReadableFiles, local_path
from streamstate.snapshots.checkpoint.search import checkpoints_below

if TYPE_CHECKING:
    import pandas as pd

_FACTS = {
    "name": "object",
    "stateful": "boolean",
    "spark_version": "object",
    "epoch": "Int64",
    "committed_at": "datetime64[us, UTC]",
    "checkpoint": "object",
    "problem": "object",
}
"""The columns of :meth:`FoundCheckpoints.overview`, with their types."""


class FoundCheckpoints(list[Checkpoint]):
    """The checkpoints under a folder; :func:`checkpoints` returns it."""

    def __init__(self, found: Iterable[Checkpoint], files: ReadableFiles) -> None:
        super().__init__(found)
        self._files = files

    def overview(self) -> pd.DataFrame:
        """Return one row per checkpoint, read from its logs without Spark.

        Columns: ``name``; ``stateful`` (whether a stateful operator has written anything); ``spark_version``, as
        :attr:`Checkpoint.spark_version` has it; ``epoch`` (the newest committed one) and ``committed_at``, the time at
        which its commit file was written; ``checkpoint``, its path; ``problem``, why it cannot be read.

        Example:
            >>> ss.checkpoints("checkpoints").overview()[["name", "stateful", "epoch"]].head(2)
                   name  stateful  epoch
            0  airports      True     13
            1  by_route      True     13
        """
        import pandas as pd

        rows = [*self._files.each(self._facts, self)]
        return pd.DataFrame(rows, columns=pd.Index([*_FACTS])).astype(_FACTS)

    def _facts(self, checkpoint: Checkpoint) -> dict[str, Any]:
        """Return a row of the overview."""
        facts: dict[str, Any] = {**dict.fromkeys(_FACTS), "name": checkpoint.name, "checkpoint": checkpoint.path}
        files = CheckpointFiles(checkpoint.path, files=self._files)
        try:
            with files.read_once():
                facts["stateful"] = files.has_state()
                facts["epoch"] = epoch = max(files.committed(), default=None)
                facts["committed_at"] = None if epoch is None else files.committed_at(epoch)
                facts["spark_version"] = spark_version(files)
        except (StreamStateError, OSError) as error:
            facts["problem"] = first_line(error)
        return facts


def checkpoints(root: str | os.PathLike[str], *, storage_options: Mapping[str, str] | None = None) -> FoundCheckpoints:
    """Find every checkpoint under a folder, at any depth, such as those of a pipeline.

    A checkpoint is a folder with Spark's ``metadata`` and ``offsets``. Delta tables and the state of checkpoints are
    not searched. The name of each has as many folders of its path as it takes to tell it from the others: under
    ``team=a/orders`` and ``team=b/orders`` are ``team_a_orders`` and ``team_b_orders``.

    Args:
        root: a path, or a URI as :class:`Checkpoint` takes it; it may be a checkpoint itself.
        storage_options: deltalake's options for reaching an object store.

    Returns:
        The checkpoints, sorted by their path, in a list. Its method ``overview()`` returns a frame with the newest
        epoch of each.

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
    return FoundCheckpoints(found, opened.files)
