"""Object stores, reached through deltalake's own client: one set of options serves tables and files."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from deltalake.fs import DeltaStorageHandler
from pyarrow.fs import FileSystem, PyFileSystem

PATIENCE = {"connect_timeout": "5s", "timeout": "30s", "max_retries": "3", "retry_timeout": "20s"}
"""The options for a missing store to be reported within seconds, in spite of retries."""
REACHING = "Check the bucket, the endpoint, the region and the credentials in storage_options or the environment."
"""Advice for an object store that cannot be reached."""

_MESSAGE = re.compile(r"<Message>(.*?)</Message>")
_MARKS = re.compile(r"\x1b\[\d+m|↳")


def patient(options: Mapping[str, str] | None) -> dict[str, str]:
    """Return the options, with timeouts unless they set some."""
    given = dict(options or {})
    names = {name.lower() for name in given}
    return {**{name: value for name, value in PATIENCE.items() if name not in names}, **given}


def files_of(uri: str, options: dict[str, str] | None, sizes: Mapping[str, int] | None = None) -> FileSystem:
    """Return the files below a URI, by their relative paths; known sizes save requests."""
    return PyFileSystem(_Handler(uri, options, dict(sizes or {})))


def plain(error: BaseException) -> str:
    """Deltalake's error in one line: what failed and the innermost cause."""
    lines = [line for raw in str(error).splitlines() if (line := _MARKS.sub("", raw).strip())]
    if not lines:
        return type(error).__name__
    message = _MESSAGE.search(lines[-1])
    if message is not None:
        lines[-1] = message[1]
    return lines[0] if len(lines) == 1 else f"{lines[0].rstrip(':')}: {lines[-1]}"


class _Handler(DeltaStorageHandler):
    """deltalake's files for Arrow; its streams accept only ``bytes``."""

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
        """Nothing: the object is written when the stream is closed."""

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._stream.close()
