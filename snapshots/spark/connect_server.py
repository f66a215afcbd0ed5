"""Queries that run in a Spark Connect server: the server's answer or its absence, and a query's checkpoint."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import TYPE_CHECKING, Any, TypeVar

from streamstate.errors import (
    NoStateError,
    QueryError,
    SparkConnectError,
    WaitTimeoutError,
    first_line,
)
from streamstate.snapshots.spark.connect import is_of_connect, version_numbers

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery
    from pyspark.sql.types import StructType

T = TypeVar("T")

_ANSWER_SECONDS = 5.0
"""The wait for a connection. Spark's own client tries again for ten minutes."""
_LONGEST_CALL = 15.0
"""The wait for the answer to a question about a query: the server may end after the connection was checked."""
_LOST_SECONDS = 0.1
"""The same wait as for a connection, once the server was lost."""
FIRST_BATCH_SECONDS = 60.0
"""The wait for a query to plan its first batch."""
_POLL_SECONDS = 0.1
_UNPLANNED = "No physical plan"
_STATE_INFO = "state info [ checkpoint = "
# Spark writes the path as it is, whatever characters it has.
_CHECKPOINT = re.compile(re.escape(_STATE_INFO) + r"(.+?)/state, runId = ")


def require_server(spark: Any, timeout: float = _ANSWER_SECONDS) -> None:
    """Raise unless the server of a Spark Connect session answers.

    Raises:
        SparkConnectError: it does not.
    """
    import grpc  # type: ignore[import-untyped]

    try:
        grpc.channel_ready_future(spark.client._channel).result(timeout)  # noqa: SLF001 (no public way)
    except (grpc.FutureTimeoutError, ValueError) as error:  # the channel of a session that was stopped is closed
        raise SparkConnectError.no_answer(server_address(spark)) from error


def server_address(spark: Any) -> str:
    """Return the address of the server of a Spark Connect session."""
    return f"sc://{spark.client.host}"


def frame_with_rows(spark: Any, rows: pa.Table, schema: StructType | None = None) -> DataFrame:
    """Return a DataFrame of a session, classic or Connect, with the rows of an Arrow table.

    Raises:
        SparkConnectError: the server does not answer, or the client is newer, and fails to send it rows.
    """
    if is_of_connect(spark):
        require_server(spark)  # which Spark would otherwise ask for ten minutes
    try:
        frame: DataFrame = spark.createDataFrame(rows, schema)
    except Exception as error:
        from pyspark import __version__

        if is_of_connect(spark) and version_numbers(spark.version) < version_numbers(__version__):
            raise SparkConnectError(
                f"Spark's client, {__version__}, is newer than its server, {spark.version}, and cannot send it rows:"
                f" {first_line(error)}\n"
                f"Install the server's version in this environment: pip install 'pyspark=={spark.version}'."
            ) from error
        raise
    return frame


def keeps_state_there(frame: Any) -> bool:
    """Return whether the server's plan of a streaming frame has an operator that keeps state; True if it has no plan.

    Spark explains a frame over SQL or a view as if it were a batch, and fails because it reads a stream.
    """
    from pyspark.errors import AnalysisException
    from pyspark.sql.connect.plan import SQL

    # Its failure would be logged with a long stack trace.
    if isinstance(frame._plan, SQL):  # noqa: SLF001 (no public way)
        return True
    try:
        return _STATE_INFO in str(frame._explain_string())  # noqa: SLF001 (explain() prints it)
    except AnalysisException:
        return True


def served(query: StreamingQuery) -> StreamingQuery:
    """Return a query so that it can be asked whether its server still answers; a classic query as it is."""
    return ServedQuery(query) if is_of_connect(query) and not isinstance(query, ServedQuery) else query  # type: ignore[return-value]  # the same methods


