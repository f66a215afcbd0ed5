"""The controller of a running query: hears of each committed epoch, has the rules decide, writes it down, then acts.

A decision is a fact before it acts: a row of the store's table ``_control`` first, then a version of the level's
variable, which the next epoch binds, or a limit of the sources. So a controller that is killed in between finds in the
rows what should be in force, and in the bindings what is.
"""

from __future__ import annotations

import json
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Protocol

from streamstate.errors import StreamStateError, first_line
from streamstate.operations.policies.admission import Admission
from streamstate.operations.policies.decision import FIRST, Decision, Levers, Observed
from streamstate.snapshots.capture.background import BackgroundThread
from streamstate.snapshots.checkpoint.bindings import bound_version
from streamstate.snapshots.store.control_table import (
    ACTED,
    ADMISSION,
    DECISION,
    NONE,
    POLICY,
    RESCALE,
    SHEDDING,
    Control,
    ControlRow,
    InForce,
    in_force,
)
from streamstate.snapshots.store.epoch_load import EpochLoad
from streamstate.variables.decided_epochs import LONGEST_WAIT, DecidedEpochs, Mark
from streamstate.variables.shared_variable import SharedVariable

_WINDOW = 600
"""The epochs that the rules see at most."""
_BUSY = 10
"""After a decision, so many epochs wait for the next as long as they may; later ones for half a percent of one."""
_SHARE = 0.005
_LOOK = 0.5
"""Seconds between two looks at whether the query still runs."""
_SLEEP, _LEAST, _MOST = 0.7, 0.005, 0.1
"""The thread sleeps for most of an epoch, or half a second; then it looks every hundredth of one, within bounds."""


class LoadPolicy(Protocol):
    """A policy, as the controller needs it."""

    def text(self) -> str:
        """Return the policy as the store keeps it."""

    def contradictions(self, levers: Levers) -> Sequence[str]:
        """Return why the policy cannot be meant for a query; empty if it can."""

    def notes(self, levers: Levers) -> Sequence[str]:
        """Return what else to know of the policy with a query."""


@dataclass(frozen=True)
class Rules:
    """The functions that a controller uses.

    Attributes:
        read: parses a policy's text.
        decide: decides, given the policy, the last epochs, the levers, and the decisions since there is a policy.
        level: the value of the level's variable, given the policy (None: there is none), the share that is kept, and
            the newest epoch (None: unknown).
        load: the load of an epoch, given Spark's report.
        rescale: changes the number of partitions, and returns the first epoch with it once the query runs again; None:
            it cannot be changed.
    """

    read: Callable[[str], LoadPolicy]
    decide: Callable[[Any, Sequence[Observed], Levers, Sequence[Decision]], Iterable[Decision]]
    level: Callable[[Any, float, Observed | None], Any]
    load: Callable[[Mapping[str, Any]], EpochLoad]
    rescale: Callable[[int], int] | None = None


@dataclass
class QueryLevers:
    """The levers of one query, as the controller moves them.

    Attributes:
        name: the query's name in the store.
        level: the variable of its shedding level; None: it sheds nothing.
        admission: the read limits of its run.
        decided: where the planning of the next epoch looks for the newest decision; None: it has no shared variables.
        partitions: returns the number of its state's partitions.
        cores: the tasks that run at once.
        trigger: seconds between two triggers; 0: as data arrives.
    """

    name: str
    level: SharedVariable | None
    admission: Admission
    decided: DecidedEpochs | None
    partitions: Callable[[], int]
    cores: int = 1
    trigger: float = 0.0


