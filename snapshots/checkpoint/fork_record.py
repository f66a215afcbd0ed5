"""The records of forks: where one comes from, and that one took the place of a query.

The origin is in a small file in the fork's checkpoint, beside Spark's own. A promotion is recorded in ``metadata``,
beside the query's id: Spark reads only the id from that file, and never writes it again. A fork of the checkpoint gets
a ``metadata`` of its own, so it does not inherit the record.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from streamstate.errors import CheckpointError
from streamstate.snapshots.checkpoint.filesystem import ReadableFiles, files_for, location

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FORK_FILE = "streamstate-fork.json"
"""The file's name. Spark ignores it."""
_FIELD = "promotion"
_BARRIER = "streamstate_is_replacing_this_checkpoint"


@dataclass(frozen=True)
class ForkRecord:
    """The origin of a fork.

    Attributes:
        parent: the checkpoint that was forked.
        parent_id: that checkpoint's query id.
        epoch: the last epoch that both share.
        made_at: when the fork was made, in ISO 8601, UTC.
        partitions: how many partitions its state was repartitioned to; None: it was not.
        edits: the changes to its state.
        shared: the shared variables that it begins with and its parent did not have.
    """

    parent: str
    parent_id: str
    epoch: int
    made_at: str = ""
    partitions: int | None = None
    edits: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()

    @classmethod
    def now(
        cls, parent: str, parent_id: str, epoch: int, partitions: int | None = None, edits: tuple[str, ...] = ()
    ) -> ForkRecord:
        """Return the record of a fork that is made now."""
        return cls(parent, parent_id, epoch, datetime.now(UTC).isoformat(timespec="seconds"), partitions, edits)

    def text(self) -> str:
        """Return the file's content."""
        return json.dumps(asdict(self), indent=2) + "\n"


def forked_from(checkpoint: str | Path, spark: SparkSession | None = None) -> ForkRecord | None:
    """Return a checkpoint's origin; None if it is not a fork.

    Args:
        checkpoint: a path or URI.
        spark: a session, needed if the checkpoint is not on the local disk.

    Example:
        >>> forked_from("checkpoints/what_if").epoch
        40
    """
    path = location(checkpoint)
    return read_fork(files_for(spark, path), path)


def read_fork(files: ReadableFiles, checkpoint: str) -> ForkRecord | None:
    """As :func:`forked_from`, through the files of a checkpoint that is open."""
    text = files.text(f"{checkpoint}/{FORK_FILE}")
    if text is None:
        return None
    record = json.loads(text)
    lists = {name: tuple(record.get(name, ())) for name in ("edits", "shared")}
    return ForkRecord(**{**record, **lists})


@dataclass(frozen=True)
class PromotionRecord:
    """The promotion through which a checkpoint came to hold the state of a fork.

    Attributes:
        id: identifies the promotion.
        fork: the fork's checkpoint.
        fork_id: the fork's query id.
        epoch: the last epoch before the promotion, which both had committed.
        promoted_at: when, in ISO 8601, UTC.
        differences: for each state table, how many rows only the old state had, and how many only the fork's.
    """

    id: str
    fork: str
    fork_id: str
    epoch: int
    promoted_at: str
    differences: Mapping[str, tuple[int, int]]

    def metadata(self, query_id: str) -> str:
        """Return the text of ``metadata`` for the query that continues."""
        return json.dumps({"id": query_id, _FIELD: asdict(self)})


def promotion_in(metadata: str | None) -> PromotionRecord | None:
    """Return the promotion that the text of a checkpoint's ``metadata`` records; None if there was none."""
    if not metadata or _FIELD not in metadata or barrier_in(metadata) is not None:
        return None
    record = json.loads(metadata).get(_FIELD)
    return None if record is None else record_of(record)


@dataclass(frozen=True)
class Barrier:
    """What ``metadata`` holds while another checkpoint's files replace those of this one. Spark cannot start with it.

    Attributes:
        before: the text that it replaced.
        replacing: True once files may have been deleted.
    """

    before: str
    replacing: bool

    def text(self) -> str:
        """Return the text of ``metadata``: no JSON, so that Spark's error shows its first word."""
        return f"{_BARRIER} {json.dumps(asdict(self))}"


def barrier_in(metadata: str | None) -> Barrier | None:
    """Return the barrier that the text of a checkpoint's ``metadata`` is; None if it is none."""
    if not metadata or not metadata.startswith(_BARRIER):
        return None
    return Barrier(**json.loads(metadata.removeprefix(_BARRIER)))


def record_of(fields: Mapping[str, object]) -> PromotionRecord:
    """Return a record from its JSON."""
    try:
        record = PromotionRecord(**{name: fields[name] for name in PromotionRecord.__dataclass_fields__})  # type: ignore[arg-type]
        differences = {table: (int(old), int(new)) for table, (old, new) in record.differences.items()}
        return PromotionRecord(**{**asdict(record), "epoch": int(record.epoch), "differences": differences})
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CheckpointError(
            "The record of a promotion cannot be read: a field is missing or invalid.\n"
            "It was damaged or edited by hand. Remove 'promotion' from the checkpoint's metadata file to go on without."
        ) from error
