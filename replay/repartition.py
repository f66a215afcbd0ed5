"""Repartitioning: Spark rewrites a query's state for another number of partitions, as one more epoch.

This is the only module that calls Spark's repartitioning. :mod:`streamstate.operations.rescaling.rescale` uses it for
stopped queries, and stepping uses it to repeat the repartitioning of a fork's original.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from streamstate.errors import InvalidArgumentError, RescaleError, UnsupportedStateError
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.checkpoint.state_tables import StateSource
from streamstate.snapshots.spark.escaped_paths import path_for_reader
from streamstate.snapshots.spark.state_reader import StateReader
from streamstate.snapshots.spark.state_rewriting import require_state_writing

_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_JOIN_FORMAT = "spark.sql.streaming.join.stateFormatVersion"
_ROCKSDB = "RocksDBStateStoreProvider"
_POLL_SECONDS = 0.2


def check_repartitionable(checkpoint: CheckpointFiles, spark: SparkSession, epoch: int, partitions: int) -> int:
    """Check that Spark can repartition the state of an epoch, and return its present number of partitions.

    The query may be running.
    """
    planned = checkpoint.planned(epoch)
    before = checkpoint.partitions(epoch)
    if planned is None or before is None:
        raise UnsupportedStateError(
            f"{checkpoint.path} does not record how many partitions its state has: an old version of Spark wrote it.\n"
            "Run the query with the current version until it commits an epoch, then stop it and rescale."
        )
    if before == partitions:
        raise InvalidArgumentError(
            f"The state of {checkpoint.path} already has {before} partitions.\nChoose another number."
        )
    provider = planned.conf.get(_PROVIDER, "HDFSBackedStateStoreProvider")
    if not provider.endswith(_ROCKSDB):
        raise UnsupportedStateError(
            f"Spark can only repartition state in RocksDB; {checkpoint.path} uses {provider.rpartition('.')[2]}.\n"
            "The provider is fixed when a query runs its first epoch: start the query with a new checkpoint and"
            f" {_PROVIDER}=org.apache.spark.sql.execution.streaming.state.{_ROCKSDB}."
        )
    if checkpoint.legacy_operators():
        raise UnsupportedStateError(
            f"{checkpoint.path} was written by a Spark before 4.0. It has no operator metadata, and Spark cannot"
            " repartition state without it.\nRun the query with Spark 4.0 or later until it commits an epoch, then stop"
            " it and rescale."
        )
    _check_operators(StateReader(spark, checkpoint), epoch, planned.conf)
    return before


def _check_operators(reader: StateReader, epoch: int, conf: Mapping[str, str]) -> None:
    path = reader.checkpoint.path
    for source in reader.sources(epoch):
        # The key of a limit, like that of a global aggregation, has no columns; its schema may be missing.
        if "Limit" in source.operator or not _key_columns(reader, source, epoch):
            raise UnsupportedStateError(
                f"{source.table} of {path} always has a single partition: it is the state of a limit, or of an"
                " aggregation without a key.\n"
                "Repartitioning would lose it. Add a grouping key to the query first."
            )
        if "Join" in source.operator and conf.get(_JOIN_FORMAT) == "4":
            raise UnsupportedStateError(
                f"{path} joins streams in state format 4, which this version of Spark cannot read after"
                f" repartitioning.\nStart the query with a new checkpoint and {_JOIN_FORMAT}=3."
            )


def _key_columns(reader: StateReader, source: StateSource, epoch: int) -> int:
    schema = reader.frame(source, epoch).schema
    key = schema["key"].dataType if "key" in schema.names else None
    return len(key.names) if isinstance(key, StructType) else 1


def repartition(spark: SparkSession, checkpoint: CheckpointFiles, epoch: int, partitions: int) -> int:
    """Repartition the state of a stopped query after its last epoch, and return the new epoch.

    Spark's interface for it is private and may change in any version.
    """
    require_state_writing(spark, "Repartitioning state")
    planned = checkpoint.planned(epoch)
    assert planned is not None
    session = spark.newSession()
    for key, value in planned.conf.items():
        if session.conf.isModifiable(key):
            session.conf.set(key, value)
    session.conf.set("spark.sql.streaming.stateStore.checkpointFormatVersion", checkpoint.format_version(epoch))
    manager: Any = session._streamingCheckpointManager  # noqa: SLF001 (there is no public way)
    path = path_for_reader(spark, checkpoint.path)
    # Exactly once: never skip an epoch that was begun but not committed, because a sink may have its results.
    _interruptibly(spark, lambda: manager.repartition(path, partitions, enforce_exactly_once_sink=True))
    after = checkpoint.committed()[-1]
    if after != epoch + 1 or checkpoint.partitions(after) != partitions:
        raise RescaleError(
            f"After Spark repartitioned the state of {checkpoint.path}, its newest epoch is {after} with"
            f" {checkpoint.partitions(after)} partitions; expected epoch {epoch + 1} with {partitions}."
        )
    return after


def _interruptibly(spark: SparkSession, work: Callable[[], Any]) -> None:
    """Run a call into the JVM so that an interrupt stops the JVM's work before it reaches the caller.

    Interrupting only the Python side of a waiting call would leave the JVM writing.
    """
    tag = f"streamstate-repartition-{id(work)}"
    failed: list[BaseException] = []

    def run() -> None:
        try:
            spark.addTag(tag)
            work()
        except BaseException as error:  # noqa: BLE001 (raised again in the caller's thread)
            failed.append(error)

    worker = threading.Thread(target=run, name="streamstate-repartition", daemon=True)
    worker.start()
    try:
        while worker.is_alive():
            worker.join(_POLL_SECONDS)
    except BaseException:
        while worker.is_alive():
            spark.interruptTag(tag)
            worker.join(_POLL_SECONDS)
        raise
    if failed:
        raise failed[0]
