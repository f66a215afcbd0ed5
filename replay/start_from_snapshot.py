"""Starting a query from a snapshot in the store, when the checkpoint no longer has the epoch."""

from __future__ import annotations

import json
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from streamstate.errors import NotReplayableError
from streamstate.snapshots.spark.session import session_in_use
from streamstate.state_inspect import History, Snapshot
from streamstate.state_inspect.snapshot import choose_table
from streamstate.state_inspect.sql.spark_relations import read_in_spark


def initial_state(
    state: Snapshot | History, table: str | None = None, *, spark: SparkSession | None = None
) -> DataFrame:
    """A captured state as the initial state of a new query.

    Of Spark's operators, only ``transformWithState`` and ``transformWithStateInPandas`` (and, in Scala,
    ``flatMapGroupsWithState``) accept an initial state; their ``handleInitialState`` receives the rows of each key.
    Aggregations, windows, deduplication and joins do not: fork an epoch that the checkpoint still has, or write the
    query's logic as a processor.

    Spark's executors read the changelog; the rows are not collected.

    Args:
        state: a snapshot, or a history for its newest epoch.
        table: the state table; may be left out if there is only one.
        spark: the session; by default the running one.

    Returns:
        The table's rows, key columns first, to be grouped by the same key as the stream.

    Raises:
        UnknownTableError: there is no such table at this epoch.
        InvalidArgumentError: the table is left out, and there are several.
        SessionError: no Spark session is running.

    Example:
        >>> old = ss.initial_state(store["delays"].at(12), "op0_total")  # doctest: +SKIP
        >>> stream.groupBy("carrier").transformWithStateInPandas(  # doctest: +SKIP
        ...     Delays(), schema, "update", "none", initialState=old.groupBy("carrier")
        ... )
    """
    snapshot = _snapshot(state)
    chosen = choose_table(table, snapshot.tables(), snapshot.history.name)
    return read_in_spark(snapshot.history.recorded, snapshot, chosen, None).in_spark(
        session_in_use(spark, connect=True)
    )


def start_offsets(state: Snapshot | History) -> list[dict[str, str]] | dict[str, dict[str, str]]:
    """Where a new query has to start reading to continue after a snapshot.

    Args:
        state: a snapshot, or a history for its newest epoch.

    Returns:
        For each source, in the query's order, the options of ``spark.readStream`` to start right after the epoch; a
        dict by name if the query names its sources.

    Raises:
        NotReplayableError: a source has no such option; the message says what to do instead.

    Example:
        >>> (options,) = ss.start_offsets(store["delays"].at(12))  # doctest: +SKIP
        >>> options  # doctest: +SKIP
        {'startingOffsets': '{"flights":{"0":23,"1":17}}'}
        >>> spark.readStream.format("kafka").options(**options)  # doctest: +SKIP
    """
    snapshot = _snapshot(state)
    offsets = snapshot.offsets
    if offsets is None:
        raise NotReplayableError(f"The store has no source offsets for epoch {snapshot.epoch}.")
    if isinstance(offsets, dict):
        return {name: _options(offset, name, snapshot.epoch) for name, offset in offsets.items()}
    return [_options(offset, at, snapshot.epoch) for at, offset in enumerate(offsets)]


def _snapshot(state: Snapshot | History) -> Snapshot:
    return state.live() if isinstance(state, History) else state


def _options(offset: Any, at: int | str, epoch: int) -> dict[str, str]:
    if isinstance(offset, dict) and "reservoirVersion" in offset:
        return _delta(offset, at, epoch)
    if isinstance(offset, dict) and [*offset] == ["logOffset"]:
        raise NotReplayableError(
            f"Source {at} reads files, and Spark has no option to start after some of them.\n"
            f"By epoch {epoch} it had read its first {offset['logOffset'] + 1} batches of files: move those away from"
            " the folder that the new query reads, or filter out their rows (_metadata.file_path is the file of a row)."
        )
    if _is_kafka(offset):
        return {"startingOffsets": json.dumps(offset, separators=(",", ":"))}
    raise NotReplayableError(
        f"Source {at} ended epoch {epoch} at {json.dumps(offset)}, and there is no known option to start there.\n"
        "Supported are Kafka (startingOffsets) and Delta (startingVersion)."
    )


def _is_kafka(offset: Any) -> bool:
    """Whether an offset is Kafka's: for each topic, the next offset of each partition."""
    if not isinstance(offset, dict) or not offset:
        return False
    topics = [topic.items() if isinstance(topic, dict) else [("", "")] for topic in offset.values()]
    return all(number.isdigit() and isinstance(at, int) for partitions in topics for number, at in partitions)


def _delta(offset: dict[str, Any], at: int | str, epoch: int) -> dict[str, str]:
    version, index = int(offset["reservoirVersion"]), int(offset.get("index", -1))
    # After reading a whole version, Delta moves on to the next; an index of -1 or less is before its first file.
    if offset.get("isStartingVersion") or index >= 0:
        raise NotReplayableError(
            f"Source {at} ended epoch {epoch} in the middle of version {version} of its Delta table, and Spark can only"
            " start at the beginning of a version.\nChoose an epoch at which it had read a version completely."
        )
    return {"startingVersion": str(version)}
