"""A streaming query's checkpoint: its identity, its committed epochs, their offsets and watermarks.

The commit log is the authority: epoch N exists once ``commits/N`` does. ``offsets/N`` holds what the epoch
read (one JSON line a source), the watermark that was in force and the settings that the query is pinned to.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING

from streamstate.snapshots.errors import CheckpointReplacedError, NotACheckpointError
from streamstate.snapshots.filesystem import Files, HadoopFiles, LocalFiles, local_path, location
from streamstate.snapshots.sources import sources_after

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPREAD = "spark.sql.shuffle.partitions"
"""The setting that says over how many partitions a state is spread; a query is pinned to its first value."""


@dataclass(frozen=True)
class Planned:
    """What ``offsets/N`` says of epoch N."""

    offsets: tuple[str | None, ...]
    """End offset of each source, in the query's order, as that source's own JSON."""
    watermark: datetime | None
    """The watermark in force during the epoch; None where none was."""
    conf: dict[str, str] = field(default_factory=dict)
    """Spark settings that the query is pinned to."""
    began_at: datetime | None = None
    """The processing time in the epoch: when Spark planned its batch."""


class Checkpoint:
    """A checkpoint as the files on disk tell it; it is only ever read.

    Args:
        path: the checkpoint location given to the query.
        spark: needed where the location is not on the local disk.
    """

    def __init__(self, path: str | os.PathLike[str], spark: SparkSession | None = None) -> None:
        self.path = location(path)
        self._files: Files = LocalFiles() if local_path(path) is not None or spark is None else HadoopFiles(spark)

    @cached_property
    def query_id(self) -> str:
        """The id of the query that owns the checkpoint.

        Raises:
            NotACheckpointError: where the path holds none.
        """
        text = self._files.text(f"{self.path}/metadata")
        try:
            return str(json.loads(text or "")["id"])
        except (ValueError, KeyError, TypeError) as error:
            raise NotACheckpointError(
                f"{self.path} is not the checkpoint of a streaming query: it has no readable 'metadata' file.\n"
                "Give the checkpointLocation of a query that was started at least once."
            ) from error

    def check_same(self) -> None:
        """Raise where another query's checkpoint has taken the place of the one that was looked at first.

        Raises:
            CheckpointReplacedError: where it has. (A checkpoint that is missing may yet come back.)
        """
        text = self._files.text(f"{self.path}/metadata")
        if text is None or "query_id" not in self.__dict__ or self.query_id in text:
            return
        raise CheckpointReplacedError(
            f"{self.path} held the checkpoint of query {self.query_id}; now it holds another query's.\n"
            "What was captured stays as it is. Capture the new query under another name, or into another store."
        )

    def committed(self) -> list[int]:
        """Numbers of the committed epochs that the commit log still holds, ascending."""
        return sorted(int(name) for name in self._files.names(f"{self.path}/commits") if name.isdigit())

    def committed_at(self, epoch: int) -> datetime | None:
        """When the epoch was committed; None once Spark has purged it."""
        return self._files.modified(f"{self.path}/commits/{epoch}")

    def planned(self, epoch: int) -> Planned | None:
        """The epoch's offsets, watermark and settings; None once Spark has purged them."""
        text = self._files.text(f"{self.path}/offsets/{epoch}")
        if text is None:
            return None
        _version, head, *sources = text.splitlines()
        metadata = json.loads(head) if head.strip() else {}
        watermark, began = metadata.get("batchWatermarkMs", 0), metadata.get("batchTimestampMs", 0)
        return Planned(
            offsets=tuple(None if source == "-" else source for source in sources if source),
            watermark=_moment(watermark),
            conf=dict(metadata.get("conf", {})),
            began_at=_moment(began),
        )

    def sources(self, offsets: Sequence[str | None], before: str | None) -> str | None:
        """What the checkpoint tells of the sources at an epoch's offsets; see :func:`sources_after`.

        Args:
            offsets: the epoch's end offset of each source.
            before: the same of an earlier epoch; None: of none.
        """
        return sources_after(self._files, self.path, before, offsets)

    def format_version(self, epoch: int) -> str:
        """Which state store checkpoint format the epoch was written in: format 2 names its files in the commit log."""
        return "2" if self._unique_ids(epoch) else "1"

    def state_ids(self, upto: int) -> dict[int, dict[str, list[list[str]]]]:
        """In format 2, the unique ids of the stores' files: by version, operator, partition; empty in format 1.

        Args:
            upto: the newest epoch to ask about; what the commit log no longer holds is left out.
        """
        found = {epoch + 1: self._unique_ids(epoch) for epoch in self.committed() if epoch <= upto}
        return {version: ids for version, ids in found.items() if ids}

    def _unique_ids(self, epoch: int) -> dict[str, list[list[str]]]:
        commit = (self._files.text(f"{self.path}/commits/{epoch}") or "").splitlines()
        metadata = json.loads(commit[1]) if len(commit) > 1 and commit[1].startswith("{") else {}
        return metadata.get("stateUniqueIds") or {}

    def has_state(self) -> bool:
        """Whether a stateful operator has written anything."""
        return bool(self.operators())

    def operators(self) -> list[int]:
        """Ids of the stateful operators, ascending."""
        return sorted(int(name) for name in self._files.names(f"{self.path}/state") if name.isdigit())

    def operators_fingerprint(self) -> tuple[str, ...]:
        """Changes whenever a restart may have changed the operators or their state variables."""
        found = []
        for operator in self.operators():
            folder = f"{self.path}/state/{operator}/_metadata"
            names = [*self._files.names(folder), *self._files.names(f"{folder}/v2")]
            found += [f"{operator}/{name}" for name in sorted(names)]
        return tuple(found)

    def operators_written_at(self, epoch: int) -> set[int]:
        """The epochs up to this one at which a run wrote down its operators and state variables."""
        found: set[int] = set()
        for operator in self.operators():
            names = self._files.names(f"{self.path}/state/{operator}/_metadata/v2")
            found |= {int(name) for name in names if name.isdigit() and int(name) <= epoch}
        return found

    def partitions(self, epoch: int) -> int | None:
        """How many partitions the state has at an epoch; None once Spark has purged what says it."""
        planned = self.planned(epoch)
        count = planned.conf.get(SPREAD) if planned else None
        return None if count is None else int(count)

    def begun(self) -> list[int]:
        """Numbers of the epochs that were planned, committed or not, ascending."""
        return sorted(int(name) for name in self._files.names(f"{self.path}/offsets") if name.isdigit())

    def repartitioned(self, epoch: int) -> bool:
        """Whether the epoch changed nothing but how the state is spread over partitions.

        The number of partitions is pinned by the first epoch; only Spark's offline repartitioning changes it.
        """
        before, after = (self.planned(one) for one in (epoch - 1, epoch))
        return before is not None and after is not None and before.conf.get(SPREAD) != after.conf.get(SPREAD)


def _moment(milliseconds: int) -> datetime | None:
    return datetime.fromtimestamp(milliseconds / 1000, tz=UTC) if milliseconds > 0 else None
