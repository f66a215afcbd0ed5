"""The embedded Spark session, with the settings that make capturing state cheap.

Starting it sets the environment variable ``JAVA_HOME`` if that names no suitable Java. No other is left changed.
"""

from __future__ import annotations

import os
import socket
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamstate.errors import SessionError, SparkConnectError
from streamstate.snapshots.calls.progress_callback import long_call, report_progress
from streamstate.snapshots.spark.connect import (
    connect_session,
    is_of_connect,
    refuse_connect,
    require_classic,
    require_spark,
    uses_connect,
    version_numbers,
)
from streamstate.snapshots.spark.failures import innermost
from streamstate.snapshots.spark.interrupted_calls import spare_other_calls
from streamstate.snapshots.spark.java import require_java
from streamstate.snapshots.spark.java_process import LOG, java_ends_on_failure, start_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_STATE_STORE = "spark.sql.streaming.stateStore"
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"

# A socket's path has at most 103 bytes on macOS and 107 on Linux, of which Spark's file name takes 43.
_LONGEST_SOCKET_FOLDER = 60
_GIB = 2**30

# Failures are reported by the exception of the call or of the query; Spark's log messages would only repeat them. The
# second logger keeps Spark from announcing the change of the level.
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


def capture_settings() -> dict[str, str]:
    """Return the settings a query needs so that the cost of capturing an epoch depends on its changes only.

    Checkpoint format 2 is the safer one. Before Spark 4.0 there is none; 4.0 writes it, but cannot read it as state.
    """
    settings = {
        f"{_STATE_STORE}.providerClass": _ROCKSDB,
        f"{_STATE_STORE}.rocksdb.changelogCheckpointing.enabled": "true",
    }
    if (version := _version()) >= (4, 0):
        settings[f"{_STATE_STORE}.checkpointFormatVersion"] = "1" if version == (4, 0) else "2"
    return settings


def _version() -> tuple[int, ...]:
    """Return the version of PySpark, such as ``(4, 2)``: settings are chosen before Spark runs."""
    from pyspark import __version__

    return version_numbers(__version__)


class StreamStateWarning(UserWarning):
    """Something works, but could work better; the message says which settings to change."""


def session(**conf: object) -> SparkSession:
    """Return the running Spark session, classic or Connect, or start one with the settings that capture needs.

    A new session runs on this machine (``local[*]``, not reachable from other machines, no web interface) and keeps
    state in RocksDB with changelog checkpointing and checkpoint format 2, or 1 before Spark 4.1. A running session is
    returned as it is; a :class:`StreamStateWarning` names the settings that it lacks for cheap capture, once.

    The output of Java, and of functions that run in Spark's Python workers, goes to the session's log:
    ``spark.conf.get("spark.streamstate.log")`` returns its path. By default it is a new temporary file; pass that
    setting to choose another. Consecutive sessions of a process share one Java process, and so the first one's log.

    In a process that uses Spark Connect, the session is the one that the process has made; none is started.

    Args:
        **conf: Spark settings, which override the defaults. Their names contain dots, so write
            ``session(**{"spark.sql.shuffle.partitions": "4"})``. If a session is running, those that can still be
            changed are changed.

    Returns:
        The session.

    Raises:
        MissingDependencyError: Spark is not installed.
        SparkVersionError: the installed one is older than 3.5.
        JavaNotFoundError: Spark has to be started, and there is no Java 17 or 21.
        SessionError: Spark did not start, or a setting that is fixed at the start differs in the running session.
        SparkConnectError: this process uses Spark Connect and has no session yet, or its server does not answer.

    Example:
        >>> spark = session()
        >>> spark.conf.get("spark.sql.streaming.stateStore.checkpointFormatVersion")
        '2'
    """
    require_spark()
    requested = {key: _text(value) for key, value in conf.items()}
    if LOG in requested:
        requested[LOG] = str(Path(requested[LOG]).absolute())
    spark = running_session() or _connected()
    if spark is None:
        return _start(requested)
    _adjust(spark, requested)
    advise(spark)
    return spark


