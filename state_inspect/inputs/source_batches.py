"""Rows of a source between two offsets, as a batch plan of Spark: it is read again, as in a restart."""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from streamstate.errors import NotReplayableError
from streamstate.snapshots.capture.recording.sources import forgotten
from streamstate.snapshots.checkpoint.filesystem import ReadableFiles, files_for, local_path, location
from streamstate.snapshots.spark.catalyst import each, kind_of
from streamstate.snapshots.spark.failures import innermost
from streamstate.snapshots.spark.kafka_broker import reads_kafka
from streamstate.snapshots.spark.plan_building import dataset_of, no_rows, plan_of_rows, renamed, union
from streamstate.snapshots.spark.pyspark_classes import Py4JJavaError
from streamstate.snapshots.spark.source_plans import (
    micro_batch,
    offset_of,
    reads_micro_batches,
    relation_of,
    source_options,
    with_options,
    without_option,
)
from streamstate.state_inspect.inputs.delta_reads import DeltaRead, reads_delta
from streamstate.state_inspect.inputs.epoch_offsets import ReadFile, SourceRange, read_files, source_log
from streamstate.state_inspect.unix_time import milliseconds

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A modification time that went through a float.
_SAME_MILLISECOND = 1
_GONE = "is gone"


class SourceReader:
    """Reads sources again. Close it when what it returned has been read."""

    def __init__(self, spark: SparkSession, checkpoint: str, files: ReadableFiles) -> None:
        self._jvm: Any = spark._jvm
        self.spark = spark
        self.checkpoint = checkpoint
        self.files = files
        self._folder = Path(tempfile.mkdtemp(prefix="streamstate-input-"))
        self._streams: list[Any] = []
        # Runs a streaming plan as a batch.
        self._quiet = spark.newSession()
        self._quiet.conf.set("spark.sql.streaming.unsupportedOperationCheck", "false")
        self.changed: dict[str, str] = {}
        """Problems of files to read, by path."""
        self.notes: list[str] = []
        """Facts about what was read, as sentences."""

    def close(self) -> None:
        """Release what sources hold."""
        for stream in self._streams:
            with contextlib.suppress(Exception):  # the session may have ended
                stream.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def batch(
        self, leaf: Any, source: SourceRange, *, streaming: bool = False, located: bool = False, lossy: bool = False
    ) -> Any:
        """Return the rows of a leaf of a streaming plan, as a plan with the leaf's own attributes.

        With ``streaming`` it is a plan of a stream, as Spark has it when it runs an epoch. With ``located``, rows of a
        Delta table also have its version and the file, after the leaf's attributes. Where records of Kafka are lost,
        reading fails, unless it may be ``lossy``.
        """
        if source.is_empty:
            return self.nothing(leaf, streaming=streaming)
        self._check(leaf)
        if is_file_source(leaf):
            return self._renamed(self._of_files(leaf, source, streaming=streaming), leaf)
        if reads_delta(leaf, source):
            return self._of_delta(leaf, source, streaming=streaming, located=located)
        log = self._copy(source)
        if kind_of(leaf) == "StreamingRelationV2" and reads_micro_batches(self._jvm, leaf):
            plan = self._second_version(leaf, log, source, lossy=lossy)
        else:
            relation = leaf if kind_of(leaf) == "StreamingRelation" else leaf.v1Relation().get()
            plan = self._first_version(relation.dataSource(), log, source)
        if kind_of(plan) == "LogicalRelation":
            return self._renamed(self._of_batch(plan, leaf, streaming=streaming), leaf)
        return self._renamed(self._of_stream(plan, streaming=streaming), leaf)

    def _first_version(self, data_source: Any, log: str, source: SourceRange) -> Any:
        optional = self._jvm.scala.Option
        start = optional.empty() if source.start is None else optional.apply(offset_of(self._jvm, source.start))
        made = data_source.createSource(log)
        self._streams.append(made)
        return made.getBatch(start, offset_of(self._jvm, source.end or "")).logicalPlan()

    def _of_delta(self, leaf: Any, source: SourceRange, *, streaming: bool, located: bool) -> Any:
        read = DeltaRead(self._quiet, leaf, source)
        read.check_log()
        try:
            plan = self._first_version(leaf.dataSource(), self._copy(source), source)
        except Py4JJavaError as error:
            raise NotReplayableError(
                f"The Delta table {read.table} no longer gives the rows that the epoch read: {innermost(error)}\n"
                "The full error is this error's cause."
            ) from error
        read.check_files(plan)
        if kind_of(plan) == "LogicalRelation":
            return read.rows(self._of_batch(plan, leaf, streaming=streaming), located=located)
        return read.rows(self._of_stream(plan, streaming=streaming), located=False)

    def _of_files(self, leaf: Any, source: SourceRange, *, streaming: bool) -> Any:
        """Relations that read only the columns in use: of files at their place, and of those in the archive."""
        log = source_log(self.files, self.checkpoint, source)
        archive = Archive.of(self._jvm, leaf.dataSource())
        moved = self._moved(read_files(log, source), archive, with_metadata=_has_metadata(leaf))
        stayed, archived = (log, {}) if archive is None else archive.divided(log, moved)
        plans = []
        if archive is None or read_files(stayed, source) or not moved:
            plans.append(self._relation(leaf.dataSource(), stayed, source))
        if archive is not None and moved:
            plans.append(self._relation(archive.reader(), archived, replace(source, log=f"{source.log}-archived")))
        plans = [self._of_batch(plan, leaf, streaming=streaming) for plan in plans]
        if len(plans) == 1:
            return plans[0]
        return union(self._jvm, plans)

    def _relation(self, data_source: Any, log: Mapping[str, str], source: SourceRange) -> Any:
        folder = self._written(source, lambda at: _write(at, {name: text.encode() for name, text in log.items()}))
        return self._first_version(data_source, folder, source)

    def _of_batch(self, plan: Any, leaf: Any, *, streaming: bool) -> Any:
        """Return a relation as that of a batch, which reads only the columns in use."""
        made = relation_of(plan, streaming=streaming)
        return made.withMetadataColumns() if _has_metadata(leaf) else made

    def _of_stream(self, plan: Any, *, streaming: bool) -> Any:
        """Return the rows of a streaming plan, as foreachBatch gets them."""
        session: Any = self._quiet._jsparkSession
        rows = dataset_of(self._jvm, session, plan)
        return plan_of_rows(session, rows.queryExecution().toRdd(), rows.schema(), streaming=streaming)

    def _second_version(self, leaf: Any, log: str, source: SourceRange, *, lossy: bool) -> Any:
        options = {"failOnDataLoss": str(not lossy).lower()} if reads_kafka(leaf) else {}
        stream, plan = micro_batch(self._jvm, leaf, log, source.start, source.end or "", options=options)
        self._streams.append(stream)
        return plan

    def _check(self, leaf: Any) -> None:
        if what := forgotten(leaf):
            raise NotReplayableError(
                f"The query reads from {what}, which does not keep its input, so the rows of past epochs are gone.\n"
                "Record the input of the next query: %%stream --record-input, streamstate.start(…, record_input=True)"
                " or streamstate.record."
            )

    def nothing(self, leaf: Any, *, streaming: bool) -> Any:
        """No rows, as a plan with the leaf's own attributes."""
        return no_rows(self._jvm, leaf.output(), streaming=streaming)

    def _renamed(self, plan: Any, leaf: Any) -> Any:
        """Return the plan with the numbers of the leaf's attributes, which the nodes above refer to."""
        return renamed(self._jvm, plan, each(leaf.output()))

    def _moved(self, files: Sequence[ReadFile], archive: Archive | None, *, with_metadata: bool) -> set[str]:
        """Return the files that are in the archive now; notes those that are nowhere, or that are other ones."""
        moved = set()
        for read in files:
            path = location(read.path) if local_path(read.path) is not None else unquote(read.path)
            problem = self._problem(path, read)
            if problem == _GONE and archive is not None:
                archived = archive.place(read.path)
                problem = self._problem(archived, read)
                if problem is None and with_metadata:
                    problem = "changes its _metadata, which the query reads"
                if problem is None:
                    moved.add(read.path)
                else:
                    problem = f"{_GONE}, and {archived} in the source's archive {problem}"
            if problem is not None:
                self.changed[path] = problem
        return moved

    def _problem(self, path: str, read: ReadFile) -> str | None:
        """Return the problem with a file to read; None if it is unchanged."""
        modified = files_for(self.spark, path).modified(path)
        if modified is None:
            return _GONE
        if abs(milliseconds(modified) - read.modified_at) > _SAME_MILLISECOND:
            return "was changed afterwards"
        return None

    def _copy(self, source: SourceRange) -> str:
        """Return a copy of a source's own folder: sources write into it."""
        where = f"{self.checkpoint}/{source.log}"
        kept = {name: self.files.content(f"{where}/{name}") for name in self.files.names(where)}
        return self._written(
            source, lambda folder: _write(folder, {name: bytes_ for name, bytes_ in kept.items() if bytes_ is not None})
        )

    def _written(self, source: SourceRange, write: Callable[[Path], None]) -> str:
        folder = self._folder / source.log
        folder.mkdir(parents=True, exist_ok=True)
        write(folder)
        return folder.as_uri()


