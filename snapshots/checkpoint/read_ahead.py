"""Reads of remote files that begin before their results are needed."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, TypeVar

_AT_ONCE = 16

_T = TypeVar("_T")


class ReadAheadFiles:
    """A file system on which waiting takes longer than reading."""

    def __init__(self) -> None:
        self._ahead = _ReadAhead()

    def read_ahead(self, contents: Iterable[str], folders: Iterable[str] = (), *, last: str | None = None) -> None:
        """Begin to read the files and folders that will be asked for next, and one file after all others.

        Each result goes to one call of :meth:`content` or :meth:`entries`, or to as many as the path is given here; the
        last file's to :meth:`content_last`.
        """
        self._ahead.begin(self._content, contents)
        self._ahead.begin(self._entries, folders)
        if last is not None:
            self._ahead.begin_last(self._content, last)

    def forget_ahead(self) -> None:
        """Forget what was read ahead and not asked for."""
        self._ahead.forget()

    def content(self, path: str) -> bytes | None:
        """Return a file's bytes; None if it does not exist."""
        return self._ahead.result(self._content, path)

    def content_last(self, path: str) -> bytes | None:
        """Return a file's bytes, read after everything else that was read before this call."""
        return self._ahead.last_result(self._content, path)

    def entries(self, path: str) -> dict[str, bool]:
        """Return the names in a folder, each with whether it is a folder; none if it does not exist."""
        return self._ahead.result(self._entries, path)

    def _content(self, path: str) -> bytes | None:
        raise NotImplementedError

    def _entries(self, path: str) -> dict[str, bool]:
        raise NotImplementedError


class _ReadAhead:
    """Reads that begin in the background, each for as many readers as announced it.

    A reader does what no thread has begun itself, so reading ahead never delays it.
    """

    def __init__(self) -> None:
        self._begun: defaultdict[tuple[str, str], list[_Task]] = defaultdict(list)
        self._last: _Task | None = None
        self._pool: ThreadPoolExecutor | None = None
        self._lock = threading.Lock()

    def begin(self, read: Callable[[str], object], paths: Iterable[str]) -> None:
        """Begin to read some paths; one that is given several times is read once, for as many readers."""
        with self._lock:
            for path in paths:
                tasks = self._begun[read.__name__, path]
                tasks.append(tasks[0] if tasks else self._submitted(_Task(read, path)))

    def begin_last(self, read: Callable[[str], object], path: str) -> None:
        """Begin to read a path once all other reads are done."""
        with self._lock:
            others = [task.done for tasks in self._begun.values() for task in tasks]
            self._last = self._submitted(_Task(read, path, others))

    def _submitted(self, task: _Task) -> _Task:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="streamstate-reads")
        self._pool.submit(task.run)
        return task

    def result(self, read: Callable[[str], _T], path: str) -> _T:
        """Return what reading a path gives: of a read that has begun, or else of one that begins now."""
        with self._lock:
            tasks = self._begun.get((read.__name__, path))
            if not tasks:
                self._last = None  # it will not have been the last
            task = tasks.pop() if tasks else None
        return read(path) if task is None else task.result()

    def last_result(self, read: Callable[[str], _T], path: str) -> _T:
        """Return what reading a path gives after all other reads: of one that has begun, or else of one now."""
        with self._lock:
            task, self._last = self._last, None
        return read(path) if task is None or task.path != path else task.result()

    def forget(self) -> None:
        """Forget the results that nobody has asked for."""
        with self._lock:
            self._begun.clear()
            self._last = None
            if self._pool is not None:
                self._pool.shutdown(wait=False)
                self._pool = None


class _Task:
    """One read, done by the first thread that comes to it."""

    def __init__(self, read: Callable[[str], object], path: str, others: Sequence[Future[Any]] = ()) -> None:
        self.done: Future[Any] = Future()
        self.path = path
        self._read, self._others = read, others
        self._claim = threading.Lock()

    def result(self) -> Any:
        self.run()
        return self.done.result()

    def run(self) -> None:
        """Do the read after the others, unless another thread does."""
        if not self._claim.acquire(blocking=False):
            return
        wait(self._others)
        try:
            self.done.set_result(self._read(self.path))
        except BaseException as error:  # noqa: BLE001 (the reader raises it)
            self.done.set_exception(error)