class ServedQuery:
    """A query of Spark Connect; if its server does not answer, it has failed. All else is that of Spark's handle."""

    of_connect = True

    def __init__(self, query: Any) -> None:
        self._query = query
        self._lost: SparkConnectError | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._query, name)

    @property
    def isActive(self) -> bool:  # noqa: N802 (Spark's name)
        """True if it runs."""
        return self._asked(lambda: bool(self._query.isActive), otherwise=False)

    @property
    def lastProgress(self) -> Any:  # noqa: N802 (Spark's name)
        """The progress of its newest batch; None if there is none."""
        return self._asked(lambda: self._query.lastProgress, otherwise=None)

    @property
    def recentProgress(self) -> Any:  # noqa: N802 (Spark's name)
        """The progress of its newest batches."""
        return self._asked(lambda: self._query.recentProgress, otherwise=[])

    def exception(self) -> Exception | None:
        """Return the reason of its failure; None if it did not fail."""
        failure: Exception | None = self._asked(self._query.exception, otherwise=None)
        return self._lost or failure

    def _asked(self, question: Callable[[], T], *, otherwise: T) -> T:
        """Return the server's answer, or another value if it has none."""
        from pyspark.errors import PySparkException

        try:
            spark = session_of(self._query)
            require_server(spark, _ANSWER_SECONDS if self._lost is None else _LOST_SECONDS)
            answer = answered(question, spark)
        except SparkConnectError as error:
            self._lost = error
        except PySparkException as error:  # another server has the address now, and does not know the query
            self._lost = SparkConnectError(f"The Spark Connect server has no such query: {first_line(error)}")
        else:
            self._lost = None
            return answer
        return otherwise


def answered(question: Callable[[], T], spark: Any, *, longest: float = _LONGEST_CALL) -> T:
    """Return the server's answer to a question.

    Raises:
        SparkConnectError: the server cannot be reached meanwhile, or takes longer than some seconds.
    """
    answer, deadline = _asking(question), time.monotonic() + longest
    while not wait([answer], min(_ANSWER_SECONDS, longest)).done:
        require_server(spark)
        if time.monotonic() > deadline:
            raise SparkConnectError.no_answer(server_address(spark))
    return answer.result()


def _asking(question: Callable[[], T]) -> Future[T]:
    """Ask in a thread: if the server goes away, Spark's client goes on asking for minutes."""
    answer: Future[T] = Future()

    def ask() -> None:
        try:
            answer.set_result(question())
        except Exception as error:  # noqa: BLE001 (raised in the thread that asked)
            answer.set_exception(error)

    threading.Thread(target=ask, name="streamstate-connect", daemon=True).start()
    return answer


def connect_checkpoint(query: Any, *, timeout: float = FIRST_BATCH_SECONDS) -> str:
    """Return the checkpoint of a query of Spark Connect, a path of its server that the plan of its newest batch names.

    Args:
        query: the query.
        timeout: seconds to wait for the query to plan its first batch.

    Raises:
        SparkConnectError: the server does not answer.
        WaitTimeoutError: the query has planned no batch in time.
        QueryError: it ended before its first batch.
        NoStateError: it keeps no state.
    """
    require_server(session_of(query))
    plan = _first_plan(query, time.monotonic() + timeout, timeout)
    found = _CHECKPOINT.search(plan)
    if found is None:
        raise NoStateError(f"{_named(query)} keeps no state, so there is nothing to capture.")
    return re.sub("^file:/+", "/", found[1])


def _first_plan(query: Any, deadline: float, timeout: float) -> str:
    """Return the plan of the newest batch, once there is one."""
    from pyspark.errors import PySparkException

    while True:
        try:
            was_active, plan = query.isActive, _explained(query)
        except PySparkException as error:
            raise QueryError(f"The Spark Connect server does not know {_named(query)}: {first_line(error)}") from error
        if not plan.startswith(_UNPLANNED):
            return plan
        if not was_active:
            raise QueryError(
                f"{_named(query)} ended before it planned a batch, so its checkpoint is not known.\n"
                "Pass the checkpoint's path instead of the query."
            )
        if time.monotonic() > deadline:
            raise WaitTimeoutError(
                f"{_named(query)} planned no batch within {timeout:g} s, and through Spark Connect its checkpoint is"
                " known from then on only.\n"
                "Give it input, or pass the checkpoint's path instead of the query."
            )
        time.sleep(_POLL_SECONDS)


def _explained(query: Any) -> str:
    """Return what ``query.explain()`` prints."""
    from pyspark.sql.connect.proto import StreamingQueryCommand

    command = StreamingQueryCommand()
    command.explain.extended = False
    return str(query._execute_streaming_query_cmd(command).explain.result)  # noqa: SLF001 (explain() prints it)


def session_of(query: Any) -> Any:
    """Return the Spark Connect session of a query."""
    return query._session  # noqa: SLF001 (no public way)


def _named(query: Any) -> str:
    return str(query.name or f"The query {query.id}")
