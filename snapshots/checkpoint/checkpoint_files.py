"""A streaming query's checkpoint: its identity, its committed epochs, their offsets and watermarks.

The commit log is the authority: epoch N exists once ``commits/N`` does (:mod:`.checkpoint_logs`).
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from streamstate.errors import (
    CaptureError,
    CheckpointReplacedError,
    DamagedCheckpointError,
    NotACheckpointError,
    StreamStateError,
    choices,
    worded,
)
from streamstate.snapshots.checkpoint.filesystem import ReadableFiles, files_for, local_path, location
from streamstate.snapshots.checkpoint.fork_record import PromotionRecord, barrier_in, promotion_in
from streamstate.snapshots.checkpoint.legacy_operators import LegacyOperator, legacy_operators
from streamstate.snapshots.checkpoint.logs import PlannedEpoch, parse_commit, parse_plan
from streamstate.snapshots.checkpoint.search import checkpoints_below
from streamstate.snapshots.checkpoint.source_offsets import file_batch
from streamstate.snapshots.checkpoint.source_progress import sources_after
from streamstate.snapshots.checkpoint.state_files import StoreFiles
from streamstate.snapshots.store.names import is_number

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_T = TypeVar("_T")

_MOST_FOLDERS, _MOST_LISTED = 100, 20
"""The folders that are searched, and the checkpoints that are named, if a path is a folder above checkpoints."""
_METADATA_ADVICE = (
    'Restore it from a backup, or write a new one: {"id": "…"}, with the query\'s id. A store that has captured the'
    " query knows the id: column query_id of its table _queries."
)


class CheckpointFiles(os.PathLike[str]):
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
        self._operators: list[int] = []  # as of the last time, to read ahead
        self._by_folders: set[int] = set()

    def __fspath__(self) -> str:
        return self.path

    @property
    def remote(self) -> bool:
        """True if looking for new epochs takes more than a look at the local disk."""
        return local_path(self.path) is None

    def refresh(self, *, quick: bool = False) -> None:
        """Bring a copy up to date with its original; any other checkpoint is read where it is."""

    @property
    def files(self) -> ReadableFiles:
        """The file system that it is on."""
        return self._files

    @contextlib.contextmanager
    def read_once(self) -> Iterator[Callable[[], None]]:
        """Within the block, this thread reads each file of the logs once; call what it yields to read them anew.

        A block within another one reads nothing again that the outer one has read.
        """
        outer = self._reads_once
        known: dict[tuple[str, str], Any] = {} if outer is None else outer

        def read_anew() -> None:
            known.clear()
            self._files.forget_ahead()

        self._known.results = known
        try:
            yield read_anew
        finally:
            self._known.results = outer
            if outer is None:
                self._files.forget_ahead()

    def look_ahead(self, epoch: int | None = None) -> None:
        """Within :meth:`read_once`, begin to read what shows which epochs are committed, and the logs of one.

        Each file of an object store takes tens of milliseconds, however small it is.
        """
        logs = [] if epoch is None else self._logs([epoch])
        folders = [] if epoch is None else [f"{self.path}/state/{operator}" for operator in self._by_folders]
        self._begin(logs, [f"{self.path}/commits", *folders], [f"{self.path}/metadata"])

    def read_ahead(self, epochs: Sequence[int]) -> None:
        """Within :meth:`read_once`, begin to read what a capture of some committed epochs needs of the logs.

        An epoch has to be known to be committed: up to then, the operators' folders may change.
        """
        if not self.remote or not epochs:
            return
        self._begin(self._logs(epochs), [f"{self.path}/state"])
        metadata = [f"{self.path}/state/{operator}/_metadata" for operator in self._operators or self.operators()]
        self._begin([], [folder for path in metadata for folder in (path, f"{path}/v2")])

    def _begin(self, texts: Iterable[str], folders: Iterable[str], contents: Iterable[str] = ()) -> None:
        """Begin to read what this thread has not read within :meth:`read_once`, which asks for each path once."""
        known = self._reads_once
        if self.remote and known is not None:
            new_texts = [path for path in texts if ("text", path) not in known]
            self._files.read_ahead([*contents, *new_texts], [path for path in folders if ("names", path) not in known])

    def _logs(self, epochs: Sequence[int]) -> list[str]:
        """Return the paths of some epochs' plans and commits, and of the plans before and after them."""
        planned = [f"{self.path}/offsets/{epoch}" for epoch in range(max(epochs[0] - 1, 0), epochs[-1] + 2)]
        return planned + [f"{self.path}/commits/{epoch}" for epoch in epochs]

    def source_logs(self, epochs: Sequence[int]) -> list[str]:
        """Return the paths of the file sources' logs of what some epochs read."""
        found = []
        for epoch in epochs:
            before, planned = self.readable_plan(epoch - 1), self.readable_plan(epoch)
            if planned is None:
                continue
            known = dict(zip(before.logs, before.offsets, strict=True)) if before else {}
            for log, offset in zip(planned.logs, planned.offsets, strict=True):
                if offset != known.get(log) and (batch := file_batch(offset)) is not None:
                    found.append(f"{self.path}/{log}/{batch}")
        return found

    @cached_property
    def query_id(self) -> str:
        """The id of the query that owns the checkpoint.

        Raises:
            NotACheckpointError: there is no checkpoint.
            DamagedCheckpointError: there is one, without a readable ``metadata`` file.
            CaptureError: its files are being replaced.
        """
        path = f"{self.path}/metadata"
        content = self._files.content(path)
        if (query_id := _id_in(content)) is not None:
            return query_id
        _refuse_barrier(path, content)
        if self.begun() or self.committed():
            why = "is missing" if content is None else "has no id of a query" if content else "is empty"
            raise DamagedCheckpointError.file(path, why, _METADATA_ADVICE)
        if below := self._checkpoints_below():
            raise NotACheckpointError(
                f"{self.path} is not a checkpoint, but a folder above checkpoints.\nPass one of them: {choices(below)}."
                + worded(" ss.checkpoints lists them all.", command=" streamstate find lists them all.")
            )
        raise NotACheckpointError(
            f"{self.path} is not the checkpoint of a streaming query: it has no readable 'metadata' file.\n"
            "Pass the checkpointLocation of a query that has been started at least once."
        )

    def _checkpoints_below(self) -> list[str]:
        """Return the paths, relative to this one, of some checkpoints below it."""
        found = checkpoints_below(self._files, self.path, most_folders=_MOST_FOLDERS)
        with contextlib.suppress(StreamStateError, OSError):
            return sorted(path.removeprefix(f"{self.path}/") for path in itertools.islice(found, _MOST_LISTED))
        return []

    def check_same(self, *, last: bool = False) -> None:
        """Raise if another query's checkpoint has replaced the one that was read first; a missing one may come back.

        Args:
            last: look after everything else was read.
        """
        path = f"{self.path}/metadata"
        content = self._files.content_last(path) if last else self._files.content(path)
        text = None if content is None else content.decode(errors="replace")
        _refuse_barrier(self.path, content)
        if text is None or "query_id" not in self.__dict__ or self.query_id in text:
            self.promotion = promotion_in(text)
            return
        if _id_in(content) is None:
            raise DamagedCheckpointError.file(f"{self.path}/metadata", "has no id of a query", _METADATA_ADVICE)
        raise CheckpointReplacedError(
            f"{self.path} held the checkpoint of query {self.query_id}; now it holds another query's.\n"
            "The captured epochs are unchanged. Capture the new query under another name, or into another store."
        )

    def committed(self) -> list[int]:
        """Return the committed epochs that the commit log still holds, ascending."""
        return sorted(int(name) for name in self._names(f"{self.path}/commits") if is_number(name))

    def newest_readable(self) -> int | None:
        """Return the newest committed epoch whose plan and commit are not damaged; None if there is none."""
        for epoch in reversed(self.committed()):
            with contextlib.suppress(DamagedCheckpointError):
                self._commit(epoch)
                if self.planned(epoch) is not None:
                    return epoch
        return None

    def log_modified_at(self) -> datetime | None:
        """Return the time at which the commit log's folder was modified; None if it is not on the local disk."""
        return self._files.modified(f"{self.path}/commits") if local_path(self.path) is not None else None

    def committed_at(self, epoch: int) -> datetime | None:
        """Return the time at which the epoch was committed; None once Spark has purged it."""
        return self._modified(f"{self.path}/commits/{epoch}")

    def logged_at(self, epoch: int) -> datetime | None:
        """Return the time at which the epoch's plan was written; None once Spark has purged it."""
        return self._modified(f"{self.path}/offsets/{epoch}")

    def stored_at(self, epoch: int) -> datetime | None:
        """Return the time at which the first operator's first partition was stored; None once Spark has purged it."""
        for operator in self.operators()[:1]:
            folder, names = self._first_store(operator)
            written = [file for file in StoreFiles(names).files if file.version == epoch + 1]
            if written:
                return self._files.modified(f"{folder}/{written[0].name}")
        return None

    def planned(self, epoch: int) -> PlannedEpoch | None:
        """Return the epoch's offsets, watermark and settings.

        None once Spark has purged them, and if a plan that was never committed is damaged, as a driver that crashes
        while it writes can leave it.

        Raises:
            DamagedCheckpointError: the plan of a committed epoch is damaged.
            NewerCheckpointError: it has an unknown version.
        """
        path = f"{self.path}/offsets/{epoch}"
        try:
            return self._parsed(parse_plan, path)
        except DamagedCheckpointError:
            if epoch in self.committed():
                raise
            return None

    def newest_plan(self) -> PlannedEpoch | None:
        """Return the plan of the newest committed epoch, as :meth:`planned`; None if nothing is committed."""
        committed = self.committed()
        return self.planned(committed[-1]) if committed else None

    def readable_plan(self, epoch: int) -> PlannedEpoch | None:
        """As :meth:`planned`, and None for every plan that is damaged: for what only compares epochs."""
        with contextlib.suppress(DamagedCheckpointError):
            return self.planned(epoch)
        return None

    def sources(self, planned: PlannedEpoch, before: str | None) -> str | None:
        """Return the progress of the sources at an epoch's offsets, as :func:`sources_after`."""
        return sources_after(self._files, self.path, before, planned.offsets, planned.names)

    def format_version(self, epoch: int) -> str:
        """Return the state store checkpoint format of the epoch: format 2 names its files in the commit log."""
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
        """Return the watermark after an epoch in milliseconds since 1970; 0: there is none; None: it is purged."""
        found: int | None = self._commit(epoch).get("nextBatchWatermarkMs")
        return found

    def next_watermark_at(self, epoch: int) -> datetime | None:
        """Return the watermark after an epoch as a time; 1970-01-01: there is none; None: Spark has purged it."""
        found = self.next_watermark(epoch)
        return None if found is None else datetime.fromtimestamp(max(found, 0) / 1000, tz=UTC)

    def _commit(self, epoch: int) -> dict[str, Any]:
        """Return the epoch's commit; empty once it is purged, or if it is damaged and a later one is there.

        Spark reads only the newest one.
        """
        path = f"{self.path}/commits/{epoch}"
        try:
            found = self._parsed(parse_commit, path)
            return {} if found is None else found
        except DamagedCheckpointError:
            if epoch == self.committed()[-1]:
                raise
            return {}

    def has_state(self) -> bool:
        """Return whether a stateful operator has written anything."""
        return bool(self.operators())

    def state_bytes(self, operator: int | str) -> int | None:
        """Return the size of all versions of an operator's state; None if files came or went meanwhile."""
        return self._files.volume(f"{self.path}/state/{operator}")

    def operators(self) -> list[int]:
        """Return the ids of the stateful operators, ascending."""
        self._operators = sorted(int(name) for name in self._names(f"{self.path}/state") if is_number(name))
        return self._operators

    def partition_folders(self, operator: int) -> set[str]:
        """Return the names of the folders that an operator has for its partitions."""
        self._by_folders.add(operator)
        return {name for name in self._names(f"{self.path}/state/{operator}") if is_number(name)}

    def legacy_operators(self) -> list[LegacyOperator]:
        """Return the operators that a Spark before 4.0 wrote, without metadata."""
        operators = legacy_operators(self._files, self.path)
        committed = self.committed() if operators else []
        # Spark records this number even for an operator that uses only one partition.
        partitions = self.partitions(committed[-1]) if committed else None
        return [replace(operator, partitions=partitions or operator.partitions) for operator in operators]

    def operators_fingerprint(self) -> tuple[str, ...]:
        """Return a value that changes when a restart may have changed operators or variables; empty: no operators."""
        found = []
        for operator in self.operators():
            found.append(str(operator))
            folder = f"{self.path}/state/{operator}/_metadata"
            names = [*self._names(folder), *self._names(f"{folder}/v2")]
            found += [f"{operator}/{name}" for name in sorted(names)]
        return tuple(found)

    def operators_written_at(self, epoch: int) -> set[int]:
        """Return the epochs up to this one at which a run recorded its operators and state variables."""
        found: set[int] = set()
        for operator in self.operators():
            names = self._names(f"{self.path}/state/{operator}/_metadata/v2")
            found |= {int(name) for name in names if is_number(name) and int(name) <= epoch}
        return found

    def state_files(self, operator: int) -> list[str]:
        """Return the names of the files that one partition of an operator's first state store has."""
        return self._first_store(operator)[1]

    def _first_store(self, operator: int) -> tuple[str, list[str]]:
        """Return the folder of an operator's first state store in its first partition, and the names in it."""
        folder = f"{self.path}/state/{operator}/0"
        names = sorted(self._files.names(folder))
        stores = [name for name in names if name.startswith(("left-", "right-"))]
        if not stores:
            return folder, names
        folder = f"{folder}/{stores[0]}"
        return folder, sorted(self._files.names(folder))

    def partitions(self, epoch: int) -> int | None:
        """Return the number of state partitions at an epoch; None once Spark has purged that information."""
        planned = self.planned(epoch)
        return None if planned is None else planned.partitions

    def begun(self) -> list[int]:
        """Return the planned epochs, committed or not, ascending."""
        return sorted(int(name) for name in self._names(f"{self.path}/offsets") if is_number(name))

    def repartitioned(self, epoch: int) -> bool:
        """Return whether the epoch only repartitioned the state.

        The first epoch pins the number of partitions; only Spark's offline repartitioning changes it.
        """
        before, after = self.readable_plan(epoch - 1), self.readable_plan(epoch)
        return before is not None and after is not None and before.partitions != after.partitions

    def skipped(self, epoch: int) -> bool:
        """Return whether the epoch was planned, never finished, and abandoned for a repartitioning after it.

        Spark then writes an empty commit for it. The repartitioning has the time of the epoch that it continues, which
        is the one before.
        """
        abandoned, repartitioning = self.readable_plan(epoch), self.readable_plan(epoch + 1)
        if abandoned is None or repartitioning is None or not self.repartitioned(epoch + 1):
            return False
        began, continued = abandoned.began_at, repartitioning.began_at
        return began is not None and continued is not None and continued < began

    def _names(self, path: str) -> list[str]:
        return self._once(self._files.names, path)

    def _text(self, path: str) -> str | None:
        try:
            return self._once(self._files.text, path)
        except UnicodeDecodeError as error:
            raise DamagedCheckpointError.file(path, "is no text") from error

    def _parsed(self, parse: Callable[[str, str], _T], path: str) -> _T | None:
        """Return the content of a file of the logs, parsed once within :meth:`read_once`; None if it is missing."""

        def read(path: str) -> _T | None:
            text = self._text(path)
            return None if text is None else parse(text, path)

        return self._once(read, path, parse.__name__)

    def _modified(self, path: str) -> datetime | None:
        return self._once(self._files.modified, path)

    def _once(self, read: Callable[[str], _T], path: str, kind: str = "") -> _T:
        known = self._reads_once
        if known is None:
            return read(path)
        key = kind or read.__name__, path
        if key not in known:
            known[key] = read(path)
        found: _T = known[key]
        return found

    @property
    def _reads_once(self) -> dict[tuple[str, str], Any] | None:
        """The files that this thread has read within :meth:`read_once`; None outside."""
        known: dict[tuple[str, str], Any] | None = getattr(self._known, "results", None)
        return known


def _refuse_barrier(checkpoint: str, metadata: bytes | None) -> None:
    """Raise while a checkpoint's files are replaced: what is there is only a part."""
    if metadata is not None and barrier_in(metadata.decode(errors="replace")) is not None:
        raise CaptureError(
            f"The files of {checkpoint.removesuffix('/metadata')} are being replaced, or that was interrupted.\n"
            "Wait for it. ss.start and ss.Checkpoint(…).promotion() complete or reverse an interrupted promotion;"
            " a new checkpoint that was interrupted has to be deleted and made again."
        )


def _id_in(metadata: bytes | None) -> str | None:
    """Return the query's id in a ``metadata`` file; None if it has none."""
    try:
        return str(json.loads(metadata or b"")["id"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
