"""Ranges of a Delta table's commits that are read again: what is gone, and the file and version of each row.

Delta's source plans what it reads. VACUUM deletes files that later commits have replaced, and Delta deletes old commits
of the table's log; so a range is checked before its rows are read.
"""

from __future__ import annotations

import json
import posixpath
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from streamstate.errors import NotReplayableError, choices
from streamstate.snapshots.checkpoint.delta_offsets import DeltaOffset, is_delta
from streamstate.snapshots.checkpoint.filesystem import Files, files_for
from streamstate.snapshots.checkpoint.source_offsets import parsed
from streamstate.snapshots.spark.catalyst import each, kind_of
from streamstate.snapshots.spark.plan_building import aliases, dataset_of, project, renamed
from streamstate.snapshots.spark.pyspark_classes import ClassicDataFrame
from streamstate.snapshots.spark.source_plans import source_options
from streamstate.state_inspect.inputs.epoch_offsets import SourceRange

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLE_VERSION, TABLE_FILE = "_table_version", "_table_file"
"""Columns of a row of a Delta table: the version that the source read it with, and the name of the file."""
_SHOWN = 3
_ACTIONS = ("add", "cdc", "remove")
_RECORD = "A recording of the input (streamstate.record) keeps it, too."


def reads_delta(leaf: Any, source: SourceRange) -> bool:
    """Return whether a leaf of a plan is Delta's source, as it was when the range was read."""
    is_source = kind_of(leaf) == "StreamingRelation" and str(leaf.sourceName()) == "delta"
    return is_source and is_delta(parsed(source.end))


