"""A streaming query's checkpoint: its identity, its committed epochs, their offsets and watermarks.

The commit log is the authority: epoch N exists once ``commits/N`` does. ``offsets/N`` holds what the epoch read (one
line per source), the watermark in force and the settings that the query is pinned to.

Version 1 of the offset log identifies a source by its place in the query, version 2 by an id: the name that the query
gives it (``readStream.name("flights")``, with Spark's source evolution), or else its place. Spark writes the lines of
version 2 in no particular order.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from streamstate.errors import (
    CheckpointError,
    CheckpointReplacedError,
    NewerCheckpointError,
    NotACheckpointError,
)
from streamstate.snapshots.bindings import is_binding
from streamstate.snapshots.filesystem import ReadableFiles, files_for, local_path, location
from streamstate.snapshots.legacy_operators import LegacyOperator, legacy_operators
from streamstate.snapshots.promotion_record import PromotionRecord, promotion_in
from streamstate.snapshots.source_progress import sources_after

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_T = TypeVar("_T")

SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"
"""The setting for the number of state partitions; a query is pinned to its first value."""

_OFFSET_LOGS, _COMMIT_LOGS = ("v1", "v2"), ("v1", "v2", "v3")
"""The versions that Spark 4.3 writes."""
_NAMED = "spark.sql.streaming.queryEvolution.enableSourceEvolution"
_NAME = re.compile(r"\w+", re.ASCII)
"""What Spark accepts as a source's name, which names a folder in the checkpoint."""
_MOST_SOURCES = 1000


@dataclass(frozen=True)
class PlannedEpoch:
    """What ``offsets/N`` records of epoch N."""

    offsets: tuple[str | None, ...]
    """The end offset of each source, as the source's own JSON, in the order of the query or of ``names``."""
    watermark: datetime | None
    """The watermark in force during the epoch; None if there was none."""
    conf: dict[str, str] = field(default_factory=dict)
    """The Spark settings that the query is pinned to."""
    began_at: datetime | None = None
    """The epoch's processing time: when Spark planned its batch."""
    names: tuple[str, ...] = ()
    """The sources' names, sorted; empty if the query does not name them."""
    version: str = "v1"
    """The version of the offset log."""

    @property
    def logs(self) -> tuple[str, ...]:
        """Each source's own folder in the checkpoint."""
        return tuple(f"sources/{source}" for source in self.names or range(len(self.offsets)))

    @property
    def sources(self) -> dict[str, str | None] | list[str | None]:
        """The offsets by name, or in the query's order if the sources have no names."""
        return dict(zip(self.names, self.offsets, strict=True)) if self.names else [*self.offsets]

    @property
    def input(self) -> dict[str, str | None] | list[str | None]:
        """As ``sources``, but without what only binds shared variables, which a fork may bind otherwise."""
        told = self.sources
        if isinstance(told, dict):
            return {name: offset for name, offset in told.items() if not is_binding(offset)}
        return [offset for offset in told if not is_binding(offset)]


