"""Object stores: reached through deltalake's own client, so that one set of options serves tables and files."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from deltalake.fs import DeltaStorageHandler
from pyarrow.fs import FileSystem, PyFileSystem

# A store that is not there is to be told of in seconds. A request is tried again all the same.
_PATIENCE = {"connect_timeout": "5s", "timeout": "30s", "max_retries": "3", "retry_timeout": "20s"}
REACHING = "Are the bucket, the endpoint, the region and the credentials in storage_options (or the environment) right?"
"""What to look at where an object store does not answer as it should."""

_MESSAGE = re.compile(r"<Message>(.*?)</Message>")
_MARKS = re.compile(r"\x1b\[\d+m|↳")


def patient(options: Mapping[str, str] | None) -> dict[str, str]:
    """The options, with how long to try where they do not say."""
    given = dict(options or {})
    said = {name.lower() for name in given}
    return {**{name: value for name, value in _PATIENCE.items() if name not in said}, **given}


def files_of(uri: str, options: dict[str, str] | None) -> FileSystem:
    """The files below a URI, by their paths in it."""
    return PyFileSystem(_Handler(uri, options))


def plain(error: BaseException) -> str:
    """What deltalake says, in one line: what failed and the innermost cause."""
    lines = [line for raw in str(error).splitlines() if (line := _MARKS.sub("", raw).strip())]
    if not lines:
        return type(error).__name__
    answered = _MESSAGE.search(lines[-1])
    if answered is not None:
        lines[-1] = answered[1]
    return lines[0] if len(lines) == 1 else f"{lines[0].rstrip(':')}: {lines[-1]}"


class _Handler(DeltaStorageHandler):
    """deltalake's files for Arrow; its streams take ``bytes`` and nothing else."""

    def open_output_stream(self, path: str, metadata: dict[str, str] | None = None) -> pa.PythonFile:
        return pa.PythonFile(_Stream(self._handler.open_output_stream(path, metadata)), mode="w")


class _Stream:
    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.closed = False

    def write(self, data: Any) -> int:
        self._stream.write(bytes(data))
        return len(data)

    def flush(self) -> None:
        """What was written goes out when the stream is closed."""

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._stream.close()
