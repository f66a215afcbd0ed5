"""A debugging session without Spark: its epochs are computed and written into a store as a capture would."""

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
from streamstate.debugger.report import EpochRun, StepReport
from streamstate.debugger.session import Branch
from streamstate.snapshots.errors import InvalidSQLError, QueryError
from streamstate.snapshots.plan_graph import PlanGraph, PlanNode

TABLES = {"op0": ({"carrier": pa.string(), "origin": pa.string(), "flights": pa.int64(), "max_delay": pa.int64()}, 2)}
CARRIERS, ORIGINS = ("UA", "HA", "DL", "B6", "AA"), ("EWR", "JFK", "LGA")


def state(epoch: int, shift: int = 0) -> dict[str, list[Row]]:
    """The state at an epoch: a third of the keys change in each, one is new every fourth."""
    keys = [(carrier, origin) for carrier in CARRIERS for origin in ORIGINS]
    rows = []
    for at, (carrier, origin) in enumerate(keys):
        turns = (epoch + at % 3) // 3
        delay = (at * 37 + turns * 53) % 400 + (shift if carrier == "HA" else 0)
        rows.append({"carrier": carrier, "origin": origin, "flights": 10 * turns, "max_delay": delay})
    rows += [
        {"carrier": f"N{at:02}", "origin": "EWR", "flights": 1, "max_delay": at * 11} for at in range(1, epoch // 4 + 1)
    ]
    return {"op0": rows}


def original(path: Path, epochs: int = 16, name: str = "delays") -> None:
    """The store of a query with some epochs."""
    writer = Writer(path, name, TABLES)
    for epoch in range(epochs):
        writer.add(epoch, state(epoch))


class FakeSession:
    """Steps as a session does, over ``delays`` in a store; a gate lets a test hold a step while it runs.

    Args:
        path: the store, as :func:`original` wrote it.
        at: the epoch to begin at.
        epochs: how many the original has.
        shift: how much another code would change the delays of one carrier.
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
    def history(self) -> ss.History:
        """The branch's captured epochs."""
        return ss.open_store(self.store)[self.name]

    @property
    def plan(self) -> PlanGraph | None:
        """Three operators."""
        if self.last is None or not self.last.epochs:
            return None
        nodes = (
            PlanNode(0, "MicroBatchScan", "source", "MicroBatchScan flights", {"numOutputRows": 812}, None, ()),
            PlanNode(1, "StateStoreSave", "state", "StateStoreSave [carrier, origin]", _FIGURES, 0, (0,)),
            PlanNode(2, "WriteToDataSourceV2", "sink", "WriteToDataSourceV2 noop", {}, None, (1,)),
        )
        return PlanGraph(self.epoch, nodes)

    def step(self, n: int = 1, *, progress: Callable[[str, float | None], object] | None = None) -> StepReport:
        """Run the next epochs."""
        with self._lock:
            return self._ran(n, "done", lambda _row: False, progress)

    def run_until(self, condition: Any, *, epochs: int = 1_000, progress: Any = None) -> StepReport:
        """Run on until a key changes, or ``COLUMN > NUMBER`` holds of a row."""
        with self._lock:
            if isinstance(condition, Mapping):
                wanted = dict(condition)
                return self._ran(epochs, "done", lambda row: {name: row[name] for name in wanted} == wanted, progress)
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
        """Watch one of those that it can compute."""
        if expression not in _VALUES:
            raise InvalidSQLError(f"{expression!r} cannot be watched.\nThose that can: {', '.join(_VALUES)}.")
        self._watched.append(expression)

    def unwatch(self, expression: str) -> None:
        """Watch it no longer."""
        self._watched.remove(expression)

    def watches(self) -> pd.DataFrame:
        """Their values."""
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
            return [replace(one, current=one.name == self.name) for one in self._branches]

    def close(self) -> None:
        """Nothing."""

    def _begin(self, name: str, parent: str, at: int) -> None:
        self._writers[name] = Writer(Path(self.store), name, TABLES, (parent, at))
        self._writers[name].add(at, state(at))
        self._branches.append(Branch(name, parent, at, None, f"checkpoint of {name}"))
        self.name = name

    def _branch(self) -> Branch:
        return next(one for one in self._branches if one.name == self.name)

    def _ran(self, n: int, why: Any, stop: Callable[[Row], bool], progress: Any) -> StepReport:
        if self._branch().newest not in (None, self.epoch):
            self._begin(f"what_if_{len(self._branches)}", self.name, self.epoch)
        runs: list[EpochRun] = []
        reason = f"Ran {n} epoch{'s' * (n > 1)}."
        for at in range(n):
            self._told(progress, at, n)
            if self.epoch + 1 >= self._epochs:
                why, reason = "end", f"The original has no epoch after {self.epoch}."
                break
            if self.epoch + 1 == self._fails:
                raise QueryError(f"Epoch {self._fails} failed: division by zero\nin your function\nat line 3")
            before = {repr(row) for row in state(self.epoch, self._shift)["op0"]}
            self.epoch += 1
            rows = state(self.epoch, self._shift)
            self._writers[self.name].add(self.epoch, rows)
            at_branch = self._branches.index(self._branch())
            self._branches[at_branch] = replace(self._branch(), newest=self.epoch)
            watermark = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=self.epoch)
            runs.append(EpochRun(self.epoch, 0.25, 812, watermark))
            if any(stop(row) for row in rows["op0"] if repr(row) not in before):
                why, reason = "breakpoint", f"The condition holds after epoch {self.epoch}."
                break
        self.last = StepReport(f"checkpoint of {self.name}", tuple(runs), self.epoch, why, reason)
        return self.last

    def _told(self, progress: Any, at: int, n: int) -> None:
        """Say how far it is, and wait at the gate, saying it again and again."""
        self.running.set()
        while True:
            if progress is not None:
                progress(f"epoch {self.epoch + 1}", at / n)
            if self.gate.wait(0.01):
                return


_FIGURES = {"numTotalStateRows": 18, "numUpdatedStateRows": 5, "numRemovedStateRows": 0, "commitTimeMs": 12}
_VALUES: dict[str, Callable[[list[Row]], Any]] = {
    "max(max_delay)": lambda rows: max(row["max_delay"] for row in rows),
    "count(*)": len,
    "max(carrier)": lambda rows: max(row["carrier"] for row in rows),
}
