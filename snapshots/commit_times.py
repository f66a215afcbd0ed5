"""When epochs were committed."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from streamstate.snapshots.checkpoint import Checkpoint

COMMIT, OFFSETS = "commit", "offsets"
"""Where a time comes from: the modification time of the epoch's commit file, or the plan in the offset log."""
# Object stores, and some disks, keep whole seconds.
_CUT_OFF = timedelta(seconds=1)


class CommitTimes:
    """Decides for each epoch of a checkpoint whether the modification time of its commit file is plausible.

    In a copy of a checkpoint (from an object store, from git) files have the time of the copy. An epoch is committed
    after it was planned and before the next one is planned, so a file time outside that range was changed later. When
    an epoch is captured hardly matters: later epochs only confirm a correct time.

    The file times of a fork are trusted: its steps repeat the original's plans, whose times do not say when they ran.
    """

    def __init__(self, checkpoint: Checkpoint, *, forked: bool = False) -> None:
        def planned_at(epoch: int) -> datetime | None:
            planned = checkpoint.planned(epoch)
            return planned.began_at if planned else None

        self._forked = forked
        self._modified_at = cache(checkpoint.committed_at)
        self._planned_at = cache(planned_at)

    def of(self, epoch: int) -> tuple[datetime | None, str | None]:
        """When an epoch was committed, if known, and where the time comes from: ``commit`` or ``offsets``."""
        modified = self._modified_at(epoch)
        planned = None if self._forked else self._planned_at(epoch)
        if planned is not None and (modified is None or not self._plausible(epoch, modified, planned)):
            return planned, OFFSETS
        return modified, None if modified is None else COMMIT

    def _plausible(self, epoch: int, modified: datetime, planned: datetime) -> bool:
        if modified < planned - _CUT_OFF:
            return False
        return not (self._touched_later(epoch - 1) or self._touched_later(epoch))

    def _touched_later(self, epoch: int) -> bool:
        """Whether an epoch's commit file is newer than the next epoch allows."""
        modified = self._modified_at(epoch)
        if modified is None:
            return False
        planned = self._planned_at(epoch + 1)
        if planned is None or modified <= planned:
            return False
        # An epoch that only repartitions the state may have the plan time of the one before.
        own = self._planned_at(epoch)
        return own is None or own < planned
