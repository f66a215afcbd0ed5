"""Queries whose checkpoints only the server reaches, captured by a client; prints what was seen as lines of JSON.

Arguments: the server's address, the id of its process, an empty folder, the folder that only the server has, and
recorded checkpoints.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import streamstate as ss
from project.connect_queries import Client, error, run
from streamstate.errors import CaptureError
from streamstate.snapshots.capture.reached_checkpoint import reached_checkpoint
from streamstate.snapshots.checkpoint.local_files import LocalFiles
from streamstate.snapshots.checkpoint.server_copy import CopiedCheckpoint, ServerFile
from streamstate.snapshots.spark import connect_files
from streamstate.snapshots.spark.connect_files import ConnectFiles


def seen(client: Client, server: int, hidden: Path, recorded: list[str]) -> Iterator[tuple[str, Any]]:
    """The observations, by the name of a test."""
    yield "layouts", {path: _missing(client, path) for path in recorded}
    yield "pieces", _in_pieces(client, recorded[0])
    yield "too large", _too_large(client, recorded[0])
    yield "captured", _captured(client, hidden / "a [check] point, runId = 1")
    yield "join", _joined(client, hidden / "join")
    yield "started", _started(client, hidden / "started")
    yield "lost", _lost(client, server, hidden / "lost")


def _missing(client: Client, path: str) -> list[str]:
    """Files of a checkpoint that a copy of it lacks, or has with other bytes; Hadoop's checksum files do not count."""
    copy = CopiedCheckpoint(ConnectFiles(client.spark, path), ss.Checkpoint(path).query_id)
    copy.refresh()
    there, here = LocalFiles().tree(path), LocalFiles().tree(copy.path)
    names = {name for name in there | here if name[-1] != "/" and not Path(name).name.startswith(".")}
    return sorted(name for name in names if name not in there & here or not _same(path, copy.path, name))


def _in_pieces(client: Client, path: str) -> list[str]:
    """The same for files that are larger than a piece."""
    size, cache = connect_files._PIECE, os.environ["XDG_CACHE_HOME"]
    connect_files._PIECE, os.environ["XDG_CACHE_HOME"] = 250, str(client.folder / "cache")
    try:
        return _missing(client, path)
    finally:
        connect_files._PIECE, os.environ["XDG_CACHE_HOME"] = size, cache


def _too_large(client: Client, path: str) -> str:
    """The error for a file that would take too much of the server's memory."""
    large = ServerFile("state/0/0/1.snapshot", 2**30, 0)
    try:
        return repr([*ConnectFiles(client.spark, path).read([large])])
    except CaptureError as error:
        return str(error)


def _same(original: str, copy: str, name: str) -> bool:
    """Compare a file's bytes; what names the files of schemas has to name those of the copy."""
    content, copied = Path(original, name).read_bytes(), Path(copy, name).read_bytes()
    return (
        f"file:{copy}/state/0/_stateSchema/".encode() in copied if b"/_stateSchema/" in content else copied == content
    )


def _captured(client: Client, folder: Path) -> dict[str, Any]:
    query = client.write(client.totals(), "captured", checkpointLocation=str(folder))
    checkpoint = ss.Checkpoint(query)
    capture = checkpoint.follow(client.store)
    capture.wait(2, 60)
    client.add(3)
    capture.wait(3, 60)
    once = checkpoint.capture(client.folder / "once", "captured")
    query.stop()
    capture.join(60)
    fork = checkpoint.fork(client.folder / "fork", at=1)
    return {
        "path": checkpoint.path,
        "shown": repr(checkpoint),
        "doctor": str(checkpoint.doctor()),
        "capture": [capture.status.state, capture.status.error],
        "once": once.epochs,
        "fork": fork.capture(client.folder / "forked", "fork").epochs,
        "here": folder.exists(),
    }


def _joined(client: Client, folder: Path) -> str:
    """The query has three state stores a partition, and one from before the copy began."""
    left = client.rows().dropDuplicates(["k", "v"]).alias("l")
    right = client.rows().alias("r")
    query = client.write(left.join(right, on="v"), "join", mode="append", checkpointLocation=str(folder))
    query.processAllAvailable()
    query.stop()
    found = reached_checkpoint(client.spark, str(folder))
    assert found is not None
    ss.Checkpoint(found).capture(client.store, "join")
    return type(found).__name__


def _started(client: Client, folder: Path) -> dict[str, Any]:
    running = ss.start(client.totals(), "started", client.store, checkpoint=folder, restart=ss.BackOff(restarts=2))
    waited = running.wait(3, 60)
    running.stop()
    again = ss.start(client.totals(), "started", client.store, checkpoint=folder, trigger="available-now")
    return {
        "waited": waited,
        "then": running.state,
        "again": again.wait(timeout=300),
        "path": running.checkpoint.path,
        "from the copy": error(lambda: ss.start(client.totals(), "x", client.store, checkpoint=running.checkpoint)),
        "rescaled": error(lambda: running.checkpoint.rescale(3)),
    }


def _lost(client: Client, server: int, folder: Path) -> dict[str, Any]:
    query = client.write(client.totals(), "lost", checkpointLocation=str(folder))
    capture = ss.Checkpoint(query).follow(client.store)
    capture.wait(3, 60)
    os.kill(server, signal.SIGSTOP)
    silent = _until(lambda: capture.status.error)
    os.kill(server, signal.SIGCONT)
    client.add(4)
    again = capture.wait(4, 120)
    os.kill(server, signal.SIGKILL)
    gone = _until(lambda: capture.status.error)
    state = capture.status.state
    capture.stop(catch_up=False)
    return {"silent": silent, "again": again, "gone": gone, "state": state, "then": capture.status.state}


def _until(value: Callable[[], str | None], timeout: float = 120) -> str | None:
    """Wait until there is a value, and return it."""
    deadline = time.monotonic() + timeout
    while value() is None and time.monotonic() < deadline:
        time.sleep(0.1)
    return value()


if __name__ == "__main__":
    address, process, own, hidden, *recorded = sys.argv[1:]
    run(lambda: seen(Client(address, Path(own)), int(process), Path(hidden), recorded))
