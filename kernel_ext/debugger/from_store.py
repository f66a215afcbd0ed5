"""Starting a query from a snapshot of the store, where Spark's checkpoint no longer has the epoch."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from streamstate.snapshots.errors import NotReplayableError
from streamstate.state_inspect.snapshot import choose_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from streamstate.state_inspect import History, Snapshot

__all__ = ["initial_state", "start_offsets"]


def initial_state(
    state: Snapshot | History, table: str | None = None, *, spark: SparkSession | None = None
) -> DataFrame:
    """A captured state as the initial state of a new query.

    Of Spark's operators only ``transformWithState`` and ``transformWithStateInPandas`` (and, in Scala,
    ``flatMapGroupsWithState``) take an initial state; their ``handleInitialState`` gets the rows of each key. For
    aggregations, windows, deduplication and joins there is no such way in: fork an epoch that the checkpoint still
    has, or write the query's logic as a processor.

    Spark's executors read the change log; nothing of it is collected.

    Args:
        state: a snapshot, or a history for its newest epoch.
        table: the state table; may be left out where there is one.
        spark: the session; by default the running one.

    Returns:
        The table's rows, with its key columns first, to be grouped by the same key as the stream.

    Raises:
        UnknownTableError: where there is no such table at this epoch.
        InvalidArgumentError: where the table is left out and there are several.
        SessionError: where no Spark session is running.

    Example:
        >>> old = ss.initial_state(store["delays"].at(12), "op0_total")  # doctest: +SKIP
        >>> stream.groupBy("carrier").transformWithStateInPandas(  # doctest: +SKIP
        ...     Delays(), schema, "update", "none", initialState=old.groupBy("carrier")
        ... )
    """
    from streamstate.state_inspect.sql.sessions import session_in_use
    from streamstate.state_inspect.sql.spark_frames import state as state_in_spark

    snapshot = _snapshot(state)
    chosen = choose_table(table, snapshot.tables(), snapshot.history.name)
    return state_in_spark(session_in_use(spark), snapshot.history.change_log(chosen), snapshot.epoch)


def start_offsets(state: Snapshot | History) -> list[dict[str, str]]:
    """Where a new query has to begin to read, so that it goes on after a snapshot.

    Args:
        state: a snapshot, or a history for its newest epoch.

    Returns:
        For each source, in the query's order, the options of ``spark.readStream`` that begin right after the epoch.

    Raises:
        NotReplayableError: where a source takes no such option; the message says what to do instead.

    Example:
        >>> (options,) = ss.start_offsets(store["delays"].at(12))  # doctest: +SKIP
        >>> options  # doctest: +SKIP
        {'startingOffsets': '{"flights":{"0":23,"1":17}}'}
        >>> spark.readStream.format("kafka").options(**options)  # doctest: +SKIP
    """
    snapshot = _snapshot(state)
    offsets = snapshot.offsets
    if offsets is None:
        raise NotReplayableError(f"The store does not know which input epoch {snapshot.epoch} reflects.")
    return [_options(offset, at, snapshot.epoch) for at, offset in enumerate(offsets)]


def _snapshot(state: Snapshot | History) -> Snapshot:
    from streamstate.state_inspect import History

    return state.live() if isinstance(state, History) else state


def _options(offset: Any, at: int, epoch: int) -> dict[str, str]:
    if isinstance(offset, dict) and "reservoirVersion" in offset:
        return _delta(offset, at, epoch)
    if isinstance(offset, dict) and [*offset] == ["logOffset"]:
        raise NotReplayableError(
            f"Source {at} reads files, and Spark has no option to begin after some of them.\n"
            f"By epoch {epoch} it had read its first {offset['logOffset'] + 1} batches of files: move those away from"
            " the folder that the new query reads, or filter their rows out (_metadata.file_path names a row's file)."
        )
    if _is_kafka(offset):
        return {"startingOffsets": json.dumps(offset, separators=(",", ":"))}
    raise NotReplayableError(
        f"Source {at} ended epoch {epoch} at {json.dumps(offset)}, and no option is known to begin there.\n"
        "It is known for Kafka (startingOffsets) and Delta (startingVersion)."
    )


def _is_kafka(offset: Any) -> bool:
    """Whether an offset is Kafka's: of each topic the next offset of each partition."""
    if not isinstance(offset, dict) or not offset:
        return False
    partitions = [
        one for topic in offset.values() for one in (topic.items() if isinstance(topic, dict) else [("", "")])
    ]
    return all(number.isdigit() and isinstance(at, int) for number, at in partitions)


def _delta(offset: dict[str, Any], at: int, epoch: int) -> dict[str, str]:
    version, index = int(offset["reservoirVersion"]), int(offset.get("index", -1))
    # Delta counts on to the next version when it has read one; an index of -1 or less is before its first file.
    if offset.get("isStartingVersion") or index >= 0:
        raise NotReplayableError(
            f"Source {at} ended epoch {epoch} within version {version} of its Delta table, and Spark can only begin"
            " with a whole version.\nTake an epoch at which it had read all of a version."
        )
    return {"startingVersion": str(version)}
