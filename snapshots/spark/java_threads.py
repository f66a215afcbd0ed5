"""What the threads of the driver's JVM are doing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streamstate.snapshots.spark.connect import is_of_connect

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery


def stack_of(query: StreamingQuery, thread: str) -> list[str]:
    """Return the calls that a thread is in, the innermost first, such as ``java.lang.Thread.sleep(Native Method)``.

    Args:
        query: a query of the JVM.
        thread: a part of the thread's name; that of a query's own thread has its run id.

    Returns:
        The calls; empty if the JVM has no such thread, is a Spark Connect server's, or does not answer.
    """
    if is_of_connect(query):
        return []
    from py4j.protocol import Py4JError
    from pyspark import SparkContext

    try:
        gateway: Any = SparkContext._gateway  # noqa: SLF001 (no public way)
        for known in gateway.jvm.java.lang.Thread.getAllStackTraces().keySet().toArray():
            if thread in known.getName():
                return [str(call.toString()).rpartition("//")[2] for call in known.getStackTrace()]
    except (Py4JError, AttributeError, OSError):
        pass  # the session is ending
    return []
