"""Settings of the first epoch after a restart: those that the query is pinned to, and the state's unique ids."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.spark.catalyst import scala_object
from streamstate.snapshots.spark.incremental import METADATA

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"
_COMMIT_LOG_IS_READ_ONLY = True


def pinned_session(
    spark: SparkSession, checkpoint: CheckpointFiles, epoch: int, conf: Mapping[str, str]
) -> SparkSession:
    """Return a separate session with the settings that a query is pinned to.

    Args:
        spark: the session to copy.
        checkpoint: the query's.
        epoch: the epoch whose state is the last.
        conf: the pinned settings.
    """
    from pyspark.sql import SparkSession as Session

    java: Any = spark._jsparkSession
    session = Session(spark.sparkContext, java.cloneSession())
    # Spark also knows which values the settings had that an older version did not pin yet.
    metadata = scala_object(spark._jvm, METADATA)
    pinned = metadata.apply(json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": 0, "conf": dict(conf)}))
    metadata.setSessionConf(pinned, cast("Any", session._jsparkSession).sessionState().conf())
    # As Spark sets it for streams.
    settings = {**conf, FORMAT: checkpoint.format_version(epoch), "spark.sql.adaptive.enabled": "false"}
    for name, value in settings.items():
        if session.conf.isModifiable(name):
            session.conf.set(name, value)
    return session


def state_ids(spark: SparkSession, checkpoint: CheckpointFiles, epoch: int) -> Any:
    """Return the unique ids of the state's files at an epoch, by operator; empty in format 1 and at the beginning."""
    jvm: Any = spark._jvm
    found = jvm.scala.collection.mutable.HashMap()
    if epoch >= 0:
        package = jvm.org.apache.spark.sql.execution.streaming.checkpointing
        log = package.CommitLog(spark._jsparkSession, f"{checkpoint.path}/commits", _COMMIT_LOG_IS_READ_ONLY)
        committed = log.get(epoch)
        if committed.isDefined() and committed.get().stateUniqueIds().isDefined():
            found.addAll(committed.get().stateUniqueIds().get())
    return found