@dataclass(frozen=True)
class DeltaRead:
    """A range of the commits of one table."""

    spark: SparkSession
    leaf: Any
    source: SourceRange

    @cached_property
    def table(self) -> str:
        """The table's path: absolute, as Spark resolves it."""
        jvm: Any = self.spark._jvm
        path = jvm.org.apache.hadoop.fs.Path(self._option("path"))
        conf = self.leaf.dataSource().sparkSession().sessionState().newHadoopConf()
        return _unescaped(str(path.getFileSystem(conf).makeQualified(path).toString()))

    @cached_property
    def _files(self) -> Files:
        return files_for(self.spark, self.table)

    @cached_property
    def _ends(self) -> tuple[DeltaOffset | None, DeltaOffset]:
        start = None if self.source.start is None else DeltaOffset.of(parsed(self.source.start))
        return start, DeltaOffset.of(parsed(self.source.end))

    def _option(self, name: str) -> str | None:
        options = source_options(self.spark._jvm, self.leaf.dataSource())
        value = options.get(name)
        return str(value.get()) if value.isDefined() else None

    def check_log(self) -> None:
        """Raise if it is not known where the range begins, or if commits in it are gone."""
        versions = self._versions()
        held = self._commits_held()
        if gone := [version for version in versions if held and version < held[0]]:
            first, last = gone[0], gone[-1]
            named = f"version {first}" if first == last else f"versions {first} to {last}"
            raise NotReplayableError(
                f"The epoch read {named} of the Delta table {self.table}, no longer in the table's log: Delta deletes"
                " commits after delta.logRetentionDuration, by default 30 days.\n"
                f"Set a longer one on the table, for later epochs. {_RECORD}"
            )

    def _versions(self) -> range:
        """The versions whose commits are read: not the snapshot with which the query began."""
        start, end = self._ends
        last = -1 if end.in_snapshot else end.position[0]
        if start is not None:
            return range(start.version + start.in_snapshot, last + 1)
        given = self._option("startingVersion")
        if given is not None and given.lower() == "latest":
            raise NotReplayableError(
                f"The first epoch began at the newest version that the Delta table {self.table} had then"
                " (startingVersion=latest), which no checkpoint records, so the epoch's input is not known.\n"
                "Later epochs can be read. Start the next query with a version, such as startingVersion=17."
            )
        if given is not None:
            return range(int(given), last + 1)
        if self._option("startingTimestamp") is not None:
            return range(min(self._commits_held(), default=0), last + 1)
        return range(end.version, last + 1)

    def _commits_held(self) -> list[int]:
        names = (posixpath.splitext(name) for name in self._files.names(f"{self.table}/_delta_log"))
        return sorted(int(version) for version, kind in names if kind == ".json" and version.isdecimal())

    def check_files(self, plan: Any) -> None:
        """Raise if files that the plan of the range reads are gone."""
        relations = (leaf for leaf in each(plan.collectLeaves()) if kind_of(leaf) == "LogicalRelation")
        paths = list(dict.fromkeys(str(path) for relation in relations for path in relation.relation().inputFiles()))
        times = self._files.each(lambda path: self._files.modified(_unescaped(path)), paths)
        gone = [path for path, time in zip(paths, times, strict=True) if time is None]
        if not gone:
            return
        more = f" and {len(gone) - _SHOWN:,} more" if len(gone) > _SHOWN else ""
        raise NotReplayableError(
            f"{len(gone):,} of {len(paths):,} files that the epoch read from the Delta table {self.table} are gone"
            f" ({self._by_version(gone)}): {', '.join(map(posixpath.basename, gone[:_SHOWN]))}{more}. VACUUM deletes"
            " files that OPTIMIZE, UPDATE, DELETE or MERGE have replaced.\n"
            "Restore them from a backup. To keep such files longer, set a longer delta.deletedFileRetentionDuration on"
            f" the table, by default one week. {_RECORD}"
        )

    def _by_version(self, paths: Sequence[str]) -> str:
        counts = Counter(self._version_of(path) for path in paths)
        return ", ".join(f"{count:,} of {version}" for version, count in sorted(counts.items()))

    def _version_of(self, path: str) -> str:
        version = self._places.get(posixpath.basename(path))
        return f"the snapshot of table version {self._snapshot}" if version is None else f"table version {version}"

    @property
    def _snapshot(self) -> int:
        """The version with whose snapshot the query began."""
        start, end = self._ends
        return end.version if end.in_snapshot else start.version if start is not None else end.version - 1

    @cached_property
    def _places(self) -> dict[str, int]:
        """The version that each file was read with, by the file's name; those of a snapshot left out."""
        found: dict[str, int] = {}
        for version in self._versions():
            for line in (self._files.text(f"{self.table}/_delta_log/{version:020}.json") or "").splitlines():
                action = json.loads(line)
                found |= {
                    posixpath.basename(unquote(action[kind]["path"])): version for kind in _ACTIONS if kind in action
                }
        return found

    def rows(self, plan: Any, *, located: bool) -> Any:
        """Return the plan of the range with the attributes of the leaf, which may know fewer columns than the table.

        With ``located``, they also have the table's version and the file, which only a plan that reads files knows.
        """
        columns = self._columns(plan)
        session: Any = self.spark._jsparkSession
        jvm: Any = self.spark._jvm
        if not located:
            return renamed(jvm, project(jvm, columns, plan), each(self.leaf.output()))
        frame = ClassicDataFrame(dataset_of(jvm, session, plan.withMetadataColumns()), self.spark)
        wide = self._with_places(frame)._jdf.queryExecution().analyzed()
        extra = list(each(wide.output()))[-2:]
        return project(jvm, [*aliases(jvm, columns, each(self.leaf.output())), *extra], wide)

    def _columns(self, plan: Any) -> list[Any]:
        known = {str(attribute.name()).lower(): attribute for attribute in each(plan.output())}
        wanted = list(each(self.leaf.output()))
        changed = [
            str(attribute.name())
            for attribute in wanted
            if (found := known.get(str(attribute.name()).lower())) is None
            or str(found.dataType().simpleString()) != str(attribute.dataType().simpleString())
        ]
        if changed:
            raise NotReplayableError(
                f"The Delta table {self.table} has another schema than when the query was planned: {choices(changed)}"
                " changed type or is gone.\nDescribe the query anew: history.describe(build_query)."
            )
        return [known[str(attribute.name()).lower()] for attribute in wanted]

    def _with_places(self, frame: ClassicDataFrame) -> Any:
        from pyspark.sql import functions as F

        name = F.col("_metadata.file_name")
        version = F.lit(self._snapshot).cast("long")
        if self._places:
            # A constant that Spark parses once, however many files there are.
            places = F.from_json(F.lit(json.dumps(self._places)), "map<string,bigint>")
            version = F.coalesce(places[name], version)
        return frame.select("*", version.alias(TABLE_VERSION), name.alias(TABLE_FILE))


def _unescaped(path: str) -> str:
    """Return a path that Hadoop gives as a URI, which is not escaped."""
    return path.removeprefix("file:") if path.startswith("file:/") else path
