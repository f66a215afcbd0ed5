"""The Java process of this process's Spark: how it starts, and how it ends."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

LOG = "spark.streamstate.log"
"""The setting with the path of the session's log, which receives the output of Java and Spark's Python workers."""

_ENDS_IN = 10.0
"""Seconds that Java has to end by itself, and to remove its temporary folders."""
_LINES = 5
_THROWN = 'Exception in thread "main" '


def start_java(settings: dict[str, Any]) -> None:
    """Start Java, whose output goes to the log, and Spark in it; a Java left by an earlier session is reused."""
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkRuntimeError
    from pyspark.java_gateway import launch_gateway

    if has_java():
        settings.pop(LOG, None)  # its output stays where it is
        return
    if LOG not in settings:
        with tempfile.NamedTemporaryFile(prefix="streamstate-", suffix=".log", delete=False) as log:
            settings[LOG] = log.name
    with Path(settings[LOG]).open("a+b") as output:
        begin = output.seek(0, os.SEEK_END)
        conf = SparkConf().setAll([(key, str(value)) for key, value in settings.items()])
        try:
            gateway = launch_gateway(conf, {"stdout": output, "stderr": output})  # type: ignore[no-untyped-call]
        except PySparkRuntimeError as error:
            output.seek(begin)
            raise PySparkRuntimeError(_printed(output.read()) or str(error)) from None
        SparkContext(conf=conf, gateway=gateway)


def has_java() -> bool:
    """Return whether this process has a Java already, its own or that of ``spark-submit``."""
    from pyspark import SparkContext

    return SparkContext._jvm is not None or "PYSPARK_GATEWAY_PORT" in os.environ


def java_runs() -> bool:
    """Return whether a Java that this process started is running."""
    java = _own_java()
    return java is not None and java.poll() is None


def java_process_id() -> int | None:
    """Return the process id of this process's Java; None if it has none."""
    from pyspark import SparkContext

    jvm: Any = SparkContext._jvm
    return None if jvm is None else int(jvm.java.lang.ProcessHandle.current().pid())


@contextmanager
def java_ends_on_failure() -> Iterator[None]:
    """If the start in the block fails, end the Java that it started: the next start is another.

    The Java of an earlier session stays. Nobody else would end this one, and it has the settings that failed.
    """
    import psutil

    if has_java():
        yield
        return
    before = set(psutil.Process().children())
    try:
        yield
    except BaseException:
        if _own_java() is None:  # interrupted before PySpark had noted it
            for started in set(psutil.Process().children()) - before:
                with suppress(psutil.Error):  # it has ended
                    if any("spark" in part for part in started.cmdline()):
                        started.kill()
        end_java()
        raise


def end_java() -> None:
    """End the Java that this process started, if any, and wait until it has ended."""
    from pyspark import SparkContext

    context, java = SparkContext._active_spark_context, _own_java()
    if java is not None:
        java.stdin.close()
        try:
            java.wait(_ENDS_IN)
        except subprocess.TimeoutExpired:
            java.kill()
            java.wait()
    if context is not None:
        vars(context)["_jsc"] = None  # Java has ended: only what is in Python is left to stop
        context.stop()
    for name in ("_gateway", "_jvm"):
        setattr(SparkContext, name, None)


def _own_java() -> Any:
    """Return the process that PySpark has started; None if there is none."""
    from pyspark import SparkContext

    return getattr(SparkContext._gateway, "proc", None)  # noqa: SLF001 (no public way)


def _printed(output: bytes) -> str:
    """Return the lines of output that say why Java did not start."""
    lines = [line.strip().removeprefix(_THROWN) for line in output.decode(errors="replace").splitlines()]
    return "; ".join([line for line in lines if line and not line.startswith(("WARNING: ", "at "))][:_LINES])