def is_file_source(leaf: Any) -> bool:
    """Return whether a leaf of a plan is Spark's file source."""
    return kind_of(leaf) == "StreamingRelation" and str(leaf.sourceName()).startswith("FileSource")


def _has_metadata(leaf: Any) -> bool:
    return any(str(attribute.name()) == "_metadata" for attribute in each(leaf.output()))


def _write(folder: Path, contents: Mapping[str, bytes]) -> None:
    for name, content in contents.items():
        (folder / name).write_bytes(content)


@dataclass(frozen=True)
class Archive:
    """The archive of a file source, which moves files that it has read to the same path below another folder."""

    folder: str
    source: Any
    """Spark's ``DataSource``."""
    _jvm: Any

    @classmethod
    def of(cls, jvm: Any, source: Any) -> Archive | None:
        """Return the archive of a source; None if it has none."""
        folder = source_options(jvm, source).get("sourceArchiveDir")
        return cls(str(folder.get()).rstrip("/"), source, jvm) if folder.isDefined() else None

    def place(self, path: str) -> str:
        """Return the path of a moved file; ``path`` is its URI in the source's log."""
        return self.folder + unquote(urlsplit(path).path)

    def uri(self, path: str) -> str:
        """Return the same, as the source's log writes it."""
        return str(self._jvm.org.apache.hadoop.fs.Path(self.place(path)).toUri().toString())

    def reader(self) -> Any:
        """Return the source with the archive as its folder, so that paths of moved files have its partitions."""
        options = source_options(self._jvm, self.source)
        folder = self._jvm.org.apache.hadoop.fs.Path(str(options.get("path").get()))
        conf = self.source.sparkSession().sessionState().newHadoopConf()
        inside = folder.getFileSystem(conf).makeQualified(folder).toUri().getPath()
        for name in ("cleanSource", "sourceArchiveDir"):  # Spark refuses an archive that holds the source's folder
            options = without_option(options, name)
        return with_options(self.source, options.updated("path", self.folder + str(inside)))

    def divided(self, log: Mapping[str, str], moved: set[str]) -> tuple[dict[str, str], dict[str, str]]:
        """Return a source's log without the moved files, and one with only these, at their new places."""
        stayed = {
            name: "\n".join(_lines(text, lambda path: None if path in moved else path)) for name, text in log.items()
        }
        own = {
            name: "\n".join(_lines(text, lambda path: self.uri(path) if path in moved else None))
            for name, text in log.items()
        }
        return stayed, own


def _lines(text: str, place: Callable[[str], str | None]) -> Iterator[str]:
    """Yield a log's lines, with files at other places; those that have none are left out."""
    for line in text.splitlines():
        if not line.startswith("{"):
            yield line
            continue
        entry = json.loads(line)
        if (path := place(str(entry["path"]))) is not None:
            yield json.dumps(entry | {"path": path}, separators=(",", ":"))
