"""Planning a query into a new checkpoint: Spark writes the metadata and schemas of its operators; nothing is run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from streamstate.errors import InvalidArgumentError, QueryError, first_line
from streamstate.replay.stepping.query_sources import QuerySource, check_streaming, sources_of
from streamstate.snapshots.calls.checks import BuildQuery
from streamstate.snapshots.checkpoint.filesystem import local_path
from streamstate.snapshots.spark.incremental import EpochClock, incremental, pinned_settings
from streamstate.snapshots.spark.output_modes import known_mode
from streamstate.snapshots.spark.restarting import FORMAT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class PlannedQuery:
    """A query that is planned into a new checkpoint."""

    frame: DataFrame
    mode: str
    conf: dict[str, str]
    """The settings that its first epoch pins it to."""

    @classmethod
    def of(cls, build_query: BuildQuery, mode: str) -> PlannedQuery:
        """The query that a function builds.

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
        """Its sources in the order in which Spark numbers them."""
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


def _no_ids(jvm: Any) -> Any:
    """An empty mutable Scala map."""
    return jvm.scala.collection.mutable.HashMap()
