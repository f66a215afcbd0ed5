"""How many stores one process can follow when an epoch comes every second to each of them."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.harness import Measurement
from benchmarks.replayed import Replayed
from benchmarks.size import Size
from benchmarks.stateful_queries import recorded

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A query with a time to live has timers, which only Spark reads.
_KINDS = ("aggregate", "join", "window", "list", "map")
_COUNTS = (25, 50, 100)
_SECOND = 1.0
_TIMEOUT = 600.0


def many_stores(spark: SparkSession, folder: Path, size: Size) -> Iterator[Measurement]:
    """25 stores, 50, 100 and ``--stores`` of five queries: the seconds that the process takes for an epoch of each."""
    recordings = [recorded(spark, folder / "queries" / kind, kind, size.changes, 1 + size.epochs) for kind in _KINDS]
    for count in (*(count for count in _COUNTS if count < size.stores), size.stores):
        yield _followed(recordings, folder / str(count), count, size)


def _followed(recordings: list[Path], folder: Path, count: int, size: Size) -> Measurement:
    replays = [Replayed(recording, folder / f"checkpoint-{at}") for at, recording in enumerate(recordings)]
    for replayed in replays:
        replayed.reveal()
    command = [sys.executable, "-m", "benchmarks.many_stores", str(folder / "stores"), str(count)]
    command += [str(replayed.path) for replayed in replays]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        before = _asked(process)  # every store has its first epoch then
        began = time.monotonic()
        for epoch in range(size.epochs):
            for replayed in replays:
                replayed.reveal()
            threading.Event().wait(max(0.0, began + (epoch + 1) * _SECOND - time.monotonic()))
        after = _asked(process)
        seconds = time.monotonic() - began
    captured = (sum(after["epochs"]) - sum(before["epochs"])) / count
    behind = [size.epochs - epoch for epoch in after["epochs"]]
    cores = (after["cpu"] - before["cpu"]) / seconds
    found = f"{captured * count / seconds:.1f} epochs/s, {cores:.2f} cores, behind at the end: median"
    return Measurement(
        f"{count} stores of {len(replays)} queries, seconds for an epoch of each",
        f"{found} {statistics.median(behind):.0f}, at most {max(behind)}",
        seconds / max(captured, 1 / count),
        "an epoch a second to each",
        _SECOND,
        size.epochs,
        f"{size.changes:,} changes an epoch",
        wanted=0.9,
    )


def _asked(process: subprocess.Popen[str]) -> dict[str, Any]:
    """Each store's newest epoch, and the CPU seconds of the process so far."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    return dict(json.loads(process.stdout.readline()))


def _main(folder: str, count: str, *checkpoints: str) -> None:
    """Follow the checkpoints in turn, each into a store of its own; answer each line of standard input."""
    from streamstate.snapshots.capture.memory import set_plain_memory

    set_plain_memory(on=True)  # as streamstate follow does, before deltalake and pyarrow are imported
    import streamstate as ss

    captures = [
        ss.Checkpoint(checkpoints[at % len(checkpoints)]).follow(Path(folder, str(at)), "load")
        for at in range(int(count))
    ]
    for capture in captures:
        capture.wait(0, timeout=_TIMEOUT)
    for _ in sys.stdin:
        epochs = [capture.status.epoch for capture in captures]
        print(json.dumps({"epochs": epochs, "cpu": time.process_time()}), flush=True)
    for capture in captures:
        capture.stop(catch_up=False)


if __name__ == "__main__":
    _main(*sys.argv[1:])
