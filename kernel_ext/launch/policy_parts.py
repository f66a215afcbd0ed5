"""The parts of a controller: the rules, the levels of shedding, the loads, and the rescaling of a running query."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, partial
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
    from streamstate.snapshots.store.epoch_load import EpochLoad
    from streamstate.state_inspect import History

_EPOCHS = 5
"""The epochs in which a bottleneck is looked for."""


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

    def rescale(self, partitions: int) -> object:
        """Give it another number of partitions."""


def rules_of(running: RunsHere) -> Rules:
    """Return the parts of the controller of a running query."""
    return Rules(Policy.of, partial(_decided, running), _level, load_of, running.rescale)


def _decided(
    running: RunsHere, policy: Policy, observed: Sequence[Observed], levers: Levers, past: Sequence[Decision]
) -> tuple[Decision, ...]:
    return decide(policy, observed, levers, past=past, bottleneck=_Bottleneck(running, observed, levers.cores))


class _Bottleneck:
    """The bottleneck of a query, which is looked for when the rules first ask for it: only if it is in trouble."""

    def __init__(self, running: RunsHere, observed: Sequence[Observed], cores: int) -> None:
        self._running = running
        self._recent = [epoch for epoch in observed if epoch.load.rows and not epoch.first][-_EPOCHS:]
        self._cores = cores

    @property
    def kind(self) -> str | None:
        return self._found.kind

    @property
    def helps(self) -> bool:
        return self._found.helps

    @property
    def reason(self) -> str:
        return self._found.reason

    @cached_property
    def _found(self) -> Bottleneck:
        loads = [self._with_tasks(epoch) for epoch in self._recent]
        newest = self._recent[-1] if self._recent else None
        if newest is None:
            return bottleneck_of(loads, self._cores)
        heavy = keys_of_epoch(self._running.history, newest.epoch, newest.load.rows)
        return bottleneck_of(loads, self._cores, heavy=heavy)

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
