"""The names and files of the examples that run queries, beside those of :mod:`examples.world`."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, chdir, suppress
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from recorded import examples

import streamstate as ss
from examples.world import Folder, World
from streamstate.launch.starting import STARTED
from streamstate.widgets.view import close_all

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PAGES = frozenset(
    {
        "README.md",
        "docs/guides/changing_code.md",
        "docs/guides/checking_changes.md",
        "docs/guides/controlling.md",
        "docs/guides/determinism.md",
        "docs/guides/editing_state.md",
        "docs/guides/pipelines.md",
        "docs/guides/production.md",
        "docs/guides/promoting.md",
        "docs/guides/recording_input.md",
        "docs/guides/recovery.md",
        "docs/guides/rescale.md",
        "docs/guides/results.md",
        "docs/guides/shared_variables.md",
        "docs/guides/sharing.md",
        "docs/guides/shedding.md",
        "docs/guides/sql.md",
        "docs/guides/time_travel.md",
        "docs/guides/watching.md",
        "docs/guides/wrong_number.md",
        "docs/start/install.md",
        "docs/start/quickstart.md",
    }
)
"""The pages with examples that need Spark."""
DOCSTRINGS = frozenset(
    {
        "streamstate.launch.running.Running",
        "streamstate.launch.running.Running.policy",
        "streamstate.launch.running.Running.rescale",
        "streamstate.launch.running.Running.restart",
        "streamstate.launch.running.Running.supervise",
        "streamstate.launch.starting.start",
        "streamstate.operations.checkpoint.Checkpoint.audit",
        "streamstate.operations.checkpoint.Checkpoint.check",
        "streamstate.operations.checkpoint.Checkpoint.debug",
        "streamstate.operations.checkpoint.Checkpoint.fork",
        "streamstate.operations.checkpoint.Checkpoint.migrate",
        "streamstate.operations.checkpoint.Checkpoint.promote",
        "streamstate.operations.checkpoint.Checkpoint.promotion",
        "streamstate.operations.checkpoint.Checkpoint.propose_mapping",
        "streamstate.operations.checkpoint.Checkpoint.replay",
        "streamstate.operations.checkpoint.Checkpoint.rescale",
        "streamstate.operations.checkpoint.Checkpoint.step",
        "streamstate.operations.code_check.report.CheckReport",
        "streamstate.operations.drill.run.drill",
        "streamstate.operations.new_checkpoint.bootstrap.bootstrap",
        "streamstate.operations.new_checkpoint.proposed_mapping.ProposedMapping",
        "streamstate.operations.promotion.promoting.Promotion",
        "streamstate.operations.rescaling.rescale.RescaleReport",
        "streamstate.operations.supervision.supervise.supervise",
        "streamstate.replay.debugging.session.DebugSession.run_until",
        "streamstate.replay.debugging.session.DebugSession.step",
        "streamstate.replay.debugging.session.DebugSession.watch",
        "streamstate.replay.debugging.session.DebugSession.watches",
        "streamstate.replay.stepping.step_report.StepReport.diff",
        "streamstate.sharing.shared_frame.shared_frame",
        "streamstate.snapshots.capture.recording.record.record",
        "streamstate.snapshots.capture.recording.record.recorded",
        "streamstate.snapshots.capture.recording.recorder.Recorder",
        "streamstate.snapshots.spark.pipeline_code.pipeline_flow",
        "streamstate.snapshots.spark.session.session",
        "streamstate.snapshots.spark.state_comparison.state_differences",
        "streamstate.state_inspect.history.History.describe",
        "streamstate.state_inspect.history.History.inputs",
        "streamstate.state_inspect.history.History.late",
        "streamstate.state_inspect.history.History.late_counts",
        "streamstate.state_inspect.history.History.why",
        "streamstate.state_inspect.snapshot.Snapshot.restore",
        "streamstate.variables.shedding.estimates.weighted_sum",
        "streamstate.variables.shedding.shed.shed",
        "streamstate.widgets.debugger.model.Debugger",
        "streamstate.widgets.debugger.model.Debugger.wait",
        "streamstate.widgets.late_rows.LateRowsView",
    }
)
"""The docstrings with examples that need Spark."""
PIPELINE = """
from pyspark import pipelines as dp
from recorded import examples


@dp.table
def delays():
    return examples.delays(examples.flights(spark))
