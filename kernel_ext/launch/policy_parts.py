"""The parts of a controller: the rules, the levels of shedding, the loads, and the rescaling of a running query."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from streamstate.operations.policies.bottleneck import Bottleneck, bottleneck_of, keys_of_epoch
from streamstate.operations.policies.controller_rules import decide
from streamstate.operations.policies.policy import Policy
from streamstate.operations.policies.runtime import Rules
from streamstate.snapshots.capture.spark_load import load_of, with_tasks
from streamstate.variables.shedding.level_for import level_for

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from streamstate.operations.policies.decision import Decision, Levers, Observed
    from streamstate.operations.rescaling.rescale import RescaleReport
    from streamstate.snapshots.store.epoch_load import EpochLoad
    from streamstate.state_inspect import History
    from streamstate.state_inspect.inputs.heavy_inputs import HeavyInput

_EPOCHS = 5
"""The epochs in which a bottleneck is looked for."""
_AGAIN = 30.0
"""Seconds after which it is looked for again."""


class RunsHere(Protocol):
    """A query that this process runs: :class:`streamstate.launch.running.Running`."""

    name: str

    @property
    def query(self) -> StreamingQuery | None:
        """Spark's handle of the current run."""

    @property
    def state(self) -> str:
        """Its state."""

    @property
    def history(self) -> History:
        """Its captured epochs."""

    def rescale(self, partitions: int) -> RescaleReport:
        """Give it another number of partitions."""


def rules_of(running: RunsHere) -> Rules:
    """Return the parts of the controller of a running query."""
    bottleneck = _Bottleneck(running)

    def decided(
        policy: Policy, observed: Sequence[Observed], levers: Levers, past: Sequence[Decision]
    ) -> tuple[Decision, ...]:
        return decide(policy, observed, levers, past=past, bottleneck=bottleneck.of(observed, levers.cores))

    return Rules(Policy.of, decided, _level, load_of, lambda partitions: running.rescale(partitions).epoch)


class _Bottleneck:
    """The bottleneck of a query: looked for when the rules ask, because it is in trouble, twice a minute at most.

    Counting keys is a job of Spark, beside the query.
    """

    def __init__(self, running: RunsHere) -> None:
        self._running = running
        self._observed: Sequence[Observed] = ()
        self._cores = 1
        self._known: Bottleneck | None = None
        self._looked = -math.inf

    def of(self, observed: Sequence[Observed], cores: int) -> _Bottleneck:
        """Take note of the last epochs."""
        self._observed, self._cores = observed, cores
        return self

    @property
    def kind(self) -> str | None:
        return self._found.kind

    @property
    def helps(self) -> bool:
        return self._found.helps

    @property
    def reason(self) -> str:
        return self._found.reason

    @property
    def _found(self) -> Bottleneck:
        if self._known is None or time.monotonic() - self._looked > _AGAIN:
            recent = [epoch for epoch in self._observed if epoch.load.rows and not epoch.first][-_EPOCHS:]
            longest = max((epoch.load.seconds for epoch in recent), default=0.0)
            recent = [epoch for epoch in recent if 2 * epoch.load.seconds >= longest]  # not those before an overload
            self._known = bottleneck_of(list(map(self._with_tasks, recent)), self._cores, heavy=self._heavy)
            self._looked = time.monotonic()
        return self._known

    def _heavy(self) -> Sequence[HeavyInput] | None:
        """Return the heaviest keys of the newest epoch that is captured; the one that was committed may not be yet."""
        history = self._running.history
        captured = set(history.recorded.captured())
        newest = next((seen for seen in reversed(self._observed) if seen.load.rows and seen.epoch in captured), None)
        return None if newest is None else keys_of_epoch(history, newest.epoch, newest.load.rows)()

    def _with_tasks(self, epoch: Observed) -> EpochLoad:
        query = self._running.query
        return epoch.load if query is None else with_tasks(epoch.load, query, epoch.epoch)


def _level(policy: Policy | None, kept: float, newest: Observed | None) -> Any:
    """Return the value of the level's variable."""
    if policy is None:
        return level_for(kept=kept)
    shed = None if newest is None else newest.load.shed
    counted = {} if shed is None else shed.intervals
    rows = [counted.get(str(number), 0) for number in range(1, max(map(int, counted), default=0) + 1)]
    return level_for(policy.keep, kept, policy.utility, rows=rows if policy.utility and rows else None)
