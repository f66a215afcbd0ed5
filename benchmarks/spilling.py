"""A state that outgrows the index's memory limit, against the same with room for all of it."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import streamstate as ss
from benchmarks.harness import Measurement, timed
from benchmarks.inspect import InStore, captured
from benchmarks.processes import peak
from benchmarks.size import Size

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SMALL, _LARGE = "1536MiB", "14GiB"
_BOUND = 4 * 2**30
_TURNS = 5


def spilling(spark: SparkSession, folder: Path, size: Size) -> Iterator[Measurement]:
    """The index of every epoch within 1.5 GiB and within 14, each in a process of its own, asked the same."""
    captured(spark, folder, size)
    setting = f"{size}, {size.epochs} epochs"
    small, large = (_asked(folder / "store", limit) for limit in (_SMALL, _LARGE))
    yield Measurement(
        "peak memory of the process", f"memory_limit={_SMALL}", small.pop("peak"), "the bound", _BOUND, 1, setting,
        unit="B", wanted=1,
    )  # fmt: skip
    large.pop("peak")
    for question, seconds in small.items():
        large_seconds = large[question]
        yield Measurement(
            question, f"memory_limit={_SMALL}", seconds, f"memory_limit={_LARGE}", large_seconds, _TURNS, setting
        )


def _asked(store: Path, limit: str) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.spilling", str(store), limit]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return dict(json.loads(output.splitlines()[-1]))


def _main(path: str, limit: str) -> None:
    store = ss.open_store(path, memory_limit=limit)
    history = store["load"]
    newest, ask = history.live().epoch, InStore(store)
    took = {"load the index of all epochs": timed(partial(history.recorded.interval_table, "op0", -1))}
    past = newest // 2
    questions: dict[str, Callable[[], object]] = {
        "look up one key, past": partial(ask.lookup, past),
        "top 100 by a column, past": partial(ask.top, past),
        "group the whole state, past": partial(ask.grouped, past),
        "diff of two epochs, 10 apart, counted": partial(ask.diff, past - 5, past + 5),
        "a key's history": ask.key_history,
        "first epoch at which a predicate held": ask.first,
    }
    for name, question in questions.items():
        took[name] = statistics.median([timed(question) for _ in range(_TURNS)])
    print(json.dumps(took | {"peak": peak()}))


if __name__ == "__main__":
    _main(*sys.argv[1:])
