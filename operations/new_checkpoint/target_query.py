"""Planning a query into a new checkpoint: Spark writes the metadata and schemas of its operators; nothing is run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from streamstate.errors import InvalidArgumentError, NotReplayableError, QueryError, StateWriteError, first_line
from streamstate.replay.stepping.query_sources import QuerySource, check_replayable, check_streaming, sources_of
from streamstate.replay.stepping.run_batch import with_settings
from streamstate.snapshots.calls.checks import BuildQuery
from streamstate.snapshots.checkpoint.filesystem import local_path
from streamstate.snapshots.spark.incremental import FORMAT, EpochClock, incremental, pinned_settings
from streamstate.snapshots.spark.output_modes import known_mode

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from streamstate.snapshots.checkpoint.filesystem import Files


@dataclass(frozen=True)
class TargetQuery:
    """The query of a new checkpoint."""

    frame: DataFrame
    mode: str
    conf: dict[str, str]
    """The settings that its first epoch pins it to."""

    @classmethod
    def of(cls, build_query: BuildQuery, mode: str) -> TargetQuery:
        """Build a query and note the settings that it is pinned to.

        Raises:
            InvalidArgumentError: the function returns no streaming DataFrame, or the mode is none.
        """
        mode = known_mode(mode)
        frame = check_streaming(build_query())
        return cls(frame, mode, pinned_settings(frame.sparkSession))

    @property
    def spark(self) -> SparkSession:
        """The session of its frame."""
        return self.frame.sparkSession

    @property
    def format_version(self) -> str:
        """The checkpoint format of its state stores."""
        return self.spark.conf.get(FORMAT, None) or "1"

    def sources(self) -> list[QuerySource]:
        """Return its sources in the order in which Spark numbers them."""
        found = sources_of(self.frame)
        if found is None:
            raise InvalidArgumentError(
                "The sources of the query cannot be numbered, because it uses one of them in a WITH clause.\n"
                "Write it with temporary views instead."
            )
        return found

    def into(self, folder: str, clock: EpochClock) -> None:
        """Write the metadata and schemas of its operators below a checkpoint's folder.

        Raises:
            QueryError: Spark cannot run the query.
        """
        from pyspark.errors import PySparkException

        local = local_path(folder)
        root = folder if local is None else f"file:{local}"
        jvm: Any = self.spark._jvm
        analyzed: Any = self.frame._jdf.queryExecution().analyzed()
        output = getattr(jvm.org.apache.spark.sql.streaming.OutputMode, self.mode.capitalize())()
        try:
            jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker.checkForStreaming(analyzed, output)
            planned = incremental(
                self.spark, analyzed, self.mode, now=clock, state=f"{root}/state", restart_from=_no_ids(jvm)
            )
            planned.executedPlan()
        except PySparkException as error:
            raise QueryError(f"Spark cannot run this as a streaming query: {first_line(error)}") from error

    def try_an_epoch(self, folder: str, files: Files) -> None:
        """Run the next epoch from a copy of a checkpoint, if the sources keep what they have delivered.

        Raises:
            StateWriteError: Spark cannot run it.
        """
        from pyspark.errors import PySparkException

        try:
            check_replayable(self.sources())
        except NotReplayableError:
            return
        copy = f"{folder}-trial-{uuid4().hex[:8]}"
        try:
            files.copy((f"{folder}/{path}", f"{copy}/{path}") for path in files.tree(folder) if not path.endswith("/"))
            self.run_an_epoch(copy)
        except PySparkException as error:
            raise StateWriteError(
                f"Spark cannot go on from the new checkpoint: {first_line(error)}\nIt was deleted."
            ) from error
        finally:
            files.remove_tree(copy)

    def run_an_epoch(self, checkpoint: str) -> None:
        """Run the next epoch over everything that the sources have, and discard its results."""
        writer = self.frame.writeStream.format("noop").outputMode(self.mode).option("checkpointLocation", checkpoint)
        with with_settings(self.spark, self.conf):
            running = writer.trigger(once=True).start()
        try:
            running.awaitTermination()
        except BaseException:
            running.stop()
            raise


def _no_ids(jvm: Any) -> Any:
    """Return an empty mutable Scala map."""
    return jvm.scala.collection.mutable.HashMap()
