"""What a source delivered between two offsets, as a batch plan of Spark: the source is asked again, as in a restart."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from streamstate.errors import NotReplayableError
from streamstate.snapshots.filesystem import ReadableFiles, files_for, local_path, location
from streamstate.snapshots.recording.sources import forgotten
from streamstate.snapshots.spark.catalyst import each, kind_of, scala_list, scala_object
from streamstate.state_inspect.inputs.epoch_offsets import SourceRange
from streamstate.state_inspect.inputs.read_files import read_files, source_log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_EXECUTION = "org.apache.spark.sql.execution."
# A modification time that went through a float.
_SAME_MILLISECOND = 1


class SourceReader:
    """Reads sources again. Close it when what it returned has been read."""

    def __init__(self, spark: SparkSession, checkpoint: str, files: ReadableFiles) -> None:
        self._jvm: Any = spark._jvm
        self._spark = spark
        self._checkpoint = checkpoint
        self._files = files
        self._folder = Path(tempfile.mkdtemp(prefix="streamstate-input-"))
        self._streams: list[Any] = []
        # Runs a streaming plan as a batch.
        self._quiet = spark.newSession()
        self._quiet.conf.set("spark.sql.streaming.unsupportedOperationCheck", "false")
        self.changed: dict[str, str] = {}
        """What happened to files that were to be read, by path."""

    def close(self) -> None:
        """Release what sources hold."""
        for stream in self._streams:
            with contextlib.suppress(Exception):  # the session may have ended
                stream.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def batch(self, leaf: Any, source: SourceRange) -> Any:
        """What a leaf of a streaming plan delivered, as a batch plan with the leaf's own attributes."""
        if source.is_empty:
            return self._nothing(leaf)
        self._check(leaf)
        log = self._log_of_files(source) if is_file_source(leaf) else self._copy(source)
        optional, streaming = self._jvm.scala.Option, False
        if kind_of(leaf) == "StreamingRelationV2" and leaf.v1Relation().isEmpty():
            plan = self._second_version(leaf, log, source)
        else:
            relation = leaf if kind_of(leaf) == "StreamingRelation" else leaf.v1Relation().get()
            offset = self._jvm.org.apache.spark.sql.execution.streaming.runtime.SerializedOffset
            start = optional.empty() if source.start is None else optional.apply(offset(source.start))
            made = relation.dataSource().createSource(log)
            self._streams.append(made)
            plan = made.getBatch(start, offset(source.end)).logicalPlan()
        if kind_of(plan) == "LogicalRelation":  # files: a batch relation, which reads only the columns in use
            plan = plan.copy(plan.relation(), plan.output(), plan.catalogTable(), streaming, optional.empty())
            if any(str(attribute.name()) == "_metadata" for attribute in each(leaf.output())):
                plan = plan.withMetadataColumns()
        else:  # anything else: its rows, as foreachBatch gets them
            dataset = scala_object(self._jvm, "org.apache.spark.sql.classic.Dataset")
            rows = dataset.ofRows(self._quiet._jsparkSession, plan)
            relation = scala_object(self._jvm, _EXECUTION + "LogicalRDD")
            plan = relation.fromDataset(rows.queryExecution().toRdd(), rows, streaming, streaming)
        return self._renamed(plan, leaf)

    def _second_version(self, leaf: Any, log: str, source: SourceRange) -> Any:
        package = self._jvm.org.apache.spark.sql.execution.datasources.v2
        optional = self._jvm.scala.Option
        scan = leaf.table().newScanBuilder(leaf.extraOptions()).build()
        stream = scan.toMicroBatchStream(log)
        self._streams.append(stream)
        first = stream.initialOffset() if source.start is None else stream.deserializeOffset(source.start)
        defaults = scala_object(self._jvm, _EXECUTION + "datasources.v2.StreamingDataSourceV2Relation")
        name = getattr(defaults, "$lessinit$greater$default$8")()
        relation = package.StreamingDataSourceV2Relation(
            leaf.table(), leaf.output(), leaf.catalog(), leaf.identifier(), leaf.extraOptions(), log, optional.empty(),
            name,
        )  # fmt: skip
        last = stream.deserializeOffset(source.end)
        return package.StreamingDataSourceV2ScanRelation(
            relation, scan, leaf.output(), stream, optional.apply(first), optional.apply(last)
        )

    def _check(self, leaf: Any) -> None:
        if what := forgotten(leaf):
            raise NotReplayableError(
                f"The query reads from {what}, which does not keep its input: what an epoch read is gone.\n"
                "Record the input of the next query: %%stream --record-input, streamstate.start(…, record_input=True)"
                " or streamstate.record."
            )

    def _nothing(self, leaf: Any) -> Any:
        plans = self._jvm.org.apache.spark.sql.catalyst.plans.logical
        defaults = scala_object(self._jvm, "org.apache.spark.sql.catalyst.plans.logical.LocalRelation")
        rows = getattr(defaults, "$lessinit$greater$default$2")()
        streaming = False
        return plans.LocalRelation(leaf.output(), rows, streaming, self._jvm.scala.Option.empty())

    def _renamed(self, plan: Any, leaf: Any) -> Any:
        """The plan with the numbers of the leaf's attributes, which the nodes above refer to."""
        expressions = self._jvm.org.apache.spark.sql.catalyst.expressions
        nothing = scala_list(self._jvm, [])
        columns = [
            expressions.Alias(
                made, to.name(), to.exprId(), nothing, self._jvm.scala.Option.apply(made.metadata()), nothing
            )
            for made, to in zip(each(plan.output()), each(leaf.output()), strict=True)
        ]
        return self._jvm.org.apache.spark.sql.catalyst.plans.logical.Project(scala_list(self._jvm, columns), plan)

    def _log_of_files(self, source: SourceRange) -> str:
        """A copy of a file source's log up to the epoch, after a look at the files themselves."""
        log = source_log(self._files, self._checkpoint, source)
        for read in read_files(log, source):
            path = location(read.path) if local_path(read.path) is not None else unquote(read.path)
            modified = files_for(self._spark, path).modified(path)
            if modified is None:
                self.changed[path] = "is gone"
            elif abs(_milliseconds(modified) - read.modified_at) > _SAME_MILLISECOND:
                self.changed[path] = "was changed afterwards"
        return self._written(source, lambda folder: _write(folder, {name: text.encode() for name, text in log.items()}))

    def _copy(self, source: SourceRange) -> str:
        """A copy of a source's own folder: sources write into it."""
        where = f"{self._checkpoint}/{source.log}"
        kept = {name: self._files.content(f"{where}/{name}") for name in self._files.names(where)}
        return self._written(
            source, lambda folder: _write(folder, {name: bytes_ for name, bytes_ in kept.items() if bytes_ is not None})
        )

    def _written(self, source: SourceRange, write: Callable[[Path], None]) -> str:
        folder = self._folder / source.log
        folder.mkdir(parents=True, exist_ok=True)
        write(folder)
        return folder.as_uri()


def is_file_source(leaf: Any) -> bool:
    """Whether a leaf of a plan is Spark's file source."""
    return kind_of(leaf) == "StreamingRelation" and str(leaf.sourceName()).startswith("FileSource")


def source_name(leaf: Any) -> str | None:
    """The name that a query gave to a source; None if it has none."""
    name = leaf.sourceIdentifyingName().nameOpt()
    return str(name.get()) if name.isDefined() else None


def _write(folder: Path, contents: Mapping[str, bytes]) -> None:
    for name, content in contents.items():
        (folder / name).write_bytes(content)


def _milliseconds(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)
