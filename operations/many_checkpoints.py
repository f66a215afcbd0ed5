"""The checkpoints below a folder, as a list that can be captured as a whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamstate.errors import StreamStateError, first_line
from streamstate.operations.checkpoint import Checkpoint
from streamstate.operations.checkup.examine import spark_version
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import SparkSession

    from streamstate.snapshots.capture.change_feed import Verify
    from streamstate.snapshots.capture.fleet import Fleet, FleetReport, OnFleetPass
    from streamstate.snapshots.capture.pass_plan import Every
    from streamstate.snapshots.checkpoint.filesystem import ReadableFiles


_FACTS = {
    "name": "object",
    "stateful": "boolean",
    "spark_version": "object",
    "epoch": "Int64",
    "committed_at": "datetime64[us, UTC]",
    "checkpoint": "object",
    "problem": "object",
}
"""The columns of :meth:`Checkpoints.overview`, with their types."""


class Checkpoints(list[Checkpoint]):
    """The checkpoints that :func:`streamstate.checkpoints` has found: a list that can also be captured as a whole.

    Args:
        found: the checkpoints.
        files: their file system.
        again: finds them again, with new ones.
        storage_options: deltalake's options for reaching an object store.
    """

    def __init__(
        self,
        found: Iterable[Checkpoint],
        files: ReadableFiles,
        again: Callable[[], Iterable[Checkpoint]],
        storage_options: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(found)
        self._files = files
        self._again = again
        self._storage_options = storage_options

    def capture(
        self,
        store: str | Path,
        *,
        verify: Verify = "first",
        spark: SparkSession | None = None,
        on_pass: OnFleetPass | None = None,
    ) -> FleetReport:
        """Bring a store up to date with all checkpoints of the list, once, on a few threads.

        A checkpoint that cannot be captured does not keep the others from it. Each query has the name that it already
        has in the store, or :attr:`Checkpoint.name`.

        Args:
            store: as for :meth:`Checkpoint.capture`.
            verify: as for :meth:`Checkpoint.capture`.
            spark: as for :meth:`Checkpoint.capture`.
            on_pass: called in the background after each pass, with the query's name and the report of the epochs that
                it captured, or with the error that it failed with; of a checkpoint that cannot be captured at all, with
                its path.

        Returns:
            A report for each query, and the errors by checkpoint.

        Raises:
            InvalidArgumentError: ``verify`` is invalid.
            NotAStoreError, StoreError: ``store`` is at, in or above a checkpoint, or cannot be reached or written.

        Example:
            >>> report = ss.checkpoints("checkpoints").capture("snapshots")
            >>> len(report.reports), report.failed
            (7, {})
        """
        from streamstate.snapshots.capture.fleet import capture_all

        return capture_all(
            lambda: self, store, verify=verify, spark=spark, storage_options=self._storage_options, on_pass=on_pass
        )

    def follow(
        self,
        store: str | Path,
        *,
        every: Every = 1,
        verify: Verify = "first",
        spark: SparkSession | None = None,
        on_pass: OnFleetPass | None = None,
    ) -> Fleet:
        """Keep a store up to date with all checkpoints below the folder, in the background and on a few threads.

        Every minute the folder is searched again: new checkpoints are taken up, those that are gone are left, and those
        that failed are tried again.

        Args:
            store: as for :meth:`Checkpoint.follow`.
            every: as for :meth:`Checkpoint.follow`.
            verify: as for :meth:`Checkpoint.follow`.
            spark: as for :meth:`Checkpoint.follow`.
            on_pass: as for :meth:`capture`.

        Returns:
            The captures, with ``.status`` (by query), ``.failed`` (the errors by checkpoint), ``.wait(timeout)`` and
            ``.stop()``.

        Raises:
            InvalidArgumentError, NotAStoreError, StoreError: as :meth:`capture`.

        Example:
            >>> fleet = ss.checkpoints("checkpoints").follow("snapshots")
            >>> fleet.wait(timeout=60)
            >>> fleet.status["delays"].state
            'running'
            >>> fleet.stop()
        """
        from streamstate.snapshots.capture.fleet import Fleet

        return Fleet(
            self._again,
            store,
            every=every,
            verify=verify,
            spark=spark,
            storage_options=self._storage_options,
            on_pass=on_pass,
        )

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
