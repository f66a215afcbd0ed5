"""A user's program that makes every call beside Spark Connect again and again; prints the processes that it left.

Arguments: the server as for :mod:`project.connect_calls`, or a variable of the environment that sets Spark Connect up
with a server that is not there; how often; a recorded checkpoint; and an empty folder.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
from project.connect_calls import calls, connected

import streamstate as ss
from connect.lifetime_program import children, failure
from streamstate.snapshots.spark.worker.client import end_worker

NOWHERE = {"SPARK_REMOTE": "sc://localhost:1", "SPARK_API_MODE": "connect"}


def main(kind: str, repetitions: int, checkpoint: Path, folder: Path) -> None:
    """Make the calls."""
    os.environ["SPARK_TESTING"] = "1"  # a server takes a free port
    if kind in NOWHERE:
        os.environ[kind] = NOWHERE[kind]
    spark = connected("nowhere" if kind in NOWHERE else kind)
    missing = ss.Checkpoint(folder / "missing")
    made: dict[str, Callable[[], object]] = {
        "session": ss.session,
        "step": lambda: missing.step(lambda: spark.readStream.format("rate").load()),
    }
    made |= calls(spark, checkpoint, folder)
    before = set(children())
    rounds = []
    for _ in range(repetitions):
        for call in made.values():
            failure(call)
        new = [child.name() for child in set(children()) - before]
        rounds.append([sorted(new), psutil.Process().memory_info().rss // 2**20])
    end_worker()
    left = [child.name() for child in set(children()) - before]
    print(json.dumps({"rounds": rounds, "left": left}), flush=True)  # noqa: T201 (read by the parent process)
    os._exit(0)  # Spark's client would wait minutes for the server that there is not


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), *map(Path, sys.argv[3:]))
