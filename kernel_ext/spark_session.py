"""The embedded Spark session, with the settings that make capturing state cheap."""

from __future__ import annotations

import os
import sys
import tempfile
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamstate.interrupted_calls import spare_other_calls
from streamstate.java import require_java
from streamstate.snapshots.errors import SessionError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["StreamStateWarning", "advise", "running_session", "session"]

_STATE_STORE = "spark.sql.streaming.stateStore"
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"

CAPTURE_SETTINGS = {
    f"{_STATE_STORE}.providerClass": _ROCKSDB,
    f"{_STATE_STORE}.rocksdb.changelogCheckpointing.enabled": "true",
    f"{_STATE_STORE}.checkpointFormatVersion": "2",
}
"""What a query has to be started with so that each of its epochs can be captured for the price of its changes."""

_GIB = 2**30

# Spark's own messages would land in whichever cell is running. What fails is reported by the exception of the
# call or of the query; the second logger keeps Spark from announcing that it changed the level.
_LOG4J = """\
rootLogger.level = fatal
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n
logger.repl.name = org.apache.spark.api.python.PythonGatewayServer
logger.repl.level = fatal
"""

_advised: set[str] = set()


class StreamStateWarning(UserWarning):
    """Something that works, but not as well as it could; the message says what to set."""


def session(**conf: object) -> SparkSession:
    """Embedded Spark with the settings that capture needs; a running session is used as it is.

    A new session runs on this machine (``local[*]``, reachable from this machine only, no web interface) and keeps
    state in RocksDB with changelog checkpointing and checkpoint format 2. Where a session is running already, it is
    returned, and what it lacks for cheap capture is said once, as a :class:`StreamStateWarning`.

    Args:
        **conf: Spark settings that go before the defaults; their names contain dots, so write
            ``session(**{"spark.sql.shuffle.partitions": "4"})``. While a session runs, those that can be set are set.

    Returns:
        The session.

    Raises:
        JavaNotFoundError: Spark has to be started and there is no Java 17 or 21.
        SessionError: Spark did not start, or a setting that is fixed when Spark starts differs in the running session.

    Example:
        >>> spark = session()
        >>> spark.conf.get("spark.sql.streaming.stateStore.checkpointFormatVersion")
        '2'
    """
    wanted = {key: _text(value) for key, value in conf.items()}
    spark = running_session()
    if spark is None:
        return _start(wanted)
    _adjust(spark, wanted)
    advise(spark)
    return spark


def advise(spark: SparkSession) -> None:
    """Say once per session which settings it lacks for cheap capture, and how to set them."""
    lacking = {key: value for key, value in CAPTURE_SETTINGS.items() if spark.conf.get(key, None) != value}
    session_id = spark._jsparkSession.sessionUUID()
    if not lacking or session_id in _advised:
        return
    _advised.add(session_id)
    settings = "\n".join(f'    spark.conf.set("{key}", "{value}")' for key, value in lacking.items())
    message = (
        "The running Spark session is used as it is. Queries whose state is cheap to capture need other settings;\n"
        f"run this before you start them (a checkpoint that exists keeps what it was started with):\n{settings}"
    )
    warnings.warn(message, StreamStateWarning, stacklevel=3)


def running_session() -> SparkSession | None:
    """The session in use, or None where Spark is not running."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    # getActiveSession() is per thread and says None in others than the one that started Spark.
    if SparkContext._active_spark_context is None:
        return None
    spare_other_calls()
    return SparkSession.builder.getOrCreate()


def _start(wanted: dict[str, str]) -> SparkSession:
    """Start Spark in this process's own JVM."""
    require_java()
    from pyspark.sql import SparkSession

    spare_other_calls()
    # Without it the workers run whatever `python3` is first on PATH, not the kernel's environment.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    with tempfile.TemporaryDirectory(prefix="streamstate-") as folder:
        settings: dict[str, Any] = {**_defaults(), **wanted}
        _quieten(settings, Path(folder, "log4j2.properties"))
        try:
            return SparkSession.builder.config(map=settings).getOrCreate()
        except Exception as error:  # PySpark's, py4j's and the JVM's share no narrower base
            raise SessionError(_did_not_start(error, wanted)) from error


def _defaults() -> dict[str, str]:
    """Settings of a new session on this machine."""
    cores = os.cpu_count() or 2
    return {
        "spark.app.name": "streamstate",
        "spark.master": "local[*]",
        "spark.driver.host": "localhost",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": f"{_driver_memory() // 2**20}m",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # A capture's small jobs take turns with the query's, instead of queueing behind them.
        "spark.scheduler.mode": "FAIR",
        "spark.sql.shuffle.partitions": str(min(max(cores, 2), 8)),
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        **CAPTURE_SETTINGS,
    }


def _driver_memory() -> int:
    """A quarter of the memory this process may use, from 1 to 4 GiB; RocksDB's own memory comes on top."""
    available = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = Path("/sys/fs/cgroup/memory.max")
    if limit.exists() and (text := limit.read_text().strip()).isdigit():
        available = min(available, int(text))
    return min(max(available // 4, _GIB), 4 * _GIB)


def _quieten(settings: dict[str, Any], file: Path) -> None:
    """Point Spark to a logging configuration of ours, unless the user chose how Spark logs."""
    options = settings.get("spark.driver.extraJavaOptions", "")
    if "log4j" in options or os.environ.get("SPARK_CONF_DIR"):
        return
    file.write_text(_LOG4J)
    settings["spark.driver.extraJavaOptions"] = f"{options} -Dlog4j2.configurationFile={file.as_uri()}".strip()


def _adjust(spark: SparkSession, wanted: dict[str, str]) -> None:
    """Set on a running session what can be set; all of it or nothing."""
    before = {key: spark.conf.get(key, None) for key in wanted}
    differing = {key: value for key, value in wanted.items() if before[key] != value}
    fixed = [key for key, value in differing.items() if not _set(spark, key, value)]
    if not fixed:
        return
    for key in differing.keys() - set(fixed):
        _set(spark, key, before[key])
    listed = "\n".join(f"  {key} is {before[key] or 'not set'}, not {wanted[key]}" for key in fixed)
    raise SessionError(
        f"Spark is running, and these settings are fixed when it starts:\n{listed}\n"
        "Leave them out to use the running session, or run spark.stop() and call session(...) again."
    )


def _set(spark: SparkSession, key: str, value: str | None) -> bool:
    """Set (None: unset) one setting of a running session; False where it can only be given at the start."""
    from pyspark.errors import AnalysisException

    if not key.startswith("spark.sql."):
        return False  # Spark lets some of them be set, to no effect
    try:
        if value is None:
            spark.conf.unset(key)
        else:
            spark.conf.set(key, value)
    except AnalysisException:
        return False
    return True


def _text(value: object) -> str:
    """A setting's value as Spark spells it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _did_not_start(error: Exception, wanted: dict[str, str]) -> str:
    """Why Spark did not start, in plain lines."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    given = f"\nThe settings given: {', '.join(f'{key}={value}' for key, value in wanted.items())}." if wanted else ""
    return f"Spark did not start: {lines[0]}{given}"
