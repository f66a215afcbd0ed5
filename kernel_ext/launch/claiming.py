"""Acquiring the lease on a query that this process starts, or runs already."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from streamstate.errors import CaptureError, MissingDependencyError, NotOwnerError, SparkConnectError
from streamstate.launch.launch import Launch
from streamstate.operations.availability.lease import LASTS, Lease
from streamstate.operations.availability.local_processes import have_ended, of_this_query
from streamstate.snapshots.checkpoint.filesystem import files_for
from streamstate.snapshots.store.layout import Layout

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from streamstate.snapshots.capture.pass_plan import Every


def claim(launch: Launch, layout: Layout, every: Every, lasts: float | None, say: Callable[[str], object]) -> bool:
    """Acquire the lease on a query, if it is to have one, or if one was left behind; True if it was acquired now.

    A lease that a killed process has left is waited for. So is that of a process that lives, until that renews it.

    Args:
        launch: the query.
        layout: its store, in which the lease stands.
        every: the pace of its capture.
        lasts: the time to live in seconds of the lease that it is to have; None: no lease is wanted.
        say: called with a line if a lease was left behind.

    Raises:
        NotOwnerError: another process holds the lease.
        SparkConnectError: a lease is wanted, and a Spark Connect server runs the query.
        InvalidArgumentError, MissingDependencyError: a lease is wanted, and the store cannot keep one.
    """
    fence = launch.fence
    if launch.on_connect:
        if lasts is not None:
            raise SparkConnectError.needs_classic()
        return False
    if fence.lease is not None and fence.lease.holds:
        return False
    lease = _wanted(launch, layout, every, lasts)
    fence.lease = fence.lost = None
    if lease is None:
        return False
    _acquire(launch.name, lease, say)
    fence.hold(lease)
    return True


def _wanted(launch: Launch, layout: Layout, every: Every, lasts: float | None) -> Lease | None:
    """Return the lease that a start has to acquire; None if it needs none."""
    try:
        known, own = recorded(launch, every), of_this_query()
        lease = Lease.of(layout, launch.name, lasts=LASTS if lasts is None else lasts, launch=known, processes=own)
        newest = None if lasts is not None else lease.newest()
    except (MissingDependencyError, CaptureError, OSError):
        if lasts is not None:
            raise
        return None
    return None if lasts is None and (newest is None or newest.free) else lease


def _acquire(name: str, lease: Lease, say: Callable[[str], object]) -> None:
    first = lease.newest()
    while not lease.try_acquire():
        now = lease.newest()
        if now is not None and not now.free:
            if first is not None and (now.number, now.renewal) != (first.number, first.renewal):
                raise NotOwnerError.of_another(name, now.holder, now.number)
            first = first or now
        time.sleep(lease.renewed_every / 4)
    if first is not None and not first.free:
        gone = have_ended(first.processes)
        why = "has ended" if gone else f"was silent for {first.lasts or lease.lasts:g} s"
        say(f"{name} was owned by {first.holder}, which {why}.")


def remove_drafts(checkpoint: str, spark: SparkSession | None) -> None:
    """Delete files of the offset and commit logs that an earlier owner has written and not yet renamed.

    If it is only paused, it fails when it wakes up, instead of renaming one over a file of this process.
    """
    files = files_for(spark, checkpoint)
    for folder in (f"{checkpoint}/offsets", f"{checkpoint}/commits"):
        for name in files.names(folder):
            if name.startswith(".") and name.endswith((".tmp", ".tmp.crc")):
                files.remove(f"{folder}/{name}")


def recorded(launch: Launch, every: Every) -> dict[str, Any]:
    """Return how a query is started, for a process that takes it over: all but its code and what may be secret."""
    sink = launch.sink
    return {
        "mode": launch.mode,
        "trigger": launch.trigger,
        "sink": sink.text if sink.function is None and not sink.options else None,
        "every": every if isinstance(every, int | str) else f"{every.total_seconds():g}s",
        "shared": [*launch.chosen_variables],
        "record_input": bool(launch.recorders()),
        "restart": None if launch.restart is None else asdict(launch.restart),
    }
