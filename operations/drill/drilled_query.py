"""What the processes of a drill note of each epoch: who has committed it, and what its results were.

They run the user's query and the drill's sink through one object, which is sent to them.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamstate.operations.drill.late_files import reading_links

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_POLL_SECONDS = 0.02
_listening: list[object] = []


@dataclass(frozen=True)
class DrilledQuery:
    """The query and the sink of a drill."""

    folder: str
    """Where the processes note what they do."""
    build_query: str
    """The file with the user's function, pickled."""
    hold: int | None = None
    """The epoch that waits in the sink, until :meth:`let_go`."""
    computed: bool = True
    """The results of that epoch are written before it waits; else it waits before they are computed."""
    links: str | None = None
    """The folder with links that sources of files read; None: they read the files."""

    def user_function(self) -> Callable[[], DataFrame]:
        """Return the user's function."""
        from pyspark import cloudpickle

        function: Callable[[], DataFrame] = cloudpickle.loads(Path(self.build_query).read_bytes())
        return function

    def frame(self, build_query: Callable[[], DataFrame]) -> DataFrame:
        """Return what the user's function returns, reading links if there are any."""
        from streamstate.replay.stepping.query_sources import built

        with nullcontext() if self.links is None else reading_links(Path(self.links)):
            return built(build_query)

    def build(self) -> DataFrame:
        """Return the user's query; from now on, this process notes what it starts and commits."""
        frame = self.frame(self.user_function())
        if not _listening:
            from streamstate.operations.drill.noting import Noting

            listener = Noting(self.file("committed", str(os.getpid())))
            _listening.append(listener)
            frame.sparkSession.streams.addListener(listener)
        return frame

    def write(self, rows: DataFrame, epoch: int) -> None:
        """The sink: write the number of an epoch's results, and their digest, in any order."""
        from pyspark.sql import functions as F

        self._wait(epoch, computed=False)
        digest = F.xxhash64(F.to_json(F.struct("*"))).cast("decimal(38,0)")
        counted = rows.select(digest.alias("digest")).agg(F.count("*"), F.sum("digest"))
        number, total = counted.collect()[0]
        file = self.file("results", f"{epoch}.{os.getpid()}.{uuid.uuid4().hex[:8]}")
        draft = file.with_name(f".{file.name}")
        draft.write_text(f"{number} rows, digest {total}", encoding="utf-8")
        draft.rename(file)
        self._wait(epoch, computed=True)

    def file(self, folder: str, name: str) -> Path:
        """Return a file in a folder, which exists."""
        place = Path(self.folder, folder)
        place.mkdir(parents=True, exist_ok=True)
        return place / name

    def held(self) -> bool:
        """Check that the epoch waits in the sink."""
        return Path(self.folder, "held").exists()

    def let_go(self) -> None:
        """Let the epoch that waits continue."""
        Path(self.folder, "go").touch()

    def _wait(self, epoch: int, *, computed: bool) -> None:
        if epoch != self.hold or computed != self.computed:
            return
        Path(self.folder, "held").touch()
        while not Path(self.folder, "go").exists():
            time.sleep(_POLL_SECONDS)

    def results(self) -> dict[int, list[tuple[int, str]]]:
        """Return what was written of each epoch, and by which process."""
        found: dict[int, list[tuple[int, str]]] = {}
        for file in sorted(Path(self.folder, "results").glob("[0-9]*")):
            epoch, process, _ = file.name.split(".")
            found.setdefault(int(epoch), []).append((int(process), file.read_text(encoding="utf-8")))
        return found

    def noted(self, process: int) -> list[dict[str, Any]]:
        """Return what a process has noted: the starts of the query, and the epochs that it committed."""
        try:
            text = Path(self.folder, "committed", str(process)).read_text(encoding="utf-8")
        except FileNotFoundError:
            return []
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
