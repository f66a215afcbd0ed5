"""The load policy of a running query: declared in the store, kept by a controller beside the query."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from streamstate.errors import InvalidArgumentError, QueryError, SparkConnectError, StreamStateError, first_line
from streamstate.launch.policy_parts import RunsHere, rules_of
from streamstate.operations.policies.admission import Admission, Limits
from streamstate.operations.policies.decision import Levers
from streamstate.operations.policies.runtime import Controller, ControllerThread, LoadPolicy, QueryLevers, Rules
from streamstate.snapshots.calls.checks import duration
from streamstate.snapshots.checkpoint.bindings import LEVEL
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.checkpoint.file_source_log import entries
from streamstate.snapshots.checkpoint.source_offsets import file_batch
from streamstate.snapshots.spark.epoch_reports import reports_after
from streamstate.snapshots.spark.read_limits import ReadLimits
from streamstate.snapshots.spark.session import StreamStateWarning
from streamstate.snapshots.store.control_table import Control, InForce, in_force, policy_words
from streamstate.variables.query_with_variables import planned_before

if TYPE_CHECKING:
    from streamstate.launch.launch import Launch
    from streamstate.snapshots.store.layout import Layout
    from streamstate.variables.shared_variable import SharedVariable

_GOING = ("running", "restarting")


class RunningPolicy:
    """The policy of one running query, with the thread that keeps it, if there is one.

    Args:
        running: the query.
        launch: what it was started with.
        layout: its store.
    """

    def __init__(self, running: RunsHere, launch: Launch, layout: Layout) -> None:
        self._running = running
        self._launch = launch
        self.control = Control(layout, running.name)
        self._checkpoint = CheckpointFiles(launch.checkpoint, launch.classic_session)
        self._limits: tuple[object, ReadLimits] | None = None
        self._known_partitions: tuple[object, int] | None = None
        self._controller: Controller | None = None
        self._thread: ControllerThread | None = None
        self._rules: Rules | None = None
        self._error: str | None = None
        try:
            self._continue()
        except StreamStateError as error:  # the query runs all the same
            self._error = f"The policy of {running.name} is not kept: {first_line(error)}"

    @property
    def in_force(self) -> InForce:
        """The policy and the positions of the levers that the rows call for."""
        return in_force(self.control.rows())

    def words(self) -> str | None:
        """Return in words if the policy holds, without asking the store; None if there is none."""
        return None if self._thread is None else policy_words(in_force(self.control.known))

    @property
    def error(self) -> str | None:
        """The reason if decisions cannot be made or written at the moment."""
        return self._error if self._thread is None else self._thread.error

    def get(self) -> Any:
        """Return the policy; None if there is none."""
        policy = self.in_force.policy
        return None if policy is None else self.rules.read(policy.text)

    def set(self, policy: LoadPolicy | None) -> None:
        """Put a policy in force from the next epoch on; None ends it."""
        if policy is not None:
            for note in check_policy(policy, self._launch):
                warnings.warn(note, StreamStateWarning, stacklevel=3)
        if policy is None and self.in_force.policy is None:
            return
        self._running_controller().declare(policy)
        if policy is None:
            self.stop()
        elif self._thread is None:
            self._begin()

    def stop(self) -> None:
        """Decide no more in this process; the policy stays in force for the next start."""
        if self._thread is not None:
            self._thread.stop()
            self._thread = None

    @property
    def rules(self) -> Rules:
        """The rules that decide."""
        if self._rules is None:
            rules = rules_of(self._running)
            self._rules = replace(rules, rescale=None) if self._launch.sink.needs_every_epoch else rules
        return self._rules

    def _continue(self) -> None:
        """Continue with the policy of the store, or with what ending it has left undone."""
        known = self.in_force
        if known.policy is not None:
            self._begin()
        elif known.kept_by is not None or known.rows_by is not None:
            self._running_controller().begin_run()

    def _begin(self) -> None:
        self.control.merge_files()
        running = self._running
        self._thread = ControllerThread(
            self._running_controller(), lambda: running.query, reports_after, lambda: running.state in _GOING
        )

    def _running_controller(self) -> Controller:
        if self._controller is None:
            self._controller = Controller(self.control, self.rules, self._levers(), self._committed, self._begun)
        return self._controller

    def _levers(self) -> QueryLevers:
        from streamstate.variables.decided_epochs import DecidedEpochs
        from streamstate.variables.transports.addresses import transport_at

        shared = self._launch.shared
        decided = None
        if shared:
            decided = DecidedEpochs(transport_at(shared[0].transport), self._checkpoint.query_id)
        return QueryLevers(
            self._running.name,
            level_of(shared),
            Admission(self._read_limits, self._files_read),
            decided,
            self._partitions,
            self._launch.frame.sparkSession.sparkContext.defaultParallelism,
            trigger_seconds(self._launch.trigger),
        )

    def _read_limits(self) -> Limits | None:
        query = self._running.query
        if query is None:
            return None
        if self._limits is None or self._limits[0] is not query:
            self._limits = query, ReadLimits(self._launch.frame.sparkSession, query, binds=bool(self._launch.shared))
        return self._limits[1]

    def _committed(self) -> int:
        return max(self._checkpoint.committed(), default=-1)

    def _begun(self) -> int:
        return max(self._checkpoint.begun(), default=-1)

    def _partitions(self) -> int:
        """Return the number of the state's partitions, which is fixed within a run."""
        query = self._running.query
        if self._known_partitions is not None and self._known_partitions[0] is query:
            return self._known_partitions[1]
        if (planned := _planned_partitions(self._launch)) is not None:
            self._known_partitions = query, planned
        return planned or _first_partitions(self._launch)

    def _files_read(self, place: int, source: Mapping[str, Any]) -> int | None:
        """Return how many files a source read in an epoch, as its log in the checkpoint lists them."""
        batch = file_batch(source.get("endOffset"))
        folder = f"{self._checkpoint.path}/sources/{place}"
        texts = (self._checkpoint.files.text(f"{folder}/{batch}{ending}") for ending in ("", ".compact"))
        text = None if batch is None else next((text for text in texts if text is not None), None)
        return None if text is None else sum(entry.get("batchId") == batch for entry in entries(text))


