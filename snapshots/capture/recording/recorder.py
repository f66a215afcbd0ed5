"""The query that records what a frame delivers."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from streamstate.errors import QueryError, first_line
from streamstate.snapshots.capture.recording.recording import Recording
from streamstate.snapshots.capture.recording.source_position import SourcePosition
from streamstate.snapshots.capture.recording.sources import distinct_sources, forgotten
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery


class Recorder:
    """Records a streaming frame, from when it is started until it is stopped.

    Attributes:
        path: the recording.
        frame: what is recorded.
        query: Spark's handle of the recorder's newest run; None if it was never started.

    Example:
        >>> lines = ss.record(socket, "recordings/lines")
        >>> lines.recorder.error is None
        True
        >>> lines.recorder.stop()
    """

    def __init__(self, frame: DataFrame, recording: Recording, checkpoint: str) -> None:
        self.path = recording.place.uri
        self.frame = frame
        self.query: StreamingQuery | None = None
        self._recording = recording
        self._checkpoint = checkpoint
        self._lock = threading.Lock()
        self._users: set[str] = set()
        self._query_id: str | None = None
        self._trigger: dict[str, Any] = {}
        self._stopped = False

    @property
    def active(self) -> bool:
        """True while it records."""
        return self.query is not None and self.query.isActive

    @property
    def error(self) -> str | None:
        """The first line of the error with which it failed; None if it did not."""
        # A batch that is under way when the query is stopped fails with it.
        over = self.query is not None and not self.query.isActive and not self._stopped
        failed = self.query.exception() if self.query is not None and over else None
        if failed is None:
            return None
        lines = [line.strip() for line in str(failed).splitlines() if line.strip()]
        ours = [line for line in lines if line.startswith("streamstate.errors.")]
        return ours[-1].partition(": ")[2] if ours else first_line(failed)

    def renew(self, frame: DataFrame, recording: Recording, checkpoint: str) -> None:
        """Let the next run record what the newest code says; a run under way continues."""
        with self._lock:
            if not self.active:
                self.frame, self._recording, self._checkpoint = frame, recording, checkpoint

    def start(self, user: str | None = None, *, trigger: dict[str, Any] | None = None) -> StreamingQuery:
        """Record from where the last run ended, if it does not record already.

        Args:
            user: the query that it records for; it is stopped once all of them have left it.
            trigger: arguments of ``writeStream.trigger``, by default those of the last run. If the run ends by itself,
                this waits for its end.

        Returns:
            Spark's handle of the run.

        Raises:
            QueryError: the run ended by itself, with an error.
            StoreError: the recording cannot be written.
        """
        from pyspark.errors import StreamingQueryException

        with self._lock:
            if user is not None:
                self._users.add(user)
            if self.query is not None and self.query.isActive:
                return self.query
            if trigger is not None:
                self._trigger = trigger
            turn = self._recording.claim()
            # A socket numbers its rows anew in each run, and Spark would take the first ones for known.
            forgets = any(forgotten(leaf) for leaf in distinct_sources(self.frame._jdf.queryExecution().analyzed()))
            checkpoint = f"{self._checkpoint}/{turn}" if forgets else self._checkpoint
            self._query_id = None
            self._stopped = False
            writer = self.frame.writeStream.option("checkpointLocation", checkpoint)
            if self._trigger:
                writer = writer.trigger(**self._trigger)
            query = writer.foreachBatch(lambda rows, epoch: self._append(rows, epoch, checkpoint)).start()
            self.query = query
        if self._trigger and "processingTime" not in self._trigger:
            try:
                query.awaitTermination()
            except StreamingQueryException as error:
                raise QueryError(f"The recorder of {self.path} failed: {self.error}") from error
        return query

    def stop(self, user: str | None = None) -> None:
        """Stop recording, unless other queries still read what is recorded."""
        with self._lock:
            self._users = self._users - {user} if user is not None else set()
            if self.query is not None and not self._users:
                self._stopped = self.active
                self.query.stop()

    def _append(self, rows: DataFrame, epoch: int, checkpoint: str) -> None:
        files = CheckpointFiles(checkpoint, rows.sparkSession)
        if self._query_id is None:
            # In its checkpoint, because the first epoch may run before Spark has returned the query.
            self._query_id = files.query_id
        self._recording.append(self._query_id, epoch, rows, SourcePosition.of(files, epoch))
