"""The current time in a plan: Spark replaces it by that of the epoch before it plans the epoch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from streamstate.snapshots.spark.catalyst import kind_of
from streamstate.snapshots.spark.incremental import EpochClock


def has_current_time(jvm: Any, node: Any) -> bool:
    """Return whether a plan or an expression has ``current_timestamp()`` or the like."""
    return bool(node.containsPattern(jvm.org.apache.spark.sql.catalyst.trees.TreePattern.CURRENT_LIKE()))


class _PartialFunction:
    """A ``scala.PartialFunction`` that asks Python."""

    def __init__(self, change: Callable[[Any], Any | None]) -> None:
        self._change = change

    def apply(self, value: Any) -> Any:
        return self._change(value)

    def isDefinedAt(self, value: Any) -> bool:  # noqa: N802 (Scala calls it by this name)
        return self._change(value) is not None

    def applyOrElse(self, value: Any, default: Any) -> Any:  # noqa: N802
        made = self._change(value)
        return default.apply(value) if made is None else made

    class Java:
        implements = ("scala.PartialFunction",)


def at_time(jvm: Any, plan: Any, clock: EpochClock) -> Any:
    """Return the plan with the epoch's time for ``current_timestamp()`` and the like, as Spark puts it there."""
    if not has_current_time(jvm, plan):
        return plan
    from pyspark import SparkContext
    from pyspark.java_gateway import ensure_callback_server_started

    # Python is asked about each expression, so only where that is needed.
    gateway: Any = SparkContext._gateway  # noqa: SLF001 (PySpark's own way)
    ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
    batch_time = jvm.org.apache.spark.sql.catalyst.expressions.CurrentBatchTimestamp

    def replaced(expression: Any) -> Any | None:
        kind = kind_of(expression)
        if kind == "CurrentTimestamp":
            zone = jvm.scala.Option.apply("Dummy TimeZoneId")
            return batch_time(clock.began_at, expression.dataType(), zone).toLiteral()
        if kind in ("LocalTimestamp", "CurrentDate"):
            return batch_time(clock.began_at, expression.dataType(), expression.timeZoneId()).toLiteral()
        return None

    return plan.transformAllExpressions(_PartialFunction(replaced))