def check_policy(policy: LoadPolicy, launch: Launch) -> Sequence[str]:
    """Refuse a policy that does not fit a query; return what else to know of it.

    Raises:
        SparkConnectError: a Spark Connect server runs the query.
        QueryError: the policy contradicts itself, or the query.
    """
    if launch.on_connect:
        raise SparkConnectError.needs_classic()
    levers = Levers(
        partitions=_planned_partitions(launch) or _first_partitions(launch),
        cores=launch.frame.sparkSession.sparkContext.defaultParallelism,
        can_shed=level_of(launch.shared) is not None,
        can_rescale=not launch.sink.needs_every_epoch,
        trigger=trigger_seconds(launch.trigger),
    )
    if not callable(getattr(policy, "contradictions", None)):
        raise InvalidArgumentError(f"Invalid policy {policy!r}: expected a policy, such as ss.Policy(latency='5s').")
    if found := policy.contradictions(levers):
        raise QueryError("\n".join([f"The policy does not fit {launch.name}:", *found]))
    return policy.notes(levers)


def level_of(shared: tuple[SharedVariable, ...]) -> SharedVariable | None:
    """Return the variable of a query's shedding level; None if the query sheds nothing."""
    return next((variable for variable in shared if variable.name.endswith(LEVEL)), None)


def trigger_seconds(trigger: str | None) -> float:
    """Return the seconds between two triggers; 0: epochs follow each other as data arrives."""
    interval = duration(trigger or "")
    return 0.0 if interval is None else interval.total_seconds()


def _planned_partitions(launch: Launch) -> int | None:
    """Return the number of partitions that a query goes on with; None if it begins."""
    planned = planned_before(launch.checkpoint, launch.frame.sparkSession)
    return None if planned is None else planned.partitions


def _first_partitions(launch: Launch) -> int:
    """Return the number of partitions that a query begins with."""
    return launch.partitions or int(launch.frame.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1)