class Checkpoint(os.PathLike[str]):
    """A checkpoint, read from its files and never written to.

    Args:
        path: where it is, a path or URI.
        spark: the session to read with if it is not on the local disk.
        files: how to read it, if without a session.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        spark: SparkSession | None = None,
        files: ReadableFiles | None = None,
    ) -> None:
        self.path = location(path)
        self._files: ReadableFiles = files or files_for(spark, path)
        self.promotion: PromotionRecord | None = None
        """The promotion that its ``metadata`` records, as of the last :meth:`check_same`."""
        self._known = threading.local()  # a thread that reads once does not keep what is new from the others

    def __fspath__(self) -> str:
        return self.path

    @property
    def files(self) -> ReadableFiles:
        """The file system that it is on."""
        return self._files

    @contextlib.contextmanager
    def read_once(self) -> Iterator[Callable[[], None]]:
        """Within the block, this thread reads each file of the logs once; call what it yields to read them anew."""
        self._known.results = {}
        try:
            yield self._known.results.clear
        finally:
            del self._known.results

    @cached_property
    def query_id(self) -> str:
        """The id of the query that owns the checkpoint."""
        text = self._files.text(f"{self.path}/metadata")
        try:
            return str(json.loads(text or "")["id"])
        except (ValueError, KeyError, TypeError) as error:
            raise NotACheckpointError(
                f"{self.path} is not the checkpoint of a streaming query: it has no readable 'metadata' file.\n"
                "Pass the checkpointLocation of a query that has been started at least once."
            ) from error

    def check_same(self) -> None:
        """Raise if another query's checkpoint has replaced the one that was read first; a missing one may come back."""
        text = self._files.text(f"{self.path}/metadata")
        if text is None or "query_id" not in self.__dict__ or self.query_id in text:
            self.promotion = promotion_in(text)
            return
        raise CheckpointReplacedError(
            f"{self.path} held the checkpoint of query {self.query_id}; now it holds another query's.\n"
            "The captured epochs are unchanged. Capture the new query under another name, or into another store."
        )

    def committed(self) -> list[int]:
        """The committed epochs that the commit log still holds, ascending."""
        return sorted(int(name) for name in self._names(f"{self.path}/commits") if name.isdigit())

    def log_modified_at(self) -> datetime | None:
        """When the folder of the commit log was modified; None if the checkpoint is not on the local disk."""
        return self._files.modified(f"{self.path}/commits") if local_path(self.path) is not None else None

    def committed_at(self, epoch: int) -> datetime | None:
        """When the epoch was committed; None once Spark has purged it."""
        return self._modified(f"{self.path}/commits/{epoch}")

    def logged_at(self, epoch: int) -> datetime | None:
        """When what the epoch reads was written to the offset log; None once Spark has purged it."""
        return self._modified(f"{self.path}/offsets/{epoch}")

    def stored_at(self, epoch: int) -> datetime | None:
        """When the first partition of the first operator was stored at the epoch; None once Spark has purged it."""
        for operator in self.operators()[:1]:
            folder, names = self._first_store(operator)
            written = [name for name in names if re.match(rf"{epoch + 1}[._].*(?<!\.crc)$", name)]
            if written:
                return self._files.modified(f"{folder}/{written[0]}")
        return None

    def planned(self, epoch: int) -> PlannedEpoch | None:
        """The epoch's offsets, watermark and settings; None once Spark has purged them."""
        path = f"{self.path}/offsets/{epoch}"
        text = self._text(path)
        if text is None:
            return None
        head, *lines = _known(text, path, _OFFSET_LOGS)
        metadata = json.loads(head) if head.strip() else {}
        watermark, began = metadata.get("batchWatermarkMs", 0), metadata.get("batchTimestampMs", 0)
        conf = dict(metadata.get("conf", {}))
        names, offsets = _by_id(lines, path, named=conf.get(_NAMED) == "true") if text.startswith("v2") else ((), lines)
        return PlannedEpoch(
            offsets=tuple(None if offset == "-" else offset for offset in offsets),
            watermark=_moment(watermark),
            conf=conf,
            began_at=_moment(began),
            names=names,
            version=text.partition("\n")[0].strip(),
        )

    def sources(self, planned: PlannedEpoch, before: str | None) -> str | None:
        """What the checkpoint says of the sources at an epoch's offsets, as :func:`sources_after`."""
        return sources_after(self._files, self.path, before, planned.offsets, planned.names)

    def format_version(self, epoch: int) -> str:
        """The state store checkpoint format of the epoch: format 2 names its files in the commit log."""
        return "2" if self.unique_ids(epoch) else "1"

    def state_ids(self, upto: int) -> dict[int, dict[str, list[list[str]]]]:
        """In format 2, the unique ids of the stores' files up to an epoch: by version, operator, partition.

        It is empty in format 1, and lacks epochs that the commit log no longer holds.
        """
        found = {epoch + 1: self.unique_ids(epoch) for epoch in self.committed() if epoch <= upto}
        return {version: ids for version, ids in found.items() if ids}

    def unique_ids(self, epoch: int) -> dict[str, list[list[str]]]:
        """In format 2, the unique ids of the epoch's state files: by operator, partition and store."""
        return self._commit(epoch).get("stateUniqueIds") or {}

    def next_watermark(self, epoch: int) -> int | None:
        """The watermark after an epoch, in milliseconds since 1970; 0: there is none; None: Spark has purged it."""
        found: int | None = self._commit(epoch).get("nextBatchWatermarkMs")
        return found

    def next_watermark_at(self, epoch: int) -> datetime | None:
        """The watermark after an epoch as a time; 1970-01-01: there is none; None: Spark has purged it."""
        found = self.next_watermark(epoch)
        return None if found is None else datetime.fromtimestamp(max(found, 0) / 1000, tz=UTC)

    def _commit(self, epoch: int) -> dict[str, Any]:
        path = f"{self.path}/commits/{epoch}"
        text = self._text(path)
        head, *_ = _known(text, path, _COMMIT_LOGS) if text else [""]
        return dict(json.loads(head)) if head.startswith("{") else {}

    def has_state(self) -> bool:
        """Whether a stateful operator has written anything."""
        return bool(self.operators())

    def state_bytes(self, operator: int | str) -> int | None:
        """What all versions of an operator's state take; None if files came or went meanwhile."""
        return self._files.volume(f"{self.path}/state/{operator}")

    def operators(self) -> list[int]:
        """The ids of the stateful operators, ascending."""
        return sorted(int(name) for name in self._names(f"{self.path}/state") if name.isdigit())

    def legacy_operators(self) -> list[LegacyOperator]:
        """The operators that a Spark before 4.0 wrote, without metadata."""
        operators = legacy_operators(self._files, self.path)
        committed = self.committed() if operators else []
        # Spark records this number even for an operator that uses only one partition.
        partitions = self.partitions(committed[-1]) if committed else None
        return [replace(operator, partitions=partitions or operator.partitions) for operator in operators]

    def operators_fingerprint(self) -> tuple[str, ...]:
        """A value that changes if a restart may have changed operators or state variables; empty: no operators."""
        found = []
        for operator in self.operators():
            found.append(str(operator))
            folder = f"{self.path}/state/{operator}/_metadata"
            names = [*self._names(folder), *self._names(f"{folder}/v2")]
            found += [f"{operator}/{name}" for name in sorted(names)]
        return tuple(found)

    def operators_written_at(self, epoch: int) -> set[int]:
        """The epochs up to this one at which a run recorded its operators and state variables."""
        found: set[int] = set()
        for operator in self.operators():
            names = self._names(f"{self.path}/state/{operator}/_metadata/v2")
            found |= {int(name) for name in names if name.isdigit() and int(name) <= epoch}
        return found

    def state_files(self, operator: int) -> list[str]:
        """The names of the files that one partition of an operator's first state store has."""
        return self._first_store(operator)[1]

    def _first_store(self, operator: int) -> tuple[str, list[str]]:
        """The folder of an operator's first state store in its first partition, and the names in it."""
        folder = f"{self.path}/state/{operator}/0"
        names = sorted(self._files.names(folder))
        stores = [name for name in names if name.startswith(("left-", "right-"))]
        if not stores:
            return folder, names
        folder = f"{folder}/{stores[0]}"
        return folder, sorted(self._files.names(folder))

    def partitions(self, epoch: int) -> int | None:
        """The number of state partitions at an epoch; None once Spark has purged that information."""
        planned = self.planned(epoch)
        count = planned.conf.get(SHUFFLE_PARTITIONS) if planned else None
        return None if count is None else int(count)

    def begun(self) -> list[int]:
        """The planned epochs, committed or not, ascending."""
        return sorted(int(name) for name in self._names(f"{self.path}/offsets") if name.isdigit())

    def repartitioned(self, epoch: int) -> bool:
        """Whether the epoch only repartitioned the state.

        The first epoch pins the number of partitions; only Spark's offline repartitioning changes it.
        """
        before, after = self.planned(epoch - 1), self.planned(epoch)
        return (
            before is not None
            and after is not None
            and before.conf.get(SHUFFLE_PARTITIONS) != after.conf.get(SHUFFLE_PARTITIONS)
        )

    def skipped(self, epoch: int) -> bool:
        """Whether the epoch was planned but never finished, and abandoned when Spark repartitioned the state after it.

        Spark then writes an empty commit for it. The repartitioning has the time of the epoch that it continues, which
        is the one before.
        """
        abandoned, repartitioning = self.planned(epoch), self.planned(epoch + 1)
        if abandoned is None or repartitioning is None or not self.repartitioned(epoch + 1):
            return False
        began, continued = abandoned.began_at, repartitioning.began_at
        return began is not None and continued is not None and continued < began

    def _names(self, path: str) -> list[str]:
        return self._once(self._files.names, path)

    def _text(self, path: str) -> str | None:
        return self._once(self._files.text, path)

    def _modified(self, path: str) -> datetime | None:
        return self._once(self._files.modified, path)

    def _once(self, read: Callable[[str], _T], path: str) -> _T:
        known: dict[tuple[str, str], Any] | None = getattr(self._known, "results", None)
        if known is None:
            return read(path)
        if (read.__name__, path) not in known:
            known[read.__name__, path] = read(path)
        found: _T = known[read.__name__, path]
        return found


