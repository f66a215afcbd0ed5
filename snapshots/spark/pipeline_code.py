"""The code of a pipeline's flow, taken from the file that defines it, outside of a run of the pipeline."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from streamstate.errors import InvalidArgumentError, SparkVersionError, choices
from streamstate.snapshots.calls.code_files import module_of_file
from streamstate.snapshots.spark.connect import connect_session, require_spark
from streamstate.snapshots.spark.own_settings import keep_settings, with_settings
from streamstate.snapshots.spark.session import classic_session, running_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from streamstate.snapshots.calls.checks import BuildQuery

_IMPORTS_PIPELINES = re.compile(
    r"^\s*(from\s+pyspark\s+import\s.*\bpipelines\b|(from|import)\s+pyspark\.pipelines\b)", re.MULTILINE
)


def pipeline_flow(file: str | Path, flow: str) -> BuildQuery:
    """Return the code of a flow from a Python file of a declarative pipeline, for the calls that take ``build_query``.

    Each call of the code runs the file, as a run of the pipeline does, with ``spark`` defined. The session has to have
    the pipeline's tables that the flow reads, and its ``configuration``; the file's temporary views are created in it.
    The session has the flow's own ``spark_conf`` while the flow is built, and while a fork of it is stepped. A pipeline
    writes with the output mode "append".

    Args:
        file: the path of the file. Flows that SQL files define are not supported: write a function that returns
            ``spark.sql("SELECT …")`` with the flow's query.
        flow: the name of the flow; that of a table if the table has one flow of its own.

    Raises:
        InvalidArgumentError: ``file`` is not a Python file. The code raises it if the file defines no such flow.

    Example:
        >>> build = ss.pipeline_flow("pipeline.py", "delays")
        >>> ss.Checkpoint("checkpoints/delays").check(build).ok
        True
    """
    path = Path(file).absolute()
    if path.suffix == ".sql":
        raise InvalidArgumentError(
            f"Invalid file {file!s}: only a run of the pipeline can read flows of SQL files.\nWrite a Python function"
            ' with the query after AS, and pass that: def build(): return spark.sql("SELECT … FROM STREAM …").'
        )
    if path.suffix != ".py" or not path.is_file():
        raise InvalidArgumentError(f"Invalid file {file!s}: expected a Python file of a pipeline.")
    return _FlowCode(path, flow)


def defines_pipeline(path: Path) -> bool:
    """Return whether a file imports ``pyspark.pipelines``, whose decorators fail outside of a run of a pipeline."""
    return path.is_file() and bool(_IMPORTS_PIPELINES.search(path.read_text("utf-8")))


@dataclass(frozen=True)
class _FlowCode:
    """The code of a flow; it can be sent to other processes, which run the file there."""

    file: Path
    name: str

    def __call__(self) -> DataFrame:
        """Return the flow's frame."""
        require_spark()
        spark = running_session() or connect_session() or classic_session()
        defined = _Definitions()
        module = defined.run(self.file, spark)
        build = defined.flows.get(self.name) or getattr(module, self.name, None)
        if not callable(build):
            raise InvalidArgumentError(
                f"{self.file} defines no flow {self.name!r}.\nIts flows: {choices(sorted(defined.flows))}."
            )
        conf = defined.settings.get(self.name, {})
        with with_settings(spark, conf):
            _create_views(spark, {name: defined.flows[name] for name in defined.views if name != self.name})
            frame: DataFrame = build()
        if conf and getattr(frame, "isStreaming", False):
            keep_settings(frame, conf)
        return frame


@dataclass
class _Definitions:
    """What a file of a pipeline defines."""

    flows: dict[str, Callable[[], DataFrame]] = field(default_factory=dict)
    """The functions of its flows, by name."""
    settings: dict[str, dict[str, str]] = field(default_factory=dict)
    """The settings of its flows, by name."""
    views: list[str] = field(default_factory=list)
    """The names of its temporary views, which have a flow each."""

    def run(self, path: Path, spark: SparkSession) -> ModuleType:
        """Run the file, and keep what it defines.

        Raises:
            SparkVersionError: this Spark has no pipelines.
        """
        try:
            from pyspark.pipelines.flow import Flow
            from pyspark.pipelines.graph_element_registry import (
                GraphElementRegistry,
                graph_element_registration_context,
            )
            from pyspark.pipelines.output import TemporaryView
        except ImportError as error:
            advice = "Run this where that is installed."
            raise SparkVersionError.needs("A pipeline", "4.1", spark.version, advice) from error
        definitions = self

        class Registry(GraphElementRegistry):
            def register_output(self, output: Any) -> None:
                if isinstance(output, TemporaryView):
                    definitions.views.append(output.name)

            def register_flow(self, flow: Flow) -> None:
                name = flow.name.rpartition(".")[2]
                definitions.flows[name], definitions.settings[name] = flow.func, flow.spark_conf

            def register_auto_cdc_flow(self, flow: Any) -> None:
                """Leave it out: its code is Spark's own."""

            def register_sql(self, sql_text: str, file_path: Path) -> None:
                """Leave it out: only a run of the pipeline reads SQL files."""

        from pyspark import cloudpickle

        with graph_element_registration_context(Registry()):
            module = module_of_file(path, spark=spark)
        # Spark's Python workers cannot import it from here.
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
        return module


def _create_views(spark: SparkSession, views: dict[str, Callable[[], DataFrame]]) -> None:
    """Create temporary views, each after those that it reads; what reads one that cannot be created says so."""
    from pyspark.errors import AnalysisException

    for name in views:  # a view keeps the plan of those that it read, perhaps of an earlier call
        spark.catalog.dropTempView(name)
    waiting: Iterable[str] = views
    while names := list(waiting):
        failed = []
        for name in names:
            try:
                views[name]().createOrReplaceTempView(name)
            except AnalysisException:
                failed.append(name)
        waiting = failed if len(failed) < len(names) else ()
