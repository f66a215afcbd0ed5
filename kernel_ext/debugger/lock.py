"""One step at a time: a small file in the fork says who is stepping it."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from streamstate.snapshots.errors import QueryError
from streamstate.snapshots.filesystem import local_path

__all__ = ["LOCK_FILE", "stepping"]

LOCK_FILE = "streamstate-step.json"
"""The file's name. Spark does not look at it."""

_mine: set[str] = set()
_guard = threading.Lock()


@contextmanager
def stepping(checkpoint: str) -> Iterator[None]:
    """Be the only one who steps a fork while the block runs.

    On the local disk other processes are kept away too; the file of one that was killed is taken over.

    Raises:
        QueryError: where somebody else is stepping it.
    """
    with _guard:
        if checkpoint in _mine:
            raise QueryError(f"{checkpoint} is being stepped by another thread.\nWait for it, or make another fork.")
        local = local_path(checkpoint)
        file = None if local is None else local / LOCK_FILE
        if file is not None:
            _take(file)
        _mine.add(checkpoint)
    try:
        yield
    finally:
        with _guard:
            _mine.discard(checkpoint)
            if file is not None:
                file.unlink(missing_ok=True)


def _take(file: Path) -> None:
    text = json.dumps({"process": os.getpid(), "host": socket.gethostname()})
    if file.exists() and not _left_behind(file):
        held: Any = json.loads(file.read_text(encoding="utf-8"))
        raise QueryError(
            f"{file.parent} is being stepped by process {held['process']} on {held['host']}.\n"
            f"Wait for it, or make another fork; where that process is gone, delete {file.name} in the fork."
        )
    with suppress(FileNotFoundError):
        file.unlink()
    try:
        handle = os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    except FileExistsError:
        raise QueryError(f"{file.parent} is being stepped by another process.\nWait for it, or fork again.") from None
    with os.fdopen(handle, "w", encoding="utf-8") as opened:
        opened.write(text)


def _left_behind(file: Path) -> bool:
    """Whether the process that wrote it is gone, as far as can be seen from here."""
    try:
        held: Any = json.loads(file.read_text(encoding="utf-8"))
        process, host = int(held["process"]), held["host"]
    except (OSError, ValueError, KeyError, TypeError):
        return True  # killed while it wrote
    if host != socket.gethostname():
        return False
    if process == os.getpid():
        return True  # of an earlier process of that number: this one's own are known
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False
