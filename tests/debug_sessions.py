"""A debug session without Spark: its epochs are computed and written into a store like captured epochs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
from branch_stores import Branch as Writer
from branch_stores import Row

import streamstate as ss
from streamstate.errors import InvalidSQLError, QueryError
from streamstate.replay.debugging.branches import Branch
from streamstate.replay.stepping.step_report import EpochRun, StepReport
from streamstate.reports import History
from streamstate.snapshots.spark.plan_graph import PlanGraph, PlanNode

TABLES = {"op0": ({"carrier": pa.string(), "origin": pa.string(), "flights": pa.int64(), "max_delay": pa.int64()}, 2)}
CARRIERS, ORIGINS = ("UA", "HA", "DL", "B6", "AA"), ("EWR", "JFK", "LGA")


def state(epoch: int, shift: int = 0) -> dict[str, list[Row]]:
    """The state at an epoch: each epoch changes a third of the keys, and every fourth adds a key."""
    keys = [(carrier, origin) for carrier in CARRIERS for origin in ORIGINS]
    rows = []
    for index, (carrier, origin) in enumerate(keys):
        changes = (epoch + index % 3) // 3
        delay = (index * 37 + changes * 53) % 400 + (shift if carrier == "HA" else 0)
        rows.append({"carrier": carrier, "origin": origin, "flights": 10 * changes, "max_delay": delay})
    rows += [
        {"carrier": f"N{index:02}", "origin": "EWR", "flights": 1, "max_delay": index * 11}
        for index in range(1, epoch // 4 + 1)
    ]
    return {"op0": rows}


def original(path: Path, epochs: int = 16, name: str = "delays") -> None:
    """Write the store of a query."""
    writer = Writer(path, name, TABLES)
    for epoch in range(epochs):
        writer.add(epoch, state(epoch))


class FakeSession:
    """Steps like a real session, over ``delays`` in a store. A test can hold a running step with the gate.

    Args:
        path: the store, written by :func:`original`.
        at: the first epoch of the session.
        epochs: the number of epochs of the original.
        shift: the amount by which changed code shifts the delays of one carrier.
        fails: the epoch at which a step raises.
    """

    def __init__(self, path: Path, at: int, *, epochs: int = 16, shift: int = 0, fails: int | None = None) -> None:
        self.store = str(path)
        self.original = "checkpoint of delays"
        self.gate = threading.Event()
        self.gate.set()
        self.running = threading.Event()
        self._epochs, self._shift, self._fails = epochs, shift, fails
        self._lock = threading.RLock()
        self._branches = [Branch("delays", None, None, epochs - 1, self.original)]
        self._writers: dict[str, Writer] = {}
        self._watched: list[str] = []
        self.last: StepReport | None = None
        self.epoch = at
        self.name = "delays"
        self._begin("what_if", "delays", at)

    @property
    def history(self) -> History:
        """The branch's captured epochs."""
        return ss.open_store(self.store)[self.name]

    @property
    def plan(self) -> PlanGraph | None:
        """A plan with three operators."""
        if self.last is None or not self.last.epochs:
            return None
        nodes = (
            PlanNode(0, "MicroBatchScan", "source", "MicroBatchScan flights", {"numOutputRows": 812}, None, ()),
            PlanNode(1, "StateStoreSave", "state", "StateStoreSave [carrier, origin]", _METRICS, 0, (0,)),
            PlanNode(2, "WriteToDataSourceV2", "sink", "WriteToDataSourceV2 noop", {}, None, (1,)),
        )
        return PlanGraph(self.epoch, nodes)

    def step(self, n: int = 1, *, progress: Callable[[str, float | None], object] | None = None) -> StepReport:
        """Run the next epochs."""
        with self._lock:
            return self._ran(n, "done", lambda _row: False, progress)

    def run_until(self, condition: Any, *, epochs: int = 1_000, progress: Any = None) -> StepReport:
        """Run until a key changes, or ``COLUMN > NUMBER`` holds for a row."""
        with self._lock:
            if isinstance(condition, Mapping):
                key = dict(condition)
                return self._ran(epochs, "done", lambda row: {name: row[name] for name in key} == key, progress)
            try:
                column, _, bound = condition.split()
                least = int(bound)
            except ValueError:
                raise InvalidSQLError(f"{condition!r} is no condition.\nSay COLUMN > NUMBER.") from None
            return self._ran(epochs, "done", lambda row: row[column] > least, progress)

    def back(self, n: int = 1) -> int:
        """Go back."""
        with self._lock:
            return self.goto(self.epoch - n)

    def goto(self, epoch: int, *, progress: Any = None) -> int:
        """Go to an epoch."""
        with self._lock:
            if epoch < 0:
                raise QueryError(f"There is no epoch {epoch}.\nThe oldest is 0.")
            if epoch > self.epoch:
                self.step(epoch - self.epoch, progress=progress)
            self.epoch = epoch
            self.last = self.last if self.last and self.last.epoch == epoch else None
            return self.epoch

    def watch(self, expression: str) -> None:
        """Watch one of the supported expressions."""
        if expression not in _VALUES:
            raise InvalidSQLError(f"{expression!r} cannot be watched.\nThose that can: {', '.join(_VALUES)}.")
        self._watched.append(expression)

    def unwatch(self, expression: str) -> None:
        """Remove a watch."""
        self._watched.remove(expression)

    def watches(self) -> pd.DataFrame:
        """The value of each watch at each epoch."""
        with self._lock:
            rows = [
                {"epoch": epoch, "branch": self.name}
                | {name: _VALUES[name](state(epoch, self._shift)["op0"]) for name in self._watched}
                for epoch in range(self.epoch + 1)
            ]
        return pd.DataFrame(rows, columns=["epoch", "branch", *self._watched])

    def branches(self) -> list[Branch]:
        """The original and the forks."""
        with self._lock:
            return [replace(branch, current=branch.name == self.name) for branch in self._branches]

    def close(self) -> None:
        """Do nothing."""

    def _begin(self, name: str, parent: str, at: int) -> None:
        self._writers[name] = Writer(Path(self.store), name, TABLES, (parent, at))
        self._writers[name].add(at, state(at))
        self._branches.append(Branch(name, parent, at, None, f"checkpoint of {name}"))
        self.name = name

    def _branch(self) -> Branch:
        return next(branch for branch in self._branches if branch.name == self.name)

    def _ran(self, n: int, why: Any, stop: Callable[[Row], bool], progress: Any) -> StepReport:
        if self._branch().newest not in (None, self.epoch):
            self._begin(f"what_if_{len(self._branches)}", self.name, self.epoch)
        runs: list[EpochRun] = []
        reason = f"Ran {n} epoch{'s' * (n > 1)}."
        for done in range(n):
            self._report(progress, done, n)
            if self.epoch + 1 >= self._epochs:
                why, reason = "end", f"The original has no epoch after {self.epoch}."
                break
            if self.epoch + 1 == self._fails:
                raise QueryError(f"Epoch {self._fails} failed: division by zero\nin your function\nat line 3")
            before = {repr(row) for row in state(self.epoch, self._shift)["op0"]}
            self.epoch += 1
            rows = state(self.epoch, self._shift)
            self._writers[self.name].add(self.epoch, rows)
            index = self._branches.index(self._branch())
            self._branches[index] = replace(self._branch(), newest=self.epoch)
            watermark = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=self.epoch)
            runs.append(EpochRun(self.epoch, 0.25, 812, watermark))
            if any(stop(row) for row in rows["op0"] if repr(row) not in before):
                why, reason = "breakpoint", f"The condition holds after epoch {self.epoch}."
                break
        self.last = StepReport(f"checkpoint of {self.name}", tuple(runs), self.epoch, why, reason)
        return self.last

    def _report(self, progress: Any, done: int, n: int) -> None:
        """Report the progress, repeatedly while the gate is closed."""
        self.running.set()
        while True:
            if progress is not None:
                progress(f"epoch {self.epoch + 1}", done / n)
            if self.gate.wait(0.01):
                return


_METRICS = {"numTotalStateRows": 18, "numUpdatedStateRows": 5, "numRemovedStateRows": 0, "commitTimeMs": 12}
_VALUES: dict[str, Callable[[list[Row]], Any]] = {
    "max(max_delay)": lambda rows: max(row["max_delay"] for row in rows),
    "count(*)": len,
    "max(carrier)": lambda rows: max(row["carrier"] for row in rows),
}