def _connected() -> SparkSession | None:
    """Return the Spark Connect session in use; None if this process does not use Spark Connect."""
    if not uses_connect():
        return None
    from streamstate.snapshots.spark.connect_server import require_server

    spark: SparkSession | None = connect_session()
    if spark is None:
        raise SparkConnectError.without_session()
    require_server(spark)
    return spark


def classic_session() -> SparkSession:
    """Return the running classic session, or start an embedded one.

    Raises:
        SparkConnectError: this process uses Spark Connect.
    """
    refuse_connect()
    return session()


def advise(spark: SparkSession) -> None:
    """Warn, once per session, about the settings that it lacks for cheap capture, and say how to set them."""
    lacking = {key: value for key, value in capture_settings().items() if spark.conf.get(key, None) != value}
    session_id = _session_id(spark)
    if not lacking or session_id in _advised:
        return
    _advised.add(session_id)
    settings = "\n".join(f'    spark.conf.set("{key}", "{value}")' for key, value in lacking.items())
    message = (
        "The running Spark session lacks settings that make state cheap to capture.\n"
        f"Set them before you start a query (existing checkpoints keep their settings):\n{settings}"
    )
    warnings.warn(message, StreamStateWarning, stacklevel=3)


def _session_id(spark: Any) -> str:
    return str(spark.session_id if is_of_connect(spark) else spark._jsparkSession.sessionUUID())


def running_session() -> SparkSession | None:
    """Return the classic session in use; None if Spark is not running, or behind Spark Connect."""
    if sys.modules.get("pyspark") is None or uses_connect():
        return None
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    # getActiveSession() is per thread: it returns None in threads other than the one that started Spark.
    return None if SparkContext._active_spark_context is None else SparkSession.builder.getOrCreate()


def session_in_use(spark: SparkSession | None, *, connect: bool = False) -> SparkSession:
    """Return the session that was given, or the one that runs, perhaps behind Spark Connect.

    Raises:
        SparkConnectError: it has to be a classic session, and this process uses Spark Connect.
        SessionError: no session is running.
    """
    require_spark()
    spark = spark or running_session() or connect_session()
    if not connect:
        require_classic(spark)
    if spark is None:
        refuse_connect()
        raise SessionError("No Spark session is running.\nStart one with streamstate.session(), or pass spark=….")
    return spark


def given_session(spark: SparkSession | None) -> SparkSession:
    """Return the session that was given, the one that runs, or a new embedded one.

    Raises:
        SparkConnectError: the session, or this process, uses Spark Connect.
    """
    require_classic(spark)
    return spark or classic_session()


@long_call("Spark was not started.", name="Spark's start")
def _start(requested: dict[str, str]) -> SparkSession:
    """Start Spark in this process's own JVM."""
    report_progress("starting Spark")
    require_java()
    from pyspark.sql import SparkSession

    with tempfile.TemporaryDirectory(prefix="streamstate-") as folder, _this_python(), java_ends_on_failure():
        settings: dict[str, Any] = {**_defaults(), **requested}
        _quieten(settings, Path(folder, "log4j2.properties"))
        try:
            start_java(settings)
            spark = SparkSession.builder.config(map=settings).getOrCreate()
        except Exception as error:  # noqa: BLE001 (PySpark's, py4j's and the JVM's share no narrower base)
            # An error of py4j asks Java for its text, and Java ends.
            cause = RuntimeError(str(error))
            raise SessionError(_did_not_start(error, requested, settings.get(LOG))) from cause
    spare_other_calls()
    return spark