def _known(text: str, path: str, versions: Sequence[str]) -> list[str]:
    """The lines of a log file after its version, which has to be a known one; never empty."""
    version, *lines = text.splitlines() or [""]
    if version.strip() not in versions:
        raise NewerCheckpointError.file(path, version.strip(), versions)
    return [*lines[:1], *(line for line in lines[1:] if line)] or [""]


def _by_id(lines: Sequence[str], path: str, *, named: bool) -> tuple[tuple[str, ...], list[str]]:
    """The sources' names and offsets in version 2 of the offset log; without names, offsets in the query's order."""
    found = {name: offset for name, colon, offset in (line.partition(":") for line in lines) if colon}
    if len(found) < len(lines) or not all(_NAME.fullmatch(name) for name in found):
        raise CheckpointError(
            f"Invalid source in {path}: expected lines such as flights:{{…}}, with unique names of ASCII letters,"
            " digits and underscores.\nThe file is damaged. Restore it, or use another epoch."
        )
    if named or not all(name.isdigit() and int(name) < _MOST_SOURCES for name in found):
        names = tuple(sorted(found))
        return names, [found[name] for name in names]
    # A stream that the query reads twice is listed once, at its last place.
    twice = next(iter(found.values())) if len(found) == 1 else "-"
    return (), [found.get(str(place), twice) for place in range(max(map(int, found), default=-1) + 1)]


def _moment(milliseconds: int) -> datetime | None:
    return datetime.fromtimestamp(milliseconds / 1000, tz=UTC) if milliseconds > 0 else None
