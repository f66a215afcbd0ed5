"""How much memory the Python process of a capture takes; the JVM is a process of its own and not counted."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import streamstate as ss
from benchmarks.harness import Measurement
from benchmarks.size import Size
from benchmarks.stepping import Stepped
from benchmarks.workload import Workload

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_BOUND = 1.5 * 2**30


def memory(spark: SparkSession, folder: Path, size: Size) -> Iterator[Measurement]:
    """Peak resident memory after the epoch that brings all keys, after each later one, and catching up at once.

    The query runs in this process, the captures each in one of their own.
    """
    load = Workload(spark, folder, size.keys, size.changes)
    for _ in range(size.epochs):
        load.change()
    load.run()
    for how, what in (("epoch by epoch", "step"), ("all in one call", "catch-up")):
        command = [sys.executable, "-m", "benchmarks.memory", what]
        command += [str(load.checkpoint), str(folder / what), str(size.epochs)]
        output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        peaks = json.loads(output.splitlines()[-1])
        for stage, peak in peaks.items():
            question = f"memory of the Python process, {how}, {stage}"
            yield Measurement(question, "peak", peak, "the bound", _BOUND, 1, str(size), unit="B", wanted=1)


def _main(what: str, checkpoint: str, store: str, epochs: str) -> None:
    spark = ss.session(**{"spark.driver.memory": "8g", "spark.driver.maxResultSize": "4g"})
    peaks = {"started": peak()}
    if what == "step":
        stepped = Stepped(spark, Path(checkpoint), Path(store))
        stepped.step()
        peaks["all keys captured"] = peak()
        for _ in range(int(epochs)):
            stepped.step()
    else:
        ss.capture(checkpoint, store, "load", spark=spark)
    peaks["every epoch captured"] = peak()
    spark.stop()
    print(json.dumps(peaks))


def peak() -> int:
    """Peak resident memory of this process so far, in bytes."""
    # What getrusage says on Linux begins with the parent's peak, which a new program inherits.
    status = Path("/proc/self/status")
    if status.exists():
        (line,) = (line for line in status.read_text(encoding="utf-8").splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # in bytes on macOS


if __name__ == "__main__":
    _main(*sys.argv[1:])
