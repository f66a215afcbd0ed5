"""Bring a store up to date with a checkpoint, once."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from streamstate.errors import JavaNotFoundError, MissingDependencyError
from streamstate.snapshots.calls.progress_callback import ProgressCallback, long_call, report_progress
from streamstate.snapshots.capture.change_feed import Verify, check_verify
from streamstate.snapshots.capture.connect_capturer import ConnectCapturer
from streamstate.snapshots.capture.epoch_commit import Capturer, CaptureReport
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.checkpoint.default_names import default_names
from streamstate.snapshots.checkpoint.filesystem import local_path, location
from streamstate.snapshots.checkpoint.object_files import ObjectFiles, in_object_store
from streamstate.snapshots.checkpoint.server_copy import CopiedCheckpoint
from streamstate.snapshots.spark.connect import classic_of, uses_connect
from streamstate.snapshots.spark.session import classic_session, running_session
from streamstate.snapshots.spark.worker.files import worker_files
from streamstate.snapshots.store.layout import Layout
from streamstate.snapshots.store.names import check_name, name_from
from streamstate.snapshots.store.registry import Branch, check_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@long_call("The epochs captured so far are complete.")
def capture(
    checkpoint: str | os.PathLike[str],
    store: str | Path,
    name: str | None = None,
    *,
    fallback: str | None = None,
    verify: Verify = "first",
    spark: SparkSession | None = None,
    storage_options: Mapping[str, str] | None = None,
    progress: ProgressCallback | None = None,  # noqa: ARG001 (long_call takes it)
) -> CaptureReport:
    """Bring a store up to date with a query's checkpoint, once.

    :meth:`streamstate.Checkpoint.capture` describes the arguments and errors.
    """
    capturer = capturer_for(
        checkpoint, store, name, spark, fallback=fallback, verify=verify, storage_options=storage_options
    )
    report = catch_up(capturer)
    with _same_pool_afterwards():
        capturer.tidy()
    return report


def catch_up(capturer: Capturer) -> CaptureReport:
    """Capture all epochs that are committed now, in as many passes as it takes.

    Epochs that the query commits meanwhile are left to the next call: with a query that never pauses this one would
    never end. Keyframes and merging are left to :meth:`Capturer.tidy`.
    """
    committed = capturer.checkpoint.committed()
    newest = max(committed, default=-1)
    report = CaptureReport(capturer.name, capturer.layout.root, committed=newest if committed else None)
    report_progress(f"capturing {capturer.name} up to epoch {newest}")
    with _same_pool_afterwards():
        while (latest := capturer.run(upto=newest)).epochs:
            report += latest
            report_progress(f"captured {capturer.name} up to epoch {latest.epochs[-1]} of {newest}")
    return report


@contextlib.contextmanager
def _same_pool_afterwards() -> Iterator[None]:
    """Reading state with Spark moves the thread into capture's scheduler pool; here the thread is the user's."""
    running = running_session()
    before = running.sparkContext.getLocalProperty("spark.scheduler.pool") if running else None
    try:
        yield
    finally:
        if running := running_session():  # reading may have started it
            # None removes the property, which PySpark's types do not know.
            running.sparkContext.setLocalProperty("spark.scheduler.pool", before)  # type: ignore[arg-type]


def capturer_for(
    checkpoint: str | os.PathLike[str],
    store: str | Path,
    name: str | None,
    spark: SparkSession | None,
    *,
    fallback: str | None = None,
    verify: Verify = "first",
    storage_options: Mapping[str, str] | None = None,
    known: Mapping[str, Branch] | None = None,
) -> Capturer:
    """Return a capturer for a checkpoint; without a name it takes the one that the query has in the store.

    If it has none there, it takes ``fallback`` or, if that is another query's, a name made from the checkpoint's path. A
    caller that has read the store's queries passes them as ``known``.
    """
    check_verify(verify)
    if name is not None:
        check_name(name)
    opened, layout = open_checkpoint(checkpoint, spark, storage_options), Layout.at(store, storage_options)
    known = check_store(layout) if known is None else known
    if name is None:
        own = (query.name for query in known.values() if query.query_id == opened.query_id)
        name = next(own, None) or _default_name(fallback, opened.path, known.values())
    session = classic_of(spark)
    if session is None:
        return ConnectCapturer(None, opened, layout, name, verify, in_worker=spark is not None)
    return Capturer(session, opened, layout, name, verify)


def _default_name(fallback: str | None, path: str, known: Iterable[Branch]) -> str:
    """Return a name for a query that the store does not have: the shortest from its path that is not another's."""
    names = [*([name_from(fallback)] if fallback else []), *default_names(path)]
    # A query whose checkpoint was at the same path before keeps its name: registering the new one says so.
    others = {query.name.casefold() for query in known if query.checkpoint != path}
    return next((name for name in names if name.casefold() not in others), names[0])


def open_checkpoint(
    checkpoint: str | os.PathLike[str],
    spark: SparkSession | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> CheckpointFiles:
    """Open a checkpoint on any file system: through a session that is given or runs, or without Java if possible.

    Beside Spark Connect, the worker process reads a file system that needs Spark.

    Raises:
        MissingDependencyError, JavaNotFoundError: what its file system needs is not installed.
        CheckpointError, CaptureError: it is a copy that cannot be refreshed.
    """
    if isinstance(checkpoint, CopiedCheckpoint):
        checkpoint.refresh()
        return checkpoint
    uri = location(checkpoint)
    if local_path(uri) is not None:
        return CheckpointFiles(uri)
    running = classic_of(spark) or running_session()
    if running is None and in_object_store(uri):
        try:
            return CheckpointFiles(uri, files=ObjectFiles(uri, storage_options))
        except MissingDependencyError as missing:
            with contextlib.suppress(MissingDependencyError, JavaNotFoundError):
                return _through_spark(uri, None)
            raise missing from None
    return _through_spark(uri, running)


def _through_spark(uri: str, running: SparkSession | None) -> CheckpointFiles:
    """Open a checkpoint on any file system that Spark is set up for."""
    if running is None and uses_connect():
        return CheckpointFiles(uri, files=worker_files())
    return CheckpointFiles(uri, running or classic_session())
