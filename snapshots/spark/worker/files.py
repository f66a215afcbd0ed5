"""A checkpoint's files on a file system that needs Spark, read by the worker process."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar, cast

from streamstate.snapshots.spark.worker.forwarding import classic_spark

if TYPE_CHECKING:
    from streamstate.snapshots.checkpoint.filesystem import ReadableFiles

_T = TypeVar("_T")
_U = TypeVar("_U")


def worker_files() -> ReadableFiles:
    """Return any file system that Spark is set up for; the worker starts once a file is read."""
    return cast("ReadableFiles", _WorkerFiles())


class _WorkerFiles:
    """``HadoopFiles`` of the worker's session. Each call is one of its own, so another worker can go on."""

    def each(self, read: Callable[[_T], _U], items: Iterable[_T]) -> Iterable[_U]:
        """Apply ``read`` to each item, in order."""
        return map(read, items)

    def read_ahead(self, contents: Iterable[str], folders: Iterable[str] = (), *, last: str | None = None) -> None:
        """Do nothing: the worker answers one call after the other."""

    def forget_ahead(self) -> None:
        """Do nothing."""

    def content_last(self, path: str) -> bytes | None:
        """As :meth:`content`."""
        found: bytes | None = self.content(path)
        return found

    def __getattr__(self, method: str) -> Callable[..., Any]:
        if method.startswith("_"):
            raise AttributeError(method)

        def call(*arguments: object) -> Any:
            return read_with_spark(method, *arguments)

        call.__name__ = method
        return call


@classic_spark()
def read_with_spark(method: str, *arguments: object) -> Any:
    """Call a method of ``HadoopFiles``."""
    from streamstate.snapshots.checkpoint.hadoop_files import HadoopFiles
    from streamstate.snapshots.spark.session import classic_session

    return getattr(HadoopFiles(classic_session()), method)(*arguments)