"""
"""A pipeline with the query of the checkpoint ``delays``."""


class SparkWorld(World):
    """What an example that runs a query takes for granted: its code, its frame, a fork of it."""

    def __init__(self, spark: SparkSession) -> None:
        super().__init__()
        self._spark = spark
        self._opened = ExitStack()

    @property
    def spark(self) -> SparkSession:
        """The session."""
        return self._spark

    @property
    def F(self) -> Any:  # noqa: N802
        """The functions of Spark."""
        from pyspark.sql import functions

        return functions

    @property
    def flights(self) -> DataFrame:
        """The input of all queries."""
        return examples.flights(self.spark)

    def build_query(self) -> DataFrame:
        """Return the query of the checkpoint ``delays``."""
        return examples.delays(self.flights)

    def build_fixed(self) -> DataFrame:
        """Return the same query, which leaves out the flight that is very late."""
        return examples.delays(self.flights.where("delay < 300"))

    def build_by_carrier(self) -> DataFrame:
        """Return the query of the checkpoint ``by_route`` with a shorter key."""
        return self.flights.groupBy("carrier").count()

    @property
    def frame(self) -> DataFrame:
        """The frame of the query that an example starts."""
        return self.build_query()

    build_delays, build_new_delays = build_query, build_fixed

    @property
    def fixed(self) -> Callable[[], DataFrame]:
        """The same code by another name."""
        return self.build_fixed

    @property
    def schema(self) -> str:
        """The columns of the input."""
        return examples.SCHEMA

    @cached_property
    def totals(self) -> DataFrame:
        """State that an earlier system had: a row of each carrier."""
        return self.spark.createDataFrame([("HA", 20, 1301.0)], "carrier string, count bigint, max double")

    @cached_property
    def matches(self) -> Any:
        """A captured join of two streams, of three epochs."""
        reader = self.spark.readStream.schema(examples.SCHEMA).option("maxFilesPerTrigger", 1)
        left, right = (reader.json(f"{Path.cwd()}/flights/0000[0-2].json") for _ in range(2))
        running = ss.start(left.join(right, "scheduled"), "matches", "store", mode="append", trigger="available-now")
        running.wait()
        return running.history

    @cached_property
    def fork(self) -> ss.Checkpoint:
        """A fork of the query."""
        return self.checkpoint.fork("checkpoints/fork", at=12)

    @cached_property
    def session(self) -> Any:
        """A debugging session."""
        return self.checkpoint.debug(self.build_query, at=12)

    @cached_property
    def running(self) -> Any:
        """The query, started."""
        return ss.start(self.frame, "delays", "store")

    @cached_property
    def socket(self) -> DataFrame:
        """A source that keeps nothing."""
        lines = self._opened.enter_context(_Lines())
        self._opened.callback(lines.shutdown)
        reader = self.spark.readStream.format("socket").option("host", "localhost")
        return reader.option("port", lines.server_address[1]).load()

    def stop(self) -> None:
        """Stop what the examples left running."""
        for running in STARTED.values():
            running.stop()
        STARTED.clear()
        for value in [value for names in self.namespaces for value in names.values()]:
            if type(value).__module__.startswith("streamstate."):
                for end in ("stop", "close"):
                    getattr(value, end, lambda: None)()
        for query in self._spark.streams.active:
            query.stop()
        assert not self._spark.streams.active
        self._opened.close()


class _Lines(socketserver.ThreadingTCPServer):
    """A server that sends lines to everyone who connects."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("localhost", 0), _Reader)
        threading.Thread(target=self.serve_forever, daemon=True).start()


class _Reader(socketserver.BaseRequestHandler):
    """A reader that receives two lines a second until it leaves."""

    def handle(self) -> None:
        """Send the lines."""
        self.request.settimeout(0.5)
        while True:
            with suppress(TimeoutError):
                self.request.sendall(b"a line\n")
                if not self.request.recv(1):
                    return


def _query(spark: SparkSession, name: str) -> DataFrame:
    return examples.QUERIES[name](examples.flights(spark))


@pytest.fixture(scope="session")
def spark_folder(folder: Folder, spark: SparkSession) -> Iterator[Folder]:
    """The folder of the examples, to which relative paths lead in Spark too; the plans of two queries are known."""
    jvm: Any = spark.sparkContext._jvm
    files = jvm.org.apache.hadoop.fs.FileSystem.getLocal(spark._jsc.hadoopConfiguration())
    before = files.getWorkingDirectory()
    files.setWorkingDirectory(jvm.org.apache.hadoop.fs.Path(str(folder.path)))
    store = ss.open_store(folder.path / "store")
    with chdir(folder.path):
        for name in ("delays", "delays_by_hour"):
            store[name].describe(partial(_query, spark, name), mode="update")
    yield folder
    files.setWorkingDirectory(before)


@pytest.fixture
def spark_world(spark_folder: Folder, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[SparkWorld]:
    """The names of the examples, with the folder as the working folder."""
    spark_folder.reset()
    (spark_folder.path / "pipeline.py").write_text(PIPELINE)
    monkeypatch.chdir(spark_folder.path)
    world = SparkWorld(spark)
    yield world
    world.stop()
    close_all()
