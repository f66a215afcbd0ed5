"""A query that is played: its checkpoint and the hook that binds its epochs are real; Spark is not there."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import streamstate as ss
from streamstate.operations.policies.admission import Admission
from streamstate.operations.policies.decision import Decision, Levers, Observed
from streamstate.operations.policies.runtime import Controller, QueryLevers, Rules
from streamstate.snapshots.checkpoint.bindings import Binding, Version, binding_in_log
from streamstate.snapshots.spark.read_limits import LimitedSource
from streamstate.snapshots.store.control_table import Control
from streamstate.snapshots.store.epoch_load import EpochLoad, SourceLoad
from streamstate.snapshots.store.layout import Layout
from streamstate.variables.decided_epochs import DecidedEpochs
from streamstate.variables.epoch_binding import (
    BRANCHES,
    CHECKPOINT,
    PARENT,
    SERVED,
    TRANSPORT,
    SharedReader,
)
from streamstate.variables.transports.addresses import transport_at

QUERY_ID = "0d1e7f3c-6f0b-4c39-9a0e-2b1d6f0b4c39"
LEVEL = "q_level_shed"


@dataclass(frozen=True)
class MadePolicy:
    """A policy of one number, which contradicts a long trigger."""

    latency: float
    extra: str = ""

    def text(self) -> str:
        """Return it as JSON."""
        return json.dumps({"latency": self.latency, "extra": self.extra})

    @classmethod
    def of(cls, text: str) -> MadePolicy:
        """Return the policy in a text."""
        return cls(**json.loads(text))

    def notes(self, levers: Levers) -> Sequence[str]:
        """Say nothing."""
        return ()

    def contradictions(self, levers: Levers) -> Sequence[str]:
        """Refuse a latency below the trigger."""
        return [] if self.latency >= levers.trigger else [f"latency {self.latency} is below the trigger."]


def load_of(progress: Mapping[str, Any]) -> EpochLoad:
    """Return the load of a report."""
    rows = tuple(SourceLoad("source", source["numInputRows"]) for source in progress["sources"])
    return EpochLoad(progress["durationMs"]["triggerExecution"] / 1000, sources=rows)


def decide(
    policy: MadePolicy, observed: Sequence[Observed], levers: Levers, past: Sequence[Decision]
) -> Iterable[Decision]:
    """Keep half of what was kept after each third epoch, then all again; limit rows after each fifth."""
    epoch = observed[-1].epoch
    if levers.can_shed and epoch % 3 == 2:
        after = 1.0 if levers.kept < 0.3 else levers.kept / 2
        yield Decision("shedding", levers.kept, after, holds=after > 0.4, reason=f"epoch {epoch}", needs="more cores")
    if levers.can_limit and epoch % 5 == 4:
        after_rows = None if levers.rows is not None else 100.0 + epoch
        yield Decision("admission", levers.rows, after_rows, holds=True, reason=f"epoch {epoch}")


RULES = Rules(MadePolicy.of, decide, lambda _policy, kept, _newest: round(kept * 10_000), load_of)


@dataclass
class MadeLimits:
    """The limits of a source that counts rows; Spark is planning whenever ``planning`` says so."""

    planning: Callable[[], bool] = lambda: False
    limit: int | None = None

    def sources(self) -> list[LimitedSource]:
        """Return the one source."""
        return [LimitedSource("made", "rows", None)]

    def set(self, limits: Sequence[int | None]) -> bool:
        """Set the limit."""
        [self.limit] = limits
        return not self.planning()


@dataclass
class MadeQuery:
    """A query that is played epoch by epoch, and what its controller is made of.

    Attributes:
        folder: the folder of its store and checkpoint.
        rules: what decides.
        levels: the level that each committed epoch was bound to, by its version's value.
    """

    folder: Path
    rules: Rules = RULES
    limits: MadeLimits = field(default_factory=MadeLimits)
    reached: Callable[[str], object] = lambda _point: None
    levels: dict[int, int] = field(default_factory=dict)
    limited: dict[int, int | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.store, self.checkpoint = str(self.folder / "store"), self.folder / "checkpoint"
        for name in ("offsets", "commits"):
            (self.checkpoint / name).mkdir(parents=True, exist_ok=True)
        (self.checkpoint / "metadata").write_text(json.dumps({"id": QUERY_ID}))
        self.level = ss.shared(self.store, "q_level", "bigint", init=10_000)
        options = {
            CHECKPOINT: str(self.checkpoint),
            BRANCHES: json.dumps({"q_level": ""}),
            PARENT: "",
            TRANSPORT: self.level.transport,
            SERVED: "",
        }
        self.reader = SharedReader([self.level.declaration], options)
        self.controller = self.born()

    def born(self) -> Controller:
        """Return a controller as a new process makes it: from the store, and nothing else."""
        level = ss.shared(self.store, "q_level")
        levers = QueryLevers(
            "q",
            level,
            Admission(lambda: self.limits),
            DecidedEpochs(transport_at(level.transport), QUERY_ID),
            lambda: 2,
        )
        control = Control(Layout.at(self.store), "q")
        return Controller(control, self.rules, levers, self.committed, self.begun, self._reached)

    def _reached(self, point: str) -> None:
        self.reached(point)

    def committed(self) -> int:
        """Return the newest committed epoch."""
        return max((int(path.name) for path in (self.checkpoint / "commits").iterdir()), default=-1)

    def begun(self) -> int:
        """Return the newest planned epoch."""
        return max((int(path.name) for path in (self.checkpoint / "offsets").iterdir()), default=-1)

    def plan(self) -> None:
        """Plan the next epoch: bind it, and write its offsets, unless they are there."""
        epoch = self.committed() + 1
        path = self.checkpoint / "offsets" / str(epoch)
        if not path.exists():
            self.limited[epoch] = self.limits.limit
            offset = self.reader.latestOffset(self._offset(epoch - 1))
            path.write_text("\n".join(["v1", "{}", json.dumps(offset)]))

    def commit(self) -> dict[str, Any]:
        """Commit the epoch that is planned, and return Spark's report on it."""
        epoch = self.committed() + 1
        offset = self._offset(epoch)
        assert offset is not None
        version = Binding.of_offset(offset).versions["q_level"]
        assert isinstance(version, Version)
        assert version.number is not None
        self.levels[epoch] = self.level.log.value(version.number)
        (self.checkpoint / "commits" / str(epoch)).write_text("v1\n{}")
        return {
            "batchId": epoch,
            "timestamp": f"2026-01-01T00:{epoch // 60 % 60:02}:{epoch % 60:02}.000Z",
            "durationMs": {"triggerExecution": 300, "addBatch": 200},
            "sources": [
                {"description": "made", "numInputRows": 1000, "endOffset": "{}"},
                {"numInputRows": 0, "endOffset": offset, "description": "binding"},
            ],
        }

    def _offset(self, epoch: int) -> dict[str, Any] | None:
        path = self.checkpoint / "offsets" / str(epoch)
        binding = binding_in_log(path.read_text()) if path.exists() else None
        return None if binding is None else binding.offset()
