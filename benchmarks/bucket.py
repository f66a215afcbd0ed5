"""Checkpoints in a bucket: capture from an S3-compatible server on this machine, and the requests of each verb."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import streamstate as ss
from benchmarks.harness import Measurement, Size, bounded, timed
from benchmarks.replayed import Replayed
from benchmarks.workload import finished
from streamstate.snapshots.capture.epoch_commit import Capturer
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.checkpoint.object_files import ObjectFiles
from streamstate.snapshots.store.delta import Place
from streamstate.snapshots.store.layout import Layout

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The tests' own server.
sys.path.append(str(Path(__file__).parent.parent / "tests"))

_WARM_UP = 3
_TARGETS = {
    "follow, without Spark: a look without news": 2,
    "capture of an epoch, without Spark": 50,
    "capture of an epoch": 260,
    "fork": 135,
    "step": 350,
    "audit of an epoch, one replay": 950,
    "check": 125,
    "describe": 80,
    "inputs": 50,
    "why": 60,
    "promote": 870,
}
"""The verbs, and how many requests each may make: two partitions, three epochs, a state of five keys."""


def bucket(spark: SparkSession, folder: Path, size: Size) -> Iterator[Measurement]:
    """Measure the capture of an epoch from a server, without Spark, against the same from the local disk.

    The server is a single Python process, beside which the capture runs. The store is on the local disk.
    """
    from capturing.buckets import served_bucket

    measured = _WARM_UP + size.epochs
    load = finished(spark, folder / "query", size.keys, size.changes, measured)
    local = Replayed(load.checkpoint, folder / "local-checkpoint")
    with served_bucket() as served:
        remote = Place(f"{served.uri}/load", served.options).filesystem()

        def put(path: Path) -> None:
            with remote.open_output_stream(path.relative_to(load.checkpoint).as_posix()) as file:
                file.write(path.read_bytes())

        for path in load.checkpoint.rglob("*"):
            if path.is_file() and path.parent.name != "commits" and not path.name.endswith(".crc"):
                put(path)
        uri = "s3a://bucket/load"
        files = CheckpointFiles(uri, files=ObjectFiles(uri, served.options))
        here = Capturer(None, CheckpointFiles(local.path), Layout.at(folder / "local"), "load")
        there = Capturer(None, files, Layout.at(folder / "remote"), "load")
        seconds: dict[str, list[float]] = {"here": [], "there": []}
        for epoch in range(load.first + 1 + measured):
            local.reveal()
            put(load.checkpoint / "commits" / str(epoch))
            os.sync()
            runs = [("here", here.run), ("there", there.run)]
            for where, run in runs if epoch % 2 else reversed(runs):
                seconds[where].append(timed(run))
    took, against = (statistics.median(seconds[where][-size.epochs :]) for where in ("there", "here"))
    question = "an epoch from an S3-compatible server"
    yield Measurement(question, "without Spark", took, "from disk", against, size.epochs, str(size), wanted=0.5)


def bucket_requests(_: object, folder: Path, size: Size) -> Iterator[Measurement]:
    """Count the requests of each verb, with the checkpoint, the store and the input in a bucket."""
    folder.mkdir(parents=True)
    command = [sys.executable, "-m", "benchmarks.bucket"]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parent.parent)
    for verb, requests in json.loads(done.stdout.splitlines()[-1]).items():
        kinds = ", ".join(f"{count} {method}" for method, count in sorted(requests.items()))
        setting = f"{kinds}; 2 partitions, {size.keys} keys"
        yield bounded(verb, "requests", sum(requests.values()), _TARGETS[verb], runs=1, setting=setting, unit="")


def _counted_requests() -> dict[str, Counter[str]]:
    """Run each verb beside a server, and count its requests by method."""
    from capturing.buckets import served_bucket
    from services.s3.orders import Orders

    from scripts.jars import jars

    counted: dict[str, Counter[str]] = {}
    with served_bucket() as served, _session(jars("s3"), served.hadoop_settings()) as spark:
        orders = Orders(spark, served, "orders")
        checkpoint, options = orders.checkpoint(), served.options

        def count(verb: str, call: Callable[[], Any]) -> Any:
            served.requests()
            found = call()
            counted[verb] = Counter(request.split()[0] for request in served.requests())
            return found

        for _ in range(2):
            orders.add()
            orders.run()
        without = CheckpointFiles(checkpoint.path, files=ObjectFiles(checkpoint.path, options))
        alone = Capturer(None, without, Layout.at(f"{orders.store}-alone", options), "orders")
        alone.run()
        checkpoint.capture(orders.store, "orders")
        orders.add()
        orders.run()
        count("capture of an epoch, without Spark", alone.run)
        count("follow, without Spark: a look without news", alone.behind)
        count("capture of an epoch", lambda: checkpoint.capture(orders.store, "orders"))
        fork = count("fork", lambda: checkpoint.fork(orders.uri("fork"), at=1))
        count("step", lambda: fork.step(orders.build))
        count("audit of an epoch, one replay", lambda: checkpoint.audit(orders.build, epochs=(1, 1), replays=1))
        count("check", lambda: checkpoint.check(orders.build))
        history = ss.open_store(orders.store, storage_options=options)["orders"]
        count("describe", lambda: history.describe(orders.build))
        count("inputs", lambda: history.inputs(1).collect())
        count("why", lambda: history.why(1, k="k1"))
        count("promote", lambda: fork.promote(over=checkpoint))
    return counted


@contextmanager
def _session(jars: list[Path], settings: dict[str, str]) -> Iterator[SparkSession]:
    shuffled = {"spark.sql.shuffle.partitions": "2", "spark.jars": ",".join(map(str, jars))}
    spark = ss.session(**shuffled, **settings)
    try:
        yield spark
    finally:
        spark.stop()


if __name__ == "__main__":
    print(json.dumps(_counted_requests()))
