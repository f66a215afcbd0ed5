"""What tutorials stage: files that arrive on demand or at an interval, and a power cut in the middle of a capture."""

from __future__ import annotations

import math
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from streamstate.errors import InvalidArgumentError
from streamstate.snapshots.store.delta.own_commits import WriterTable
from streamstate.tutorials.data import file_names

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from streamstate.snapshots.store.delta.data_files import DataFile


class Arrivals:
    """Passes prepared flights to a query, one file at a time.

    Args:
        data: the directory that :func:`streamstate.tutorials.flights.prepare` filled.
        folder: where the files arrive; :func:`streamstate.tutorials.flights.flights` can read it after the first.
        forever: whether the first file follows the last one, again and under another name.

    Raises:
        InvalidArgumentError: ``data`` holds no prepared flights.
    """

    def __init__(self, data: str | os.PathLike[str], folder: str | os.PathLike[str], *, forever: bool = False) -> None:
        self._from = Path(data).resolve() / "flights"
        self._to = Path(folder).resolve() / "flights"
        self._names = file_names(data)
        if not self._names:
            raise InvalidArgumentError(f"{data} holds no prepared flights.\nWrite them with prepare({str(data)!r}).")
        self._forever = forever
        self._arrived = 0
        self._last = ""
        self._repeats = 0
        self._to.mkdir(parents=True, exist_ok=True)

    def next(self) -> str:
        """Let the next file arrive, and return its name.

        Raises:
            InvalidArgumentError: all files have arrived.
        """
        earlier, at = divmod(self._arrived, len(self._names))
        if earlier and not self._forever:
            raise InvalidArgumentError("All files have arrived.\nRun the notebook again from the top to start over.")
        self._last = self._names[at]
        self._arrived += 1
        return self._arrive(f"{Path(self._last).stem}-round-{earlier + 1}.parquet" if earlier else self._last)

    def again(self) -> str:
        """Let the latest file arrive again under another name, and return that name.

        Raises:
            InvalidArgumentError: no file has arrived yet.
        """
        if not self._last:
            raise InvalidArgumentError("No file has arrived yet.\nCall next() first.")
        self._repeats += 1
        return self._arrive(f"{Path(self._last).stem}-repeat-{self._repeats}.parquet")

    def _arrive(self, name: str) -> str:
        """Appear at once and complete: Spark ignores files whose names begin with a dot."""
        scratch = self._to / f".{name}"
        shutil.copy2(self._from / self._last, scratch)
        scratch.rename(self._to / name)
        return name


class Feed:
    """Lets files arrive at an interval, in a thread of its own, until :meth:`stop` or until there are no more.

    Args:
        arrivals: the files.
        every: seconds between two files; None: none arrives for now. It may be changed at any time.
    """

    def __init__(self, arrivals: Arrivals, every: float | None) -> None:
        self.every = every
        self._arrivals = arrivals
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="feed", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the feed; no file arrives any more."""
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        latest = -math.inf
        while not self._ended.wait(0.02):
            every, now = self.every, time.monotonic()
            if every is None or now < latest + every:
                continue
            try:
                self._arrivals.next()
            except InvalidArgumentError:  # all have arrived
                return
            latest = latest + every if now < latest + 2 * every else now  # a little late, or it has paused


def wait_until(condition: Callable[[], object], *, timeout: float = 600) -> bool:
    """Wait until a condition is true, and return True; or False after ``timeout`` seconds."""
    end = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.2)
    return True


def write_file(folder: Path, number: int) -> None:
    """Write a file with the two records of an epoch. A query that runs sees it once it is complete."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [f'{{"record": "a{2 * number + place}"}}\n' for place in (1, 2)]
    part = folder / f".{number}.part"
    part.write_text("".join(lines), encoding="utf-8")
    os.utime(part, (1_600_000_000 + number, 1_600_000_000 + number))  # Spark reads the oldest file first
    part.replace(folder / f"{number}.json")


class PowerCutError(BaseException):
    """Not an ``Exception``, so that no code handles it, as no code could handle a power cut."""


@contextmanager
def power_cut(*, after: int) -> Iterator[None]:
    """Let a number of commits of rows to Delta tables on the local disk succeed, then abort the block.

    The block ends where the next commit would begin; only Python's own cleanup still runs. A block with fewer commits
    ends as usual.

    Args:
        after: how many commits succeed.
    """
    commit = WriterTable.add_files
    done = 0

    def commit_or_end(table: WriterTable, files: Sequence[DataFile], *args: Any, **options: Any) -> bytes:
        nonlocal done
        if files and done == after:
            raise PowerCutError
        entry = commit(table, files, *args, **options)
        done += bool(files)
        return entry

    with patch.object(WriterTable, "add_files", commit_or_end), suppress(PowerCutError):
        yield


def clear(spark: SparkSession, query: str, folder: str | os.PathLike[str]) -> None:
    """Stop the query of that name if it is running, and delete the folder that an earlier run of a notebook left."""
    for running in spark.streams.active:
        if running.name == query:
            running.stop()
    if Path(folder).exists():
        shutil.rmtree(folder)
