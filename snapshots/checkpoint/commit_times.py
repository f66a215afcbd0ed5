"""The times at which epochs were committed, and a quick check for new commits without listing the log."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles

REAL_TIME = "real-time"
"""The mode of an epoch that is an interval between two checkpoints, in which Spark hands on each row at once."""

COMMIT, OFFSETS = "commit", "offsets"
"""The sources of a time: the modification time of the epoch's commit file, or the plan in the offset log."""
# Object stores, and some disks, keep whole seconds.
_CUT_OFF = timedelta(seconds=1)
# Spark's least duration of an epoch in real-time mode is five seconds, unless a setting shortens it.
_AT_ONCE = timedelta(seconds=0.5)
# A folder may change again without another time of modification.
_TIME_TICK = timedelta(seconds=0.05)


class CommitTimes:
    """The commit times of a checkpoint's epochs, if the modification times of the commit files are plausible.

    In a copy of a checkpoint (from an object store, from git) files have the time of the copy. An epoch is committed
    after it was planned and before the next one is planned, so a file time outside that range was changed later. When
    an epoch is captured hardly matters: later epochs only confirm a correct time.

    The file times of a fork are trusted: its steps repeat the original's plans, whose times do not say when they ran.
    """

    def __init__(self, checkpoint: CheckpointFiles, *, forked: bool = False) -> None:
        def planned_at(epoch: int) -> datetime | None:
            planned = checkpoint.readable_plan(epoch)
            return planned.began_at if planned else None

        self._checkpoint = checkpoint
        self._forked = forked
        self._modified_at = cache(checkpoint.committed_at)
        self._planned_at = cache(planned_at)

    def of(self, epoch: int) -> tuple[datetime | None, str | None]:
        """Return the time of an epoch's commit, if known, and the time's source: ``commit`` or ``offsets``."""
        modified = self._modified_at(epoch)
        planned = None if self._forked else self._planned_at(epoch)
        if planned is not None and (modified is None or not self._plausible(epoch, modified, planned)):
            return planned, OFFSETS
        return modified, None if modified is None else COMMIT

    def mode(self, epoch: int) -> str | None:
        """``real-time`` if the epoch's files show it: Spark then plans an epoch at its end, after its state is stored.

        None otherwise, in a fork, and in a copy whose files have the times of copying.
        """
        committed_at, source = self.of(epoch)
        began_at, logged_at = self._planned_at(epoch), self._checkpoint.logged_at(epoch)
        if self._forked or source != COMMIT or began_at is None or logged_at is None or committed_at is None:
            return None
        if logged_at - began_at < _AT_ONCE:
            return None
        stored_at = self._checkpoint.stored_at(epoch)
        in_order = stored_at is not None and began_at <= stored_at <= logged_at <= committed_at
        return REAL_TIME if in_order else None

    def _plausible(self, epoch: int, modified: datetime, planned: datetime) -> bool:
        if modified < planned - _CUT_OFF:
            return False
        return not (self._touched_later(epoch - 1) or self._touched_later(epoch))

    def _touched_later(self, epoch: int) -> bool:
        """Return whether an epoch's commit file is newer than the next epoch allows."""
        modified = self._modified_at(epoch)
        if modified is None:
            return False
        planned = self._planned_at(epoch + 1)
        if planned is None or modified <= planned:
            return False
        # An epoch that only repartitions the state may have the plan time of the one before.
        own = self._planned_at(epoch)
        return own is None or own < planned


class CommitLogTime:
    """The modification time of a commit log's folder, which is quicker to find than a list of its files."""

    def __init__(self, checkpoint: CheckpointFiles) -> None:
        self._checkpoint = checkpoint
        self._modified: datetime | None = None
        self._looked = -float("inf")
        self._settled = False

    def looked(self) -> None:
        """Remember the time: the log is about to be listed."""
        self._modified, self._looked = self._checkpoint.log_modified_at(), time.monotonic()
        self._settled = self._modified is not None and datetime.now(UTC) - self._modified > _TIME_TICK

    def unchanged(self, trust: float) -> bool:
        """Return whether the folder has not been modified since; False once ``trust`` seconds have passed."""
        return (
            self._settled
            and time.monotonic() - self._looked < trust
            and self._checkpoint.log_modified_at() == self._modified
        )
