"""A quick check for new epochs in a checkpoint's commit log, without listing it."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles

# A folder may change again without another time of modification.
_TIME_TICK = timedelta(seconds=0.05)


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
