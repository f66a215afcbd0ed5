"""The public ways to capture: :func:`capture` once, :func:`follow` in the background."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from streamstate.snapshots import capture as _capture
from streamstate.snapshots import follow as _follow
from streamstate.spark_session import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from streamstate.snapshots.capture_report import CaptureReport
    from streamstate.snapshots.follow import Capture
    from streamstate.snapshots.pace import Every


def capture(
    checkpoint: str | os.PathLike[str],
    store: str | Path,
    name: str | None = None,
    *,
    spark: SparkSession | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> CaptureReport:
    """Bring a store up to date with a query's checkpoint, once.

    The query may be running, here or on another cluster, or not: only its checkpoint is read. Every epoch
    committed since the last capture becomes a snapshot; doing it again, or twice at once, changes nothing.

    Args:
        checkpoint: the query's ``checkpointLocation``, a path or a URI that Spark can read.
        store: the folder of the snapshots, or an object store's URI; made where it is missing.
        name: what the query is called in the store; by default the name it has there, or the checkpoint's folder.
        spark: the session to read with; by default the running one, or an embedded one.
        storage_options: where the store is in an object store, how to reach it: deltalake's options, such as
            ``{"AWS_REGION": "eu-central-1"}``. What is left out comes from the environment.

    Returns:
        The epochs captured now, the gaps, the change rows written.

    Raises:
        NotACheckpointError: where ``checkpoint`` is none.
        NoStateError: where the query keeps no state.
        InvalidNameError: where ``name`` cannot be a folder and an SQL relation.
        NameTakenError: where ``name`` is another query's.
        CaptureError: where Spark cannot read the state.
        StoreError: where the store cannot be reached or written.

    Example:
        >>> ss.capture("checkpoints/delays", "store").epochs  # doctest: +SKIP
        (0, 1, 2)
    """
    return _capture.capture(checkpoint, store, name, spark=spark or session(), storage_options=storage_options)


def follow(
    query_or_checkpoint: StreamingQuery | str | os.PathLike[str],
    store: str | Path,
    name: str | None = None,
    *,
    every: Every = 1,
    spark: SparkSession | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> Capture:
    """Keep a store up to date with a query, in the background.

    Args:
        query_or_checkpoint: a running ``StreamingQuery``, or any query's ``checkpointLocation``.
        store: the folder of the snapshots, or an object store's URI; made where it is missing.
        name: what the query is called in the store; by default the name it has there, the query's own, or the
            checkpoint's folder.
        every: capture once so many epochs wait, or once so much time has passed (a ``timedelta``, or a text such as
            "10s" or "2m"); each of the epochs becomes a snapshot all the same.
        spark: the session to read with; by default the running one, or an embedded one.
        storage_options: where the store is in an object store, how to reach it: deltalake's options, such as
            ``{"AWS_REGION": "eu-central-1"}``. What is left out comes from the environment.

    Returns:
        The capture, with ``.status``, ``.wait(epoch, timeout)`` and ``.stop()``. Given a query, it ends when that has
        ended and all that it committed is captured.

    Raises:
        NotACheckpointError, InvalidNameError, NameTakenError: as :func:`capture`. What goes wrong later shows in
            ``.status`` and is raised by ``.wait``.

    Example:
        >>> capture = ss.follow(query, "store", "delays")  # doctest: +SKIP
        >>> capture.wait(epoch=3, timeout=60)  # doctest: +SKIP
        3
    """
    return _follow.follow(
        query_or_checkpoint, store, name, every=every, spark=spark or session(), storage_options=storage_options
    )
