"""Capturing the epochs of a fork, or of its original: into a given store, or into a temporary one."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Mapping
from functools import cached_property

from pyspark.sql import DataFrame, SparkSession

from streamstate.errors import UnknownEpochError
from streamstate.snapshots.capture.capture import capturer_for, catch_up
from streamstate.snapshots.capture.epoch_commit import Capturer
from streamstate.snapshots.capture.epoch_entries import BatchProgress
from streamstate.snapshots.checkpoint.filesystem import location
from streamstate.snapshots.store.layout import Layout
from streamstate.snapshots.store.query_plans.describe import store_running_plan
from streamstate.snapshots.store.query_plans.spark_plan import plan_of_frame
from streamstate.state_inspect import History, Store, open_store


class ForkCapture:
    """The captured epochs of a fork, or of its original; they are captured when they are first read.

    Args:
        store: where to capture; None: into a folder that is deleted with this object.
        name: its name in the store; None: the name it has there already, or its folder's.
    """

    def __init__(self, checkpoint: str, store: str | None, name: str | None, spark: SparkSession) -> None:
        self._spark = spark
        self._checkpoint = checkpoint
        self._name = name
        self._given_store = None if store is None else location(store)
        self._progress: dict[int, BatchProgress] = {}
        self._behind = True
        self._described = False
        self._lock = threading.RLock()

    def note_epoch(self, epoch: int, progress: BatchProgress | None) -> None:
        """Note that an epoch was run, so that the next read captures it."""
        with self._lock:
            self._behind = True
            if progress is not None:
                self._progress[epoch] = progress

    def catch_up(self) -> None:
        """Bring the store up to date with the fork."""
        with self._lock:
            if not self._behind:
                return
            self._capturer.known_progress = self._progress
            catch_up(self._capturer)
            self._behind = False

    def describe(self, build_query: Callable[[], DataFrame], mode: str, since: int) -> None:
        """Record the plan that the fork's epochs run with from one on, for the result of its query."""
        if not self._described:
            self._described = True
            store_running_plan(self.layout, self.name, lambda: plan_of_frame(build_query(), mode), since)

    def tidy(self) -> None:
        """Write keyframes and merge files, unless the store is temporary."""
        if self._given_store is not None:
            self._capturer.tidy()

    @property
    def name(self) -> str:
        """The fork's name in the store."""
        return self._capturer.name

    @property
    def layout(self) -> Layout:
        """The tables of the store."""
        return self._capturer.layout

    @property
    def store(self) -> Store:
        """The store, up to date."""
        self.catch_up()
        return self._store

    @property
    def history(self) -> History:
        """All captured epochs of the fork."""
        return self.store[self.name]

    def changed_rows(self, epoch: int) -> Mapping[str, int]:
        """Return the number of rows of each state table that an epoch changed."""
        for entry in self.history.recorded.entries():
            if entry.epoch == epoch and entry.captured:
                return {table: facts.changes for table, facts in entry.tables.items()}
        raise UnknownEpochError(
            f"Epoch {epoch} of {self._checkpoint} was not captured.\nStep with store=…, which captures every epoch."
        )

    @cached_property
    def _capturer(self) -> Capturer:
        return capturer_for(self._checkpoint, self._given_store or self._folder.name, self._name, self._spark)

    @cached_property
    def _folder(self) -> tempfile.TemporaryDirectory[str]:
        # It is deleted with this object.
        return tempfile.TemporaryDirectory(prefix="streamstate-step-", ignore_cleanup_errors=True)

    @cached_property
    def _store(self) -> Store:
        return open_store(self.layout.root)
