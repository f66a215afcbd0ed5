"""Queries of a Spark Connect server, captured by a client; prints each thing that was seen as a line of JSON.

Arguments: the server's address, the id of its process, and an empty folder. The server is
killed at the end.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import streamstate as ss
from streamstate.errors import StreamStateError
from streamstate.snapshots.spark.connect_server import connect_checkpoint

_ROWS = [{"k": f"a{at % 5}", "v": at} for at in range(60)]


class Client:
    """A client of the server, its input, and a store."""

    def __init__(self, address: str, folder: Path) -> None:
        from pyspark.sql import SparkSession

        self.folder, self.store = folder, folder / "store"
        self.spark: Any = SparkSession.builder.remote(address).getOrCreate()
        for key, value in ss_settings().items():
            self.spark.conf.set(key, value)
        (folder / "in").mkdir()
        for at in range(3):
            self.add(at)

    def add(self, at: int) -> None:
        """Add an input file: an epoch."""
        lines = "\n".join(json.dumps(row) for row in _ROWS[at % 3 * 20 : at % 3 * 20 + 20])
        (self.folder / "in" / f".{at}").write_text(lines)
        (self.folder / "in" / f".{at}").rename(self.folder / "in" / f"{at}.json")

    def rows(self) -> Any:
        """The streaming input: one file an epoch."""
        reader = self.spark.readStream.schema("k string, v int").option("maxFilesPerTrigger", 1)
        return reader.json(str(self.folder / "in"))

    def totals(self) -> Any:
        """A query with state."""
        return self.rows().groupBy("k").sum("v")

    def write(self, frame: Any, name: str, mode: str = "update", **options: str) -> Any:
        """Start a query as a user without streamstate does."""
        writer = frame.writeStream.format("noop").outputMode(mode).queryName(name)
        return writer.options(**options).start()

    def captured(self, name: str) -> dict[str, int]:
        """The captured state of a query of totals."""
        rows = ss.open_store(self.store)[name].live().table().to_arrow().to_pylist()
        return {row["k"]: row["sum"] for row in rows}


def ss_settings() -> dict[str, str]:
    """The settings that make capture cheap."""
    from streamstate.snapshots.spark.session import capture_settings

    return capture_settings()


def error(call: Callable[[], Any]) -> str:
    """The error of a call, and its message."""
    try:
        return f"no error: {call()!r}"
    except StreamStateError as raised:
        return f"{type(raised).__name__}: {raised}"


def seen(client: Client, server: int) -> Iterator[tuple[str, Any]]:
    """The observations, by the name of a test."""
    spark, folder, store = client.spark, client.folder, client.store
    yield "session", ss.session() is spark
    yield "setting", error(lambda: ss.session(**{"spark.driver.memory": "1g"}))
    yield from _checkpoints(client)
    yield from _started(client)
    yield from _magics(client)
    yield (
        "refused",
        {
            "record": error(lambda: ss.record(client.rows(), folder / "recording")),
            "record_input": error(lambda: ss.start(client.totals(), "r", store, record_input=True)),
        },
    )
    running = ss.start(client.totals(), "lost", store)
    query, frame = client.write(client.totals(), "lost2"), client.totals()
    running.wait(2, 60)
    os.kill(server, signal.SIGKILL)
    began = time.monotonic()
    running.capture.join(30)
    yield (
        "lost",
        {
            "state": running.state,
            "error": running.status().error,
            "capture": running.capture.status.state,
            "epoch": running.capture.status.epoch,
            "wait": error(lambda: running.wait(9, 60)),
            "checkpoint": error(lambda: ss.Checkpoint(query)),
            "session": error(ss.session),
            "start": error(lambda: ss.start(frame, "lost", store)),
            "rows": client.captured("lost"),
            "seconds": time.monotonic() - began,
        },
    )


def _path(query: Any) -> str:
    return ss.Checkpoint(query).path


def _load(client: Client, name: str) -> dict[str, Any]:
    frame = ss.open_store(client.store)[name].load().to_pandas()
    known = frame[["seconds", "state_rows", "state_bytes"]].notna().all(axis=None)
    return {"rows": frame["rows"].tolist(), "known": bool(known), "tasks": int(frame["worst_task_seconds"].count())}


def _checkpoints(client: Client) -> Iterator[tuple[str, Any]]:
    given = client.folder / "a [check] point, runId = 1"
    for name, options in (("temporary", {}), ("given", {"checkpointLocation": str(given)})):
        query = client.write(client.totals(), name, **options)
        checkpoint = ss.Checkpoint(query)
        with_capture = checkpoint.follow(client.store)
        with_capture.wait(2, 60)
        is_its = checkpoint.query_id == query.id
        query.stop()
        with_capture.join(30)
        yield (
            name,
            {
                "name": checkpoint.name,
                "is its": is_its,
                "path": checkpoint.path,
                "capture": with_capture.status.state,
                "rows": client.captured(name),
                "input rows": ss.open_store(client.store)[name].epochs()["input_rows"].tolist(),
                "load": _load(client, name),
                "after the end": error(partial(_path, query)),
            },
        )
    stateless = client.write(client.spark.readStream.format("rate").load(), "stateless")
    yield "stateless", error(lambda: ss.Checkpoint(stateless))
    stateless.stop()
    (client.folder / "empty").mkdir()
    idle = client.write(client.spark.readStream.schema("k string").json(str(client.folder / "empty")), "idle")
    yield "idle", error(lambda: connect_checkpoint(idle, timeout=0.5))
    idle.stop()
    yield "ended", error(lambda: ss.Checkpoint(idle))


def _started(client: Client) -> Iterator[tuple[str, Any]]:
    running = ss.start(client.totals(), "started", client.store, restart=ss.BackOff(restarts=2))
    waited = running.wait(2, 60)
    status = running.status()
    taken = error(lambda: ss.start(client.totals(), "other", client.store, checkpoint=running.checkpoint.path))
    running.stop()
    again = ss.start(client.totals(), "started", client.store, trigger="available-now")
    yield (
        "started",
        {
            "waited": waited,
            "state": status.state,
            "rows": status.rows,
            "taken": taken,
            "then": running.state,
            "again": again.wait(timeout=300),
            "finished": again.state,
            "captured": client.captured("started"),
            "described": error(lambda: ss.open_store(client.store)["started"].describe(client.totals)),
            "active": [query.name for query in client.spark.streams.active],
            "no state": error(lambda: ss.start(client.rows(), "none", client.store)),
            "mode": error(lambda: ss.start(client.totals(), "append", client.store, mode="append")),
            "batch": error(lambda: ss.start(client.spark.range(3), "batch", client.store)),
        },
    )


def _magics(client: Client) -> Iterator[tuple[str, Any]]:
    from IPython.core.interactiveshell import InteractiveShell
    from IPython.utils.capture import capture_output

    shell = InteractiveShell.instance()
    shell.user_ns |= {"spark": client.spark, "rows": client.rows(), "checkpoint": str(client.folder / "given")}
    client.rows().createOrReplaceTempView("flights")
    os.chdir(client.folder)
    lines = {
        "python": "%%stream cell -o cell\nrows.groupBy('k').sum('v')",
        "sql": "%%stream sqlcell --sql --mode complete -o sqlcell\nSELECT k, sum(v) FROM flights GROUP BY k",
        "uncaptured": "x = rows.groupBy('k').count().writeStream.format('noop').queryName('alone')"
        ".outputMode('update').start()\n%stream list",
        "wait": "%stream wait cell --epoch 2 --timeout 60\n%stream wait sqlcell --epoch 2 --timeout 60",
        "stop": "%stream stop --all\nx.stop()",
    }
    with capture_output() as printed:
        shell.run_cell(f"%load_ext streamstate\n%config StreamState.store = {str(client.store)!r}")
        failed = {name: repr(shell.run_cell(line).error_in_exec) for name, line in lines.items()}
    yield (
        "magics",
        {
            "errors": {name: text for name, text in failed.items() if text != "None"},
            "printed": printed.stdout,
            "rows": [client.captured("cell"), client.captured("sqlcell")],
        },
    )


def run(seen: Callable[[], Iterator[tuple[str, Any]]]) -> None:
    """Print what was seen."""
    faulthandler.dump_traceback_later(450, exit=True)
    try:
        for name, found in seen():
            print(json.dumps([name, found]), flush=True)  # noqa: T201 (for the parent)
    except BaseException:  # noqa: BLE001 (shown, whatever it is)
        traceback.print_exc()
    os._exit(0)  # Spark's client would try for ten minutes to release its session in the server that is gone


if __name__ == "__main__":
    address, process, own = sys.argv[1:]
    run(lambda: seen(Client(address, Path(own)), int(process)))
