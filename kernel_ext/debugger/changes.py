"""What the epochs of a fork changed: captured into the store that was given, or into one that is thrown away."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from streamstate.snapshots.capture import Capturer, capturer_for, catch_up
from streamstate.snapshots.errors import UnknownEpochError
from streamstate.snapshots.filesystem import location
from streamstate.state_inspect import open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from streamstate.snapshots.progress import BatchProgress
    from streamstate.state_inspect import History, Store

__all__ = ["Changes"]


class Changes:
    """A fork's epochs as a store tells them; captured when they are first asked for.

    Args:
        checkpoint: the fork.
        store: where to capture; None: into a folder that goes with this object.
        name: what the fork is called in the store; None: its name there, or its folder's.
        spark: the session to read with.
    """

    def __init__(self, checkpoint: str, store: str | None, name: str | None, spark: SparkSession) -> None:
        self._spark = spark
        self._checkpoint = checkpoint
        self._name = name
        self._given = None if store is None else location(store)
        self._told: dict[int, BatchProgress] = {}
        self._behind = True
        self._lock = threading.RLock()

    def ran(self, epoch: int, progress: BatchProgress | None) -> None:
        """Take note of an epoch that was run."""
        with self._lock:
            self._behind = True
            if progress is not None:
                self._told[epoch] = progress

    def capture(self) -> None:
        """Bring the store up to date with the fork.

        Raises:
            CaptureError, StoreError, NoStateError, NameTakenError: as :func:`streamstate.capture`.
        """
        with self._lock:
            if not self._behind:
                return
            self._capturer.told = self._told
            catch_up(self._capturer)
            self._behind = False

    def tidy(self) -> None:
        """Keyframes and merging, where the store is there to stay."""
        if self._given is not None:
            self._capturer.tidy()

    @property
    def name(self) -> str:
        """What the fork is called in the store."""
        return self._capturer.name

    @property
    def store(self) -> Store:
        """The store, up to date."""
        self.capture()
        return self._store

    @property
    def history(self) -> History:
        """All captured epochs of the fork."""
        return self.store[self.name]

    def changed(self, epoch: int) -> Mapping[str, int]:
        """How many rows of each state table an epoch changed.

        Raises:
            UnknownEpochError: the fork has purged the epoch before it was captured.
        """
        entry = next((one for one in self.history.entries() if one.epoch == epoch and one.captured), None)
        if entry is None:
            raise UnknownEpochError(f"Epoch {epoch} of {self._checkpoint} was not captured.\nStep with store=….")
        return {table: facts.changes for table, facts in entry.tables.items()}

    @cached_property
    def _capturer(self) -> Capturer:
        return capturer_for(self._checkpoint, self._given or self._folder.name, self._name, self._spark)

    @cached_property
    def _folder(self) -> tempfile.TemporaryDirectory[str]:
        # It is deleted with this object.
        return tempfile.TemporaryDirectory(prefix="streamstate-step-", ignore_cleanup_errors=True)

    @cached_property
    def _store(self) -> Store:
        return open_store(self._capturer.layout.root)
