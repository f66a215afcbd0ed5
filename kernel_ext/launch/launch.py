"""The frame, checkpoint, output mode, sink and trigger of a query to start, and checks of its plan."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from streamstate.errors import InvalidArgumentError, NoStateError, QueryError, first_line
from streamstate.launch.fence import Fence
from streamstate.launch.sink import NOOP, Sink
from streamstate.snapshots.checkpoint.bindings import LEVEL
from streamstate.snapshots.spark.catalyst import keeps_state
from streamstate.snapshots.spark.connect import classic_of, is_of_connect
from streamstate.snapshots.spark.connect_server import keeps_state_there, require_server, served
from streamstate.snapshots.spark.interrupted_calls import lasting_jobs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from streamstate.operations.supervision.restart_policy import BackOff
    from streamstate.snapshots.capture.recording.recorder import Recorder
    from streamstate.variables.shared_variable import SharedVariable

_UNITS = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "min": "minutes", "h": "hours"}
_INTERVAL = re.compile(r"(\d+)\s*(ms|s|min|m|h)")
_PARTITIONS = "spark.sql.shuffle.partitions"


def trigger_options(text: str | None) -> dict[str, Any]:
    """Return the arguments of ``writeStream.trigger``; none without a trigger: process data as it arrives."""
    if text is None:
        return {}
    if text in ("once", "available-now"):
        return {"once": True} if text == "once" else {"availableNow": True}
    if match := _INTERVAL.fullmatch(text.strip()):
        return {"processingTime": f"{match[1]} {_UNITS[match[2]]}"}
    raise InvalidArgumentError(
        f"Invalid trigger {text!r}.\n"
        "Triggers: an interval such as 500ms, 1s, 5m or 1h; available-now (process what is available, then end); "
        "once (one epoch)."
    )


@dataclass(frozen=True)
class Launch:
    """Everything needed to start a query, and to start it again."""

    name: str
    frame: DataFrame
    checkpoint: str
    mode: str = "update"
    sink: Sink = NOOP
    trigger: str | None = None
    partitions: int | None = None
    restart: BackOff | None = None
    """When to restart the query if it fails; None: never."""
    shared: tuple[SharedVariable, ...] = ()
    """The shared variables that its epochs are bound to; its frame reads the source that binds them."""
    fence: Fence = field(default_factory=Fence, compare=False, repr=False)
    """The lease on the query, if it has one; it is kept through restarts."""

    @property
    def on_connect(self) -> bool:
        """True if a Spark Connect server runs the query."""
        return is_of_connect(self.frame)

    @property
    def classic_session(self) -> SparkSession | None:
        """The session of the query; None if that is one of Spark Connect."""
        return classic_of(self.frame.sparkSession)

    @property
    def chosen_variables(self) -> dict[str, SharedVariable]:
        """The shared variables that it was started with, by name: all but the level of its shedding."""
        return {variable.name: variable for variable in self.shared if not variable.name.endswith(LEVEL)}

    @property
    def ends(self) -> bool:
        """True if the query ends by itself once it has processed the available input."""
        return self.trigger in ("once", "available-now")

    def check_resumes(self, committed: Sequence[int]) -> None:
        """Refuse to resume after committed epochs if Spark would: a memory table must be rewritten in each epoch."""
        if committed and self.sink.format == "memory" and self.mode != "complete":
            raise QueryError(
                f"{self.name} has a checkpoint, and a memory sink can only resume in mode complete.\n"
                "Use sink noop to resume (%state shows the results), or another name to start over."
            )

    def recorders(self) -> list[Recorder]:
        """Return the recorders of the query's input in this process."""
        if self.on_connect:
            return []
        from streamstate.snapshots.capture.recording.record import recorders_of

        return recorders_of(self.frame)

    def check_sources(self) -> None:
        """Check that the brokers of its sources answer and have its topics, those of its recorders included.

        Raises:
            QueryError: they do not.
        """
        from streamstate.snapshots.spark.kafka_broker import check_answers

        if not self.on_connect:
            for frame in (self.frame, *(recorder.frame for recorder in self.recorders())):
                check_answers(frame)

    def start_again(self) -> StreamingQuery:
        """Start the query after a failure, if the brokers of its sources answer; Spark would try for minutes."""
        from streamstate.snapshots.spark.kafka_broker import check_answers

        if not self.on_connect:
            check_answers(self.frame)
        return self.start()

    @lasting_jobs()
    def start(self) -> StreamingQuery:
        """Start the query from its checkpoint, and before it what records its input."""
        from streamstate.snapshots.spark.connect import errors_of_spark

        self.fence.check()
        spark = self.frame.sparkSession
        if self.on_connect:
            require_server(spark)
        sink = self.sink if self.on_connect else self.sink.after(self.fence.check)
        writer = sink.attach(self.frame.writeStream.queryName(self.name)).outputMode(self.mode)
        writer = writer.option("checkpointLocation", self.checkpoint)
        if self.trigger is not None:
            writer = writer.trigger(**trigger_options(self.trigger))
        recorders = self.recorders()
        idle = [recorder for recorder in recorders if not recorder.active]
        try:
            for recorder in recorders:
                recorder.start(self.name, trigger=trigger_options(self.trigger))
            with self._active_session(), with_partitions(spark, self.partitions), self._bound_run():
                return self.sink.begun(served(writer.start(self.sink.path)), self.name)
        except BaseException as error:
            for recorder in idle:
                recorder.stop(self.name)
            if isinstance(error, errors_of_spark()):
                raise QueryError(f"Spark did not start {self.name}: {first_line(error)}") from error
            raise

    def _active_session(self) -> AbstractContextManager[None]:
        if self.on_connect:
            return nullcontext()
        from streamstate.snapshots.spark.python_sources import active_session

        return active_session(self.frame.sparkSession)

    def _bound_run(self) -> AbstractContextManager[None]:
        if not self.shared:
            return nullcontext()
        from streamstate.variables.query_with_variables import bound_run

        return bound_run(self.frame, self.checkpoint)


@contextmanager
def with_partitions(spark: SparkSession, count: int | None) -> Iterator[None]:
    """Set the number of shuffle partitions, which a new query adopts, for the duration of the block."""
    before = spark.conf.get(_PARTITIONS)
    if count is not None:
        spark.conf.set(_PARTITIONS, str(count))
    try:
        yield
    finally:
        if count is not None and before is not None:
            spark.conf.set(_PARTITIONS, before)


def check_state(frame: DataFrame) -> None:
    """Refuse a query in whose plan no streaming operator keeps state."""
    if not (keeps_state_there if is_of_connect(frame) else keeps_state)(frame):
        raise NoStateError(
            "This query keeps no state, so there is nothing to capture.\n"
            "Aggregations, stream-stream joins, deduplication and transformWithState keep state. "
            "Run a query without them with writeStream."
        )
