"""Notes of what a process starts and commits, as Spark reports it."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from pyspark.sql.streaming import StreamingQueryListener


class Noting(StreamingQueryListener):
    """Notes starts and commits, after they have happened; those of forks have other sinks."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def onQueryStarted(self, event: Any) -> None:
        """Note a start."""
        self._note(started=event.name)

    def onQueryProgress(self, event: Any) -> None:
        """Note the commit of an epoch."""
        progress = event.progress
        if "addBatch" in progress.durationMs and progress.sink.description.startswith("ForeachBatch"):
            self._note(epoch=progress.batchId)

    def onQueryIdle(self, event: Any) -> None:
        """Nothing to note."""

    def onQueryTerminated(self, event: Any) -> None:
        """Nothing to note."""

    def _note(self, **facts: Any) -> None:
        with self._file.open("a", encoding="utf-8") as file:
            file.write(json.dumps({**facts, "at": time.time()}) + "\n")
