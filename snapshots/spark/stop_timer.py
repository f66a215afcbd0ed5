"""A timer in the JVM that stops a streaming query unless it is set again in time, whatever Python does meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class StopTimer:
    """Stops the query with an id, in whichever run it is then.

    Args:
        spark: the query's session, a classic one.
        query_id: the id in the query's checkpoint.
    """

    def __init__(self, spark: SparkSession, query_id: str) -> None:
        jvm: Any = spark._jvm
        self._stop = _stop_of(jvm, spark, query_id)
        self._milliseconds = jvm.java.util.concurrent.TimeUnit.MILLISECONDS
        self._timers: Any = jvm.java.util.concurrent.ScheduledThreadPoolExecutor(1)
        self._timers.setRemoveOnCancelPolicy(True)
        self._kept: Any = None

    def set(self, seconds: float) -> Any:
        """Stop the query after a time, besides what was set before; returns a handle for the other methods."""
        return self._timers.schedule(self._stop, int(seconds * 1000), self._milliseconds)

    def keep(self, handle: Any) -> bool:
        """Let only this setting count; False if the one before has already stopped the query."""
        before, self._kept = self._kept, handle
        return before is None or self.unset(before)

    def unset(self, handle: Any) -> bool:
        """Let a setting not count; False if it has already stopped the query."""
        in_time = bool(handle.cancel(False))  # noqa: FBT003 (a Java method); true as well while it stops the query
        return in_time and bool(handle.getDelay(self._milliseconds) > 0)

    def end(self) -> None:
        """Never stop the query."""
        self._timers.shutdownNow()


def _stop_of(jvm: Any, spark: SparkSession, query_id: str) -> Any:
    """Return a Java ``Runnable`` that stops the query with an id, if it runs then."""
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway  # noqa: SLF001 (PySpark's own way)
    java: Any = spark._jsparkSession
    manager = java.streams()
    identifier = jvm.java.util.UUID.fromString(query_id)
    kinds = gateway.new_array(jvm.java.lang.Class, 1)
    kinds[0] = identifier.getClass()
    get = manager.getClass().getMethod("get", kinds)
    stop = get.getReturnType().getMethod("stop", gateway.new_array(jvm.java.lang.Class, 0))
    bound = gateway.new_array(jvm.java.lang.Object, 2)
    bound[0], bound[1] = manager, identifier
    handles = jvm.java.lang.invoke.MethodHandles
    lookup = handles.publicLookup()
    stopping = lookup.unreflect(stop)
    found = jvm.java.lang.invoke.MethodType.methodType(stopping.type().parameterType(0))
    query = handles.insertArguments(lookup.unreflect(get), 0, bound).asType(found)
    runnable = jvm.java.lang.Class.forName("java.lang.Runnable")
    return jvm.java.lang.invoke.MethodHandleProxies.asInterfaceInstance(
        runnable, handles.filterReturnValue(query, stopping)
    )