@contextmanager
def _this_python() -> Iterator[None]:
    """Have Spark's workers run this Python, not the first ``python3`` on PATH; the variable is set for the start only.

    PySpark reads the variable when it makes a context, and Java when it starts. The setting ``spark.pyspark.python``
    counts only where ``spark-submit`` starts Python.
    """
    name = "PYSPARK_PYTHON"
    if name in os.environ:
        yield
        return
    os.environ[name] = sys.executable
    try:
        yield
    finally:
        os.environ.pop(name, None)


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
        # The small jobs of a capture then share the cores with the query's, instead of queueing behind them.
        "spark.scheduler.mode": "FAIR",
        "spark.sql.shuffle.partitions": str(min(max(cores, 2), 8)),
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        **_sockets(),
        **capture_settings(),
    }


def _sockets() -> dict[str, str]:
    """Unix domain sockets instead of ports, in a folder whose path is short enough for them.

    Ports belong to whoever connects first: a stray connection makes a result or a ``transformWithState`` query hang.
    """
    folder, setting = tempfile.gettempdir(), "spark.python.unix.domain.socket"
    if _version() < (4, 1):
        return {}  # Spark has only ports
    if not hasattr(socket, "AF_UNIX") or len(os.fsencode(folder)) > _LONGEST_SOCKET_FOLDER:
        return {f"{setting}.enabled": "false"}
    return {f"{setting}.enabled": "true", f"{setting}.dir": folder}


def _driver_memory() -> int:
    """Return a quarter of the memory that this process may use, from 1 to 4 GiB; RocksDB's own memory comes on top."""
    import psutil

    available = psutil.virtual_memory().total
    limit = Path("/sys/fs/cgroup/memory.max")  # psutil does not know the limit of a container
    if limit.exists() and (text := limit.read_text().strip()).isdigit():
        available = min(available, int(text))
    return min(max(available // 4, _GIB), 4 * _GIB)


def _quieten(settings: dict[str, Any], file: Path) -> None:
    """Give Spark a quiet logging configuration, unless the user has configured logging."""
    options = settings.get("spark.driver.extraJavaOptions", "")
    if "log4j" in options or os.environ.get("SPARK_CONF_DIR"):
        return
    file.write_text(_LOG4J)
    settings["spark.driver.extraJavaOptions"] = f"{options} -Dlog4j2.configurationFile={file.as_uri()}".strip()


def _adjust(spark: SparkSession, requested: dict[str, str]) -> None:
    """Change settings of a running session: all of them or none."""
    before = {key: spark.conf.get(key, None) for key in requested}
    differing = {key: value for key, value in requested.items() if before[key] != value}
    fixed = [key for key, value in differing.items() if not _set(spark, key, value)]
    if not fixed:
        return
    for key in differing.keys() - set(fixed):
        _set(spark, key, before[key])
    listed = "\n".join(f"  {key} is {before[key] or 'not set'}, not {requested[key]}" for key in fixed)
    raise SessionError(
        f"Spark is running, and these settings cannot be changed after it has started:\n{listed}\n"
        "Leave them out to use the running session, or run spark.stop() and call session(...) again."
    )


def _set(spark: SparkSession, key: str, value: str | None) -> bool:
    """Set (None: unset) a setting of a running session; False if it is fixed when Spark starts."""
    from pyspark.errors import AnalysisException

    if not key.startswith("spark.sql."):
        return False  # Spark accepts some of them, without effect
    try:
        if value is None:
            spark.conf.unset(key)
        else:
            spark.conf.set(key, value)
    except AnalysisException:
        return False
    return True


def _text(value: object) -> str:
    """Return a setting's value as Spark writes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _did_not_start(error: Exception, requested: dict[str, str], log: str | None) -> str:
    """Return the message for a Spark that did not start."""
    settings = ", ".join(f"{key}={value}" for key, value in requested.items())
    given = f"\nSettings given: {settings}." if settings else ""
    where = f"\nJava's output is in {log}." if log else ""
    return f"Spark did not start: {innermost(error)}{given}{where}"