@dataclass
class Controller:
    """Decides and acts, an epoch after another. Safe from any thread.

    Attributes:
        control: the rows of the query's policies and decisions.
        rules: what decides.
        query: the query's levers.
        committed, begun: return the newest epoch that is committed, and the newest that is planned; −1: there is none.
        reached: called with the name of each point at which a kill must do no harm.
    """

    control: Control
    rules: Rules
    query: QueryLevers
    committed: Callable[[], int]
    begun: Callable[[], int]
    reached: Callable[[str], object] = lambda _point: None
    failed: str | None = None
    """The error of the last rescale in one line; None if it did not fail."""
    _seen: deque[Observed] = field(default_factory=lambda: deque(maxlen=_WINDOW))
    _in_run: int = 0
    _warm_from: datetime = field(default_factory=lambda: datetime.now(UTC))
    _quiet: int = _BUSY
    _lock: threading.RLock = field(default_factory=threading.RLock)

    @property
    def in_force(self) -> InForce:
        """The policy and the positions of the levers that the rows call for."""
        return in_force(self.control.rows())

    def begin_run(self) -> None:
        """Bring a run that begins to what the rows say: what a kill has left undone is done now."""
        with self._lock:
            self._in_run = 0
            self._seen.clear()
            known = self.in_force
            if known.policy is None:
                self._reset(known, self.committed())
                return
            if known.kept_by is not None and self._level_by() != known.kept_by.by:
                self._move(known.kept_by)
            if known.rows_by is not None:
                self._move(known.rows_by)
            if (rescaled := known.rescale_by) is not None and self.query.partitions() == rescaled.after:
                self._acted(rescaled, self.committed() + 1)
            self._publish(self.committed())

    def declare(self, policy: LoadPolicy | None) -> ControlRow | None:
        """Put a policy in force from the next epoch on; None ends it, and moves the levers back.

        Returns:
            The policy's row; None if it is in force already.
        """
        with self._lock:
            text, epoch = "" if policy is None else policy.text(), self.committed()
            planned = max(epoch, self.begun())

            def row(known: tuple[ControlRow, ...]) -> ControlRow | None:
                now = in_force(known).policy
                same = text == ("" if now is None else now.text)
                return None if same else ControlRow(POLICY, planned, inputs={"policy": text})

            declared = self.control.append(row)
            self.reached("declared")
            rows = self.control.rows()
            known = in_force(rows)
            if known.policy is None:
                self._reset(known, epoch)
            else:
                if declared is not None and known.kept_by is not None and known.kept < 1:
                    self._move(known.kept_by)  # which rows are protected may have changed
                if self._seen:
                    self._decide(rows, self._seen[-1].epoch)
                self._publish(epoch)
            return declared

    def heard(self, progress: Mapping[str, Any], *, newest: bool = True) -> None:
        """Take note of a committed epoch, given Spark's report; decide on the newest one, and act."""
        with self._lock:
            epoch = int(progress["batchId"])
            self.reached("heard")
            rows = self.control.rows()
            known = in_force(rows)
            self._confirm(known, epoch)
            if known.policy is None:
                return
            self._in_run += 1
            began = datetime.fromisoformat(str(progress["timestamp"]))
            kept = self._kept(progress, rows)
            load = self.rules.load(progress)
            seen = Observed(epoch, began, load, kept, self._in_run <= FIRST, self.query.admission.full(progress, load))
            if self._in_run == 1:
                self._warm_from = seen.warm_from()
            self._seen.append(replace(seen, cold=began < self._warm_from))
            self.query.admission.observe(progress)
            self._quiet += 1
            if newest:
                self.limit_again()
                self._decide(rows, epoch)
                self.reached("decided on")
                self._publish(epoch)

    def limit_again(self) -> None:
        """Set the limit in force if it could not be set before: Spark had planned nothing, or read no file yet."""
        with self._lock:
            if not self.query.admission.applied and (row := self.in_force.rows_by) is not None:
                self._move(row)

    def levers(self, known: InForce | None = None) -> Levers:
        """Return the levers: what is in force, and what can be moved."""
        now = known or self.in_force
        return Levers(
            now.kept,
            now.rows,
            self.query.partitions(),
            self.query.cores,
            can_shed=self.query.level is not None,
            can_limit=self.query.admission.obeyed,
            can_rescale=self.rules.rescale is not None,
            trigger=self.query.trigger,
        )

    def end(self) -> None:
        """Have no epoch wait any more; the levers stay where they are, for the next run."""
        with self._lock:
            if self.query.decided is not None:
                self.query.decided.withdraw()

    def _decide(self, rows: Sequence[ControlRow], epoch: int) -> None:
        known = in_force(rows)
        assert known.policy is not None
        policy, past = self.rules.read(known.policy.text), past_decisions(rows)
        decisions = tuple(self.rules.decide(policy, tuple(self._seen), self.levers(known), past))
        for decision in decisions:
            self.reached("decided")
            row = self.control.append(lambda rows, decision=decision: _new(rows, decision, known.policy, epoch))  # type: ignore[misc]
            if row is not None:
                self.reached("written")
                self._move(row)
                self.reached("moved")
                self._quiet = 0

    def _reset(self, known: InForce, epoch: int) -> None:
        """Move the levers back, after the policy has ended."""
        ended = "The policy has ended: everything is kept and read again."
        for lever, before, after in ((SHEDDING, known.kept, 1.0), (ADMISSION, known.rows, None)):
            if before != after:
                undo = ControlRow(DECISION, epoch, None, lever, before, after, holds=True, reason=ended)
                row = self.control.append(lambda _rows, undo=undo: undo)  # type: ignore[misc]
                assert row is not None
                self.reached("reset")
                self._move(row)
        now, admission = in_force(self.control.rows()), self.query.admission
        if self.query.level is not None and now.kept_by is not None and self._level_by() != now.kept_by.by:
            self._move(now.kept_by)
        admission.limit(None, epoch)
        if now.rows_by is not None and not now.rows_acted:  # a run that begins reads without a limit anyway
            self._acted(now.rows_by, admission.applies_from or epoch + 1)
        self.end()

    def _move(self, row: ControlRow) -> None:
        """Move a decision's lever."""
        after = row.after
        if row.lever == SHEDDING and self.query.level is not None:
            level, policy = self.query.level, self.in_force.policy
            read = None if policy is None else self.rules.read(policy.text)
            value = self.rules.level(read, 1.0 if after is None else after, self._seen[-1] if self._seen else None)
            level.log.set(level.declaration.state_of(value), row.by, None)
        elif row.lever == ADMISSION:
            self.query.admission.limit(None if after is None else int(after), self.committed())
        elif row.lever == RESCALE and self.rules.rescale is not None and after is not None:
            self._rescale(row, self.rules.rescale, int(after))

    def _rescale(self, row: ControlRow, rescale: Callable[[int], int], partitions: int) -> None:
        """Change the number of partitions. If that fails, the query runs as before, and the rules wait to try again."""
        try:
            self._acted(row, rescale(partitions))
            self.failed = None
        except Exception as error:  # noqa: BLE001 (Spark's errors too)
            self.failed = f"The policy's rescale to {partitions} partitions failed: {first_line(error)}"

    def _confirm(self, known: InForce, epoch: int) -> None:
        """Write down which epoch a limit has first applied to, once that is committed."""
        applies = self.query.admission.applies_from
        if known.rows_by is not None and not known.rows_acted and applies is not None and applies <= epoch:
            self._acted(known.rows_by, applies)

    def _acted(self, row: ControlRow, epoch: int) -> None:
        facts: dict[str, float | str | None] = {"decision": row.number}
        self.control.append(
            lambda rows: (
                None
                if any(known.of == row.number for known in rows)
                else ControlRow(ACTED, epoch, row.policy, row.lever, row.before, row.after, inputs=facts)
            )
        )

    def _level_by(self) -> str:
        """Return what set the newest version of the level."""
        level = self.query.level
        return "" if level is None else level.log.entry(level.log.head()).by

    def _kept(self, progress: Mapping[str, Any], rows: Sequence[ControlRow]) -> float:
        """Return the share that the level kept to which an epoch was bound."""
        if self.query.level is None:
            return 1.0
        offsets = [source.get("endOffset") for source in progress.get("sources") or ()]
        texts = [offset if isinstance(offset, str) else json.dumps(offset) for offset in offsets if offset is not None]
        version = bound_version(texts, self.query.level.name)
        if version is None or version.number is None:
            return in_force(rows).kept
        by = self.query.level.log.entry(version.number).by
        found = (row.after for row in rows if row.lever == SHEDDING and row.by == by)
        return next((1.0 if after is None else after for after in found), 1.0)

    def _publish(self, epoch: int) -> None:
        if self.query.decided is not None:
            seconds = self._seen[-1].load.seconds if self._seen else 0.0
            wait = LONGEST_WAIT if self._quiet < _BUSY else min(LONGEST_WAIT, _SHARE * seconds)
            self.query.decided.publish(Mark(epoch, wait))


