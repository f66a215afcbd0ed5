"""The parts of a controller: the rules, the levels of shedding, the loads, and the rescaling of a running query."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from streamstate.operations.policies.bottleneck import Bottleneck, bottleneck_of, keys_of_epoch
from streamstate.operations.policies.controller_rules import decide
from streamstate.operations.policies.policy import Policy
from streamstate.operations.policies.runtime import Rules
from streamstate.snapshots.capture.spark_load import load_of, with_tasks
from streamstate.variables.shedding.level_for import level_for

if TYPE_CHECKING:
    from streamstate.launch.running import Running
    from streamstate.operations.policies.decision import Decision, Levers, Observed
    from streamstate.snapshots.store.epoch_load import EpochLoad
    from streamstate.state_inspect.inputs.heavy_inputs import HeavyInput

_EPOCHS = 5
"""The epochs in which a bottleneck is looked for."""


def rules_of(running: Running) -> Rules:
    """Return the parts of the controller of a running query."""
    return Rules(
        Policy.of, partial(_decided, running), _level, load_of, lambda partitions: running.rescale(partitions).epoch
    )


def _decided(
    running: Running, policy: Policy, observed: Sequence[Observed], levers: Levers, past: Sequence[Decision]
) -> tuple[Decision, ...]:
    return decide(policy, observed, levers, past=past, bottleneck=_Bottleneck(running, observed, levers.cores))


class _Bottleneck:
    """The bottleneck of a query, which is looked for when the rules first ask for it: only if it is in trouble."""

    def __init__(self, running: Running, observed: Sequence[Observed], cores: int) -> None:
        self._running = running
        self._reading = [epoch for epoch in observed if epoch.load.rows]
        self._recent = [epoch for epoch in self._reading if not epoch.first][-_EPOCHS:]
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
        return bottleneck_of(loads, self._cores, heavy=self._heavy)

    def _heavy(self) -> Sequence[HeavyInput] | None:
        """Return the heaviest keys of the newest epoch that is captured; the one that was committed may not be yet."""
        history = self._running.history
        captured = set(history.recorded.captured())
        newest = next((seen for seen in reversed(self._reading) if seen.epoch in captured), None)
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
