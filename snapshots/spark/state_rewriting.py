"""Spark's own ``StateRewriter``, which Spark has since 4.2, and the bytes of rows that it takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streamstate.errors import SparkVersionError
from streamstate.snapshots.spark.plan_building import column_of, expression_of
from streamstate.snapshots.spark.private_classes import has_class, new, spark_class

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

_REWRITER = "org.apache.spark.sql.execution.streaming.state.StateRewriter"
_PATHS = "org.apache.spark.sql.execution.streaming.utils.StreamingUtils"
_ENCODE = "org.apache.spark.sql.catalyst.expressions.objects.EncodeUsingSerializer"


def require_state_writing(spark: SparkSession, what: str) -> None:
    """Raise unless this Spark can write state.

    Args:
        spark: the session.
        what: the beginning of the message, such as "Migrating a checkpoint".

    Raises:
        SparkVersionError: it cannot.
    """
    if not has_class(spark._jvm, _REWRITER):
        advice = (
            "Do it beside Spark 4.2 or later, in another environment: Spark 4.1 goes on from what that wrote, and 4.0"
            " from checkpoint format 1."
        )
        raise SparkVersionError.needs(what, "4.2", spark.version, advice)


def rewritten(session: SparkSession, epoch: int, paths: tuple[str, str], function: Any) -> Any:
    """Write the state of an epoch into another checkpoint, as the state of the same epoch.

    Args:
        session: one with the settings that the query is pinned to.
        epoch: a committed epoch.
        paths: the checkpoint, and the other one.
        function: a function of Scala, which gets the rows of each store and returns the new ones.

    Returns:
        The unique ids of the written files, as an option of Scala; empty in checkpoint format 1.
    """
    jvm: Any = session._jvm
    java: Any = session._jsparkSession
    hadoop = java.sessionState().newHadoopConf()
    resolve = spark_class(jvm, _PATHS).resolvedCheckpointLocation
    source, target = (resolve(hadoop, path) for path in paths)
    some = jvm.scala.Some
    rewriter = new(
        jvm, _REWRITER, java, epoch, epoch, target, hadoop, some(source), some(function), jvm.scala.Option.empty()
    )
    return rewriter.run()


def serialized(spark: SparkSession, column: Column) -> Column:
    """Return the bytes of a struct column as Kryo serializes its rows."""
    jvm: Any = spark._jvm
    kryo = True
    return column_of(jvm, spark_class(jvm, _ENCODE)(expression_of(jvm, column), kryo))
