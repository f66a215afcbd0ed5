"""Two queries that share three variables, and where their tasks, workers and driver are made to fail.

``limit`` is set by another process. ``total`` adds up the rows that the queries read, and ``tally`` counts each task
that succeeded, by query, epoch and partition. The tasks write down what they see of all three.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from pyspark import TaskContext

import streamstate as ss
from streamstate.variables.transports.addresses import transport_at

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from streamstate.variables.shared_variable import SharedVariable

QUERIES = ("a", "b")
PARTITIONS, ROWS = 2, 10
AFTER_STAGING, BEFORE_MERGING, AFTER_MERGING, AT_ANY_TIME = (
    "after a task has staged",
    "before the merge is published",
    "after the merge is published",
    "at any time",
)
POINTS = (AFTER_STAGING, BEFORE_MERGING, AFTER_MERGING, AT_ANY_TIME)
"""Where the process that runs both queries is killed, with its JVM."""
FATES = ("fails before it stages", "fails after it staged", "is killed before it stages", "is killed after it staged")
"""What becomes of the first attempt of some tasks. What it adds differs from what the next one does."""

_LIFE = "STREAMSTATE_SHARING_LIFE"
in_driver = False
"""Whether this is the process that runs the queries."""


class Failure(Exception):  # noqa: N818 (of an attempt)
    """An attempt fails on purpose."""


@dataclass(frozen=True)
class Life:
    """The work of one process, from its start until it is killed.

    Attributes:
        folder: where everything is.
        transport: the address of the variables' transport.
        seed: decides which attempts fail.
        failing: the share of tasks whose first attempt fails.
        goal: after how many epochs of each query the process ends.
        point: where it is killed; empty: it is not.
        query, epoch: the query whose epoch it is killed in, or later.
        steps: how many times a query is forked and stepped at the end.
    """

    folder: str
    transport: str
    seed: int
    failing: float
    goal: int
    point: str = ""
    query: str = "a"
    epoch: int = 0
    steps: int = 0

    @classmethod
    def here(cls) -> Life:
        """The life of this process."""
        return cls(**json.loads(os.environ[_LIFE]))

    def environment(self) -> dict[str, str]:
        """The environment variables that pass it on, also to the processes that Spark starts."""
        return {_LIFE: json.dumps(asdict(self))}

    def checkpoint(self, query: str) -> str:
        """The checkpoint of a query."""
        return f"{self.folder}/{query}"

    def drawn(self, *what: object) -> float:
        """A number from 0 to 1, the same for the same arguments."""
        digest = hashlib.sha256(repr((self.seed, *what)).encode()).digest()
        return int.from_bytes(digest[:7], "big") / 2**56

    def is_over(self, point: str, query: str, epoch: int) -> bool:
        """Return whether the process is killed at a point of an epoch."""
        return (self.point, self.query) == (point, query) and epoch >= self.epoch


def kill_everything(life: Life) -> NoReturn:
    """Kill the JVM, the driver's Python process, and this one."""
    processes = [int(process) for process in Path(life.folder, "processes").read_text(encoding="utf-8").split()]
    for process in (*processes, os.getpid()):
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    raise AssertionError("it is dead")


def added_up(a: int, b: int) -> int:
    """The merge of ``total``; the process that merges may be killed in it."""
    if _LIFE in os.environ and not in_driver and TaskContext.get() is None:
        life = Life.here()
        committed = os.path.exists(f"{life.checkpoint(life.query)}/commits/{life.epoch}")  # noqa: PTH110 (of text)
        if committed and life.point == BEFORE_MERGING:
            kill_everything(life)
        if committed and life.point == AFTER_MERGING:
            # The next call removes what was merged.
            setattr(type(transport_at(life.transport)), "remove", lambda *_: kill_everything(life))  # noqa: B010 (mypy)
    return a + b


@dataclass(frozen=True)
class Variables:
    """The three variables."""

    limit: SharedVariable
    total: SharedVariable
    tally: SharedVariable

    @classmethod
    def declared(cls, life: Life) -> Variables:
        """Declare the variables, or use those that are declared."""
        store, transport = f"{life.folder}/store", life.transport
        return cls(
            ss.shared(store, "limit", "double", init=0.0, transport=transport),
            ss.shared(store, "total", "bigint", init=0, merge=added_up, transport=transport),
            ss.shared(store, "tally", "map<string, bigint>", merge="sum", transport=transport),
        )

    def all(self) -> tuple[SharedVariable, ...]:
        """All three."""
        return self.limit, self.total, self.tally

    def seen(self) -> dict[str, Any]:
        """The versions and values that this task sees."""
        tally = self.tally.get()
        return {
            "versions": {variable.name: variable.version for variable in self.all()},
            "values": [self.limit.get(), self.total.get(), len(tally), sum(tally.values())],
        }


@dataclass(frozen=True)
class Attempt:
    """An attempt of a task: where it is, and what becomes of it."""

    life: Life
    query: str
    run: int
    epoch: int
    partition: int
    number: int
    fate: str

    @classmethod
    def here(cls, life: Life, query: str) -> Attempt:
        """This attempt."""
        context = TaskContext.get()
        assert context is not None
        epoch, partition = int(context.getLocalProperty("streaming.sql.batchId") or -1), context.partitionId()
        run = json.loads(context.getLocalProperty("streamstate.shared") or "{}")["number"]
        fate, drawn = "", life.drawn(query, run, epoch, partition)
        if query in QUERIES and not context.attemptNumber() and drawn < life.failing:
            fate = FATES[int(drawn / life.failing * len(FATES))]
        return cls(life, query, run, epoch, partition, context.attemptNumber(), fate)

    def write_down(self, **what: Any) -> None:
        """Add a line to what tasks have seen, whole or not at all."""
        told = {name: value for name, value in asdict(self).items() if name != "life"}
        line = json.dumps(told | what) + "\n"
        file = os.open(f"{self.life.folder}/seen", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(file, line.encode())
        os.close(file)

    def fail(self, when: str) -> None:
        """Fail, or be killed, if it is time."""
        if not self.fate.endswith(when):
            return
        self.write_down()
        if "killed" in self.fate:
            os.kill(os.getpid(), signal.SIGKILL)
        raise Failure(self.fate)


def frame_of(spark: SparkSession, life: Life, variables: Variables, query: str, *, counted: bool) -> DataFrame:
    """A query of two operators in a task: one adds, the next sees it end. If ``counted``, it keeps state."""

    def adding(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        attempt = Attempt.here(life, query)
        attempt.write_down(**variables.seen())
        for rows in batches:
            task = f"{query}/{attempt.epoch}/{attempt.partition}"
            variables.total.add(-1_000_000 if attempt.fate else sum(rows.column("value").to_pylist()))
            variables.tally.add({"wrong" if attempt.fate else task: 1})
            attempt.fail("before it stages")
            yield rows.select(["value"])

    def ending(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        # Now the operator before has staged what it added.
        attempt = Attempt.here(life, query)
        attempt.write_down(**variables.seen())
        attempt.fail("after it staged")
        if life.is_over(AFTER_STAGING, query, attempt.epoch):
            kill_everything(life)

    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS)
    rows = source.option("numPartitions", PARTITIONS).load()
    found = rows.mapInArrow(adding, "value long").mapInArrow(ending, "value long")
    return found.groupBy((found["value"] % 3).alias("k")).count() if counted else found
