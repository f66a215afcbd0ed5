"""What can be wrong before the state of a query is spread anew; all of it is found before anything is written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from streamstate.snapshots.checkpoint import Checkpoint
from streamstate.snapshots.errors import (
    CheckpointError,
    InvalidArgumentError,
    NoStateError,
    QueryError,
    UnsupportedStateError,
)
from streamstate.snapshots.operators import StateSource
from streamstate.snapshots.state_reader import StateReader

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

__all__ = ["Before", "check_partitions", "check_spreads", "check_stopped", "checked"]

_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_JOIN_FORMAT = "spark.sql.streaming.join.stateFormatVersion"
_ROCKSDB = "RocksDBStateStoreProvider"


@dataclass(frozen=True)
class Before:
    """A stopped query as it stands before its state is spread anew."""

    epoch: int
    partitions: int
    conf: Mapping[str, str]
    """The settings that the query is pinned to."""


def check_partitions(partitions: object) -> int:
    """The number of partitions, where it can be meant.

    Raises:
        InvalidArgumentError: where it cannot.
    """
    if isinstance(partitions, bool) or not isinstance(partitions, int) or partitions < 1:
        raise InvalidArgumentError(
            f"partitions={partitions!r} cannot be meant: a whole number from 1 on, such as partitions=8."
        )
    return partitions


def check_stopped(checkpoint: Checkpoint, spark: SparkSession) -> None:
    """Raise where the query runs in this Spark application; what runs elsewhere cannot be seen.

    Raises:
        NotACheckpointError: where there is no query.
        QueryError: where it runs.
    """
    jvm_session: Any = spark._jsparkSession
    active = {str(one) for one in jvm_session.sharedState().activeStreamingQueries().keySet().toArray()}
    if checkpoint.query_id in active:
        raise QueryError(
            f"The query of {checkpoint.path} is running; its state can be spread anew only while it is stopped.\n"
            "Stop it first: query.stop(), or in a notebook %stream rescale NAME --partitions N, which does that."
        )


def checked(checkpoint: Checkpoint, spark: SparkSession, partitions: int) -> Before:
    """The stopped query, where its state can be spread over another number of partitions.

    Raises:
        CheckpointError, NoStateError, UnsupportedStateError, InvalidArgumentError: where it cannot; the message says
            what to do.
    """
    committed, begun = checkpoint.committed(), checkpoint.begun()
    if not checkpoint.has_state():
        raise NoStateError(
            f"The query of {checkpoint.path} keeps no state, so there is nothing to spread over partitions.\n"
            "spark.sql.shuffle.partitions sets how its next start shuffles."
        )
    if not committed:
        raise CheckpointError(
            f"{checkpoint.path} has no committed epoch.\nRun the query until it has committed one, then stop it."
        )
    epoch = committed[-1]
    if begun[-1:] != [epoch]:
        raise CheckpointError(
            f"Epoch {begun[-1] if begun else epoch} of {checkpoint.path} was begun and not committed (the last "
            f"committed one is {epoch}).\nStart the query once more with the same sink, until that epoch is committed,"
            " and stop it; then rescale. Skipping it could give its results to the sink twice."
        )
    return check_spreads(checkpoint, spark, epoch, partitions)


def check_spreads(checkpoint: Checkpoint, spark: SparkSession, epoch: int, partitions: int) -> Before:
    """The query as it stands at a committed epoch, where Spark can spread its kind of state; it may run meanwhile.

    Raises:
        UnsupportedStateError, InvalidArgumentError: where it cannot; the message says what to do.
    """
    planned = checkpoint.planned(epoch)
    before = checkpoint.partitions(epoch)
    if planned is None or before is None:
        raise UnsupportedStateError(
            f"{checkpoint.path} does not say how many partitions its state has: it was written by an old Spark.\n"
            "Run the query with this Spark until it has committed an epoch, then stop it and rescale."
        )
    if before == partitions:
        raise InvalidArgumentError(
            f"The state of {checkpoint.path} has {before} partitions already; give another number."
        )
    provider = planned.conf.get(_PROVIDER, "HDFSBackedStateStoreProvider")
    if not provider.endswith(_ROCKSDB):
        raise UnsupportedStateError(
            f"Spark can spread state anew in RocksDB only; {checkpoint.path} keeps it in"
            f" {provider.rpartition('.')[2]}.\nA query chooses the provider with its first epoch: start it over from a"
            f" new checkpoint with {_PROVIDER}=org.apache.spark.sql.execution.streaming.state.{_ROCKSDB}."
        )
    _check_operators(StateReader(spark, checkpoint), epoch, planned.conf)
    return Before(epoch, before, planned.conf)


def _check_operators(reader: StateReader, epoch: int, conf: Mapping[str, str]) -> None:
    path = reader.checkpoint.path
    for source in reader.sources(epoch):
        # A limit's state has a key of no columns, as an aggregation's without a key has; its schema may be missing.
        if "Limit" in source.operator or not _key_columns(reader, source, epoch):
            raise UnsupportedStateError(
                f"{source.table} of {path} is kept in one partition, whatever the number: the state of an aggregation"
                " without a key, or of a limit.\n"
                "Spreading it anew would lose it. Group by something, so that there is a key to spread it by."
            )
        if "Join" in source.operator and conf.get(_JOIN_FORMAT) == "4":
            raise UnsupportedStateError(
                f"{path} joins streams in state format 4, which this Spark cannot read after spreading it anew.\n"
                f"Start the query over from a new checkpoint with {_JOIN_FORMAT}=3."
            )


def _key_columns(reader: StateReader, source: StateSource, epoch: int) -> int:
    from pyspark.sql.types import StructType

    schema = reader.frame(source, epoch).schema
    key = schema["key"].dataType if "key" in schema.names else None
    return len(key.names) if isinstance(key, StructType) else 1