def past_decisions(rows: Sequence[ControlRow]) -> list[Decision]:
    """Return the decisions since a query's policy was set after it had none."""
    past: list[Decision] = []
    ruled = False
    for row in rows:
        if row.kind == POLICY:
            past = past if ruled else []
            ruled = bool(row.text)
        elif row.kind == DECISION:
            holds, lever = bool(row.holds), row.lever or NONE
            past.append(Decision(lever, row.before, row.after, holds, row.reason, row.needs, row.inputs))  # type: ignore[arg-type]
    return past


def _new(rows: Sequence[ControlRow], decision: Decision, policy: ControlRow | None, epoch: int) -> ControlRow | None:
    """Return the row of a decision; None if it is there, or another policy is in force by now."""
    now = in_force(rows).policy
    if now is None or policy is None or now.number != policy.number:
        return None
    if any((row.epoch, row.policy, row.lever) == (epoch, now.number, decision.lever) for row in rows):
        return None
    return ControlRow(
        DECISION,
        epoch,
        now.number,
        decision.lever,
        decision.before,
        decision.after,
        holds=decision.holds,
        reason=decision.reason,
        needs=decision.needs,
        inputs=decision.inputs,
    )


class ControllerThread:
    """Tells a controller of each committed epoch of a query, through its restarts, until it ends.

    It asks Spark: a listener in Python costs 25 ms an epoch, and hears of it 150 ms later. An epoch is asked for often
    only once it may soon be over.

    Args:
        controller: what decides.
        run: returns Spark's handle of the current run.
        reports: returns Spark's reports on a run's epochs after one, ascending.
        goes_on: returns whether the query may still commit epochs.
    """

    def __init__(
        self,
        controller: Controller,
        run: Callable[[], object | None],
        reports: Callable[[Any, int], Sequence[Mapping[str, Any]]],
        goes_on: Callable[[], bool],
    ) -> None:
        self._controller = controller
        self._query = run
        self._reports = reports
        self._goes_on = goes_on
        self._ended = threading.Event()
        self._error: str | None = None
        self._thread = BackgroundThread(self._run, f"streamstate-policy-{controller.query.name}")
        self._thread.start()

    @property
    def error(self) -> str | None:
        """The error of the last attempt in one line, which is repeated, or else of the last rescale."""
        return self._error or self._controller.failed

    def stop(self) -> None:
        """End the thread; the decision under way is carried out first."""
        self._ended.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        run: object | None = None
        newest, seconds, looked = -1, 1.0, -math.inf
        while not self._ended.is_set():
            if time.monotonic() - looked > _LOOK:
                if not self._goes_on():
                    break
                looked = time.monotonic()
            current, reports = self._query(), list[Mapping[str, Any]]()
            try:
                if current is not None and current is not run:
                    self._controller.begin_run()
                    run, newest = current, -1
                reports += self._reports(current, newest) if current is not None else ()
                for report in reports:
                    newest = int(report["batchId"])
                    self._controller.heard(report, newest=report is reports[-1])
                    seconds = report["durationMs"].get("triggerExecution", 1000) / 1000
                if not reports:
                    self._controller.limit_again()
                self._error = None
            except StreamStateError as error:
                self._error = first_line(error)
            except Exception as error:  # noqa: BLE001 (Spark's errors when a run ends; the status shows what stays)
                self._error = f"The policy's controller: {first_line(error)}"
            self._ended.wait(min(_SLEEP * seconds, _LOOK) if reports else min(max(seconds / 100, _LEAST), _MOST))
        try:
            self._controller.end()
        except StreamStateError as error:
            self._error = first_line(error)
