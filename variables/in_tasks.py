"""Shared variables inside a task of Spark: reading the version of the epoch, and collecting contributions.

A task learns its query and epoch from Spark's local properties, and the epoch's versions from the query's offset log.
Contributions are staged when the Python worker reports the task's accumulators, which is before the task succeeds.
"""

from __future__ import annotations

import functools
import gc
import hashlib
import json
import os
import sys
from dataclasses import dataclass, field
from typing import Any

from pyspark import SparkContext, TaskContext
from pyspark.accumulators import Accumulator, AccumulatorParam

from streamstate.errors import VariableError
from streamstate.snapshots.checkpoint.bindings import AGAIN, EPOCH, RUN, Binding, Version, binding_in_log
from streamstate.snapshots.checkpoint.local_files import LocalFiles
from streamstate.variables.contributions import RETRIED, Staged, stage_group
from streamstate.variables.declaration import LATEST, Declaration
from streamstate.variables.state_in_store import state_in_store
from streamstate.variables.transports.addresses import transport_at
from streamstate.variables.transports.driver_key import DriverKey, learned_key, own_key
from streamstate.variables.transports.transport import BINDINGS
from streamstate.variables.version_bytes import encoded_contribution
from streamstate.variables.version_log import VersionLog


@dataclass(frozen=True)
class QueryRun:
    """A run of a query that uses shared variables, as its tasks know it.

    Attributes:
        checkpoint: the query's checkpoint.
        query: its id.
        number: the run's number.
        transport: by which address tasks reach the transport.
        bindings: by which address tasks ask for the offset log; empty: they read it themselves.
        variables: the names of the variables.
        keys: what they are called by in the transport.
        bound: the binding itself, of an epoch that is only looked at again.
    """

    checkpoint: str
    query: str
    number: int
    transport: str
    bindings: str
    variables: tuple[str, ...]
    keys: tuple[str, ...] = ()
    bound: str = ""

    def text(self) -> str:
        """Return the value of the local property."""
        return json.dumps(self.__dict__)

    @classmethod
    @functools.lru_cache(maxsize=16)
    def of(cls, text: str) -> QueryRun:
        """Return the run that a local property tells of."""
        known = json.loads(text)
        return cls(**known | {name: tuple(known.get(name, ())) for name in ("variables", "keys")})

    def binding(self, epoch: int) -> Binding:
        """Return the binding of an epoch.

        Raises:
            VariableError: it has none.
        """
        found = self.binding_if_any(epoch)
        if found is None:
            raise VariableError(
                f"Epoch {epoch} of {self.checkpoint} is bound to no versions of shared variables: its offset log names"
                " none.\nStart the query with shared=(…), so that its epochs are bound."
            )
        return found

    def binding_if_any(self, epoch: int) -> Binding | None:
        """Return the binding of an epoch; None if it was planned without shared variables."""
        return _binding(self, epoch)


@functools.lru_cache(maxsize=64)
def _binding(run: QueryRun, epoch: int) -> Binding | None:
    if run.bound:
        return Binding.of_offset(json.loads(run.bound))
    if run.bindings:
        data = transport_at(run.bindings).get(BINDINGS, f"{epoch}/{run.checkpoint}")
    else:
        data = LocalFiles().content(f"{run.checkpoint}/offsets/{epoch}")
    return None if data is None else binding_in_log(data.decode())


@dataclass(frozen=True)
class Here:
    """The place where code runs: the epoch of a run, and the attempt of a task.

    Attributes:
        partition, attempt, stage: of the task; −1 in the driver's own code, such as a function of ``foreachBatch``.
        retried: whether the task was attempted before.
    """

    run: QueryRun
    epoch: int
    partition: int = -1
    attempt: int = -1
    stage: int = -1
    retried: bool = False


def here() -> Here | None:
    """Return where this code runs; None outside the epochs of queries, such as in a notebook's cell.

    Raises:
        VariableError: it is a task of a query that was not started with shared variables.
    """
    context = TaskContext.get()
    if context is not None:
        text, epoch = context.getLocalProperty(RUN), context.getLocalProperty(EPOCH)
        if text is None or epoch is None:
            raise VariableError(
                "This task belongs to no epoch of a query that was started with shared variables.\n"
                "Start the query with ss.start(frame, name, store, shared=('limit',)) or %%stream NAME --shared limit."
            )
        attempt, retried = context.taskAttemptId(), context.attemptNumber() > 0
        return Here(QueryRun.of(text), int(epoch), context.partitionId(), attempt, context.stageId(), retried)
    session = SparkContext._active_spark_context
    if session is None or _in_main_thread():
        return None
    text, epoch = session.getLocalProperty(RUN), session.getLocalProperty(EPOCH)
    return None if not text or not epoch else Here(QueryRun.of(text), int(epoch))


def is_local(context: SparkContext) -> bool:
    """Return whether a session's tasks run on the driver's machine, in its own process."""
    master = str(context.master)
    return master == "local" or master.startswith("local[")


def key_for_tasks() -> DriverKey | None:
    """Return the key that tasks need to reach the driver's server; None if they run where the driver does."""
    context = SparkContext._active_spark_context
    return learned_key() if context is None or is_local(context) else own_key()


def _in_main_thread() -> bool:
    import threading

    return threading.current_thread() is threading.main_thread()


# What a worker has read, and what its task has collected so far.
_logs: dict[tuple[str, str, str], VersionLog] = {}
# By query, run and epoch: a checkpoint may be deleted, and begun again.
_values: dict[tuple[str, int, int], dict[str, Any]] = {}


@dataclass
class _Task:
    """Contributions collected by a worker's task, or by a query's function in the driver, by variable and operator."""

    at: Here | None = None
    collected: dict[tuple[str, str], Any] = field(default_factory=dict)
    declarations: dict[str, Declaration] = field(default_factory=dict)


# The driver runs the functions of several queries at once, a worker one task.
_tasks: dict[str, _Task] = {}


def _task(query: str = "") -> _Task:
    return _tasks.setdefault(query, _Task())


def read_in_task(declaration: Declaration, at: Here) -> Any:
    """Return a variable's value in the epoch of a task."""
    key = (at.run.query, at.run.number, at.epoch)
    known = _values.get(key)
    if known is None:
        if len(_values) > 8:
            _values.clear()
        known = _values[key] = {}
    if declaration.name in known:
        return known[declaration.name]
    version = version_in_epoch(declaration, at)
    if version.number is None:
        log = log_of(declaration, at.run.transport, "")
        return log.value(log.head())
    value = log_of(declaration, at.run.transport, version.branch).value(version.number)
    known[declaration.name] = value
    return value


def version_in_epoch(declaration: Declaration, at: Here) -> Version:
    """Return the version of a variable that the epoch of a task sees."""
    name = declaration.name
    if name not in at.run.variables:
        raise VariableError(
            f"{name} is not bound to this query, which was started with shared={at.run.variables!r}.\n"
            f"Add it: ss.start(…, shared=({', '.join(map(repr, [*at.run.variables, name]))})), or %%stream … --shared"
            f" {','.join([*at.run.variables, name])}."
        )
    if declaration.consistency == LATEST:
        return Version(None)
    version = at.run.binding(at.epoch).versions.get(name)
    if version is None:
        raise VariableError(
            f"{name} is write-mostly: operators add to it, and the notebook reads it.\n"
            "Declare it with access='read-mostly' for operators to read it."
        )
    return version


def log_of(declaration: Declaration, transport: str, branch: str) -> VersionLog:
    """Return the log of a variable, as this process keeps it."""
    key = (transport, declaration.key, branch)
    if key not in _logs:
        _logs[key] = VersionLog(
            transport_at(transport), declaration, branch, None if branch else state_in_store(declaration)
        )
    return _logs[key]


def collect(declaration: Declaration, at: Here, given: tuple[Any, ...], operator: str, *, reported: bool) -> None:
    """Add a contribution to what the task has collected; ``reported``: whether the task's end stages it."""
    if declaration.name not in at.run.variables:
        version_in_epoch(declaration, at)  # raises
    task = _task_at(at)
    if task.at != at:
        task.collected.clear()  # a task that failed left it
        task.at = at
    key = (declaration.name, operator)
    task.declarations[declaration.name] = declaration
    task.collected[key] = declaration.merging.collected(task.collected.get(key), declaration.name, *given)
    if not reported:
        stage(at)


def _task_at(at: Here) -> _Task:
    return _task() if at.attempt >= 0 else _task(at.run.query)


def stage(at: Here) -> None:
    """Stage a task's contributions, in place of those that it staged before."""
    if at.run.number == AGAIN:
        return
    task, transport = _task_at(at), transport_at(at.run.transport)
    if at.retried:  # what its attempts before have staged does not count, also if this one has nothing to add
        for key in at.run.keys:
            transport.put(stage_group(key, at.run.query), _staged(at, RETRIED).name, b"")
    if task.at != at:
        return
    for (name, operator), collected in task.collected.items():
        declaration = task.declarations[name]
        state = declaration.merging.finished(collected)
        made = _staged(at, operator)
        transport.put(stage_group(declaration.key, at.run.query), made.name, encoded_contribution(state, declaration))


def _staged(at: Here, operator: str) -> Staged:
    worker = os.getpid() if at.attempt >= 0 else 0
    return Staged(at.epoch, at.run.number, operator, at.partition, at.attempt, worker, at.stage)


def operator_at(depth: int, given: str | None) -> str:
    """Return the identity of an operator: its name, or else the place in the code that calls ``add``."""
    if given is not None:
        return hashlib.sha256(given.encode()).hexdigest()[:12]
    return _place(sys._getframe(depth + 1).f_code)  # noqa: SLF001 (what inspect.currentframe returns, without its cost)


@functools.lru_cache(maxsize=256)
def _place(code: Any) -> str:
    place = f"{code.co_filename}:{code.co_firstlineno}:{code.co_name}"
    return hashlib.sha256(place.encode()).hexdigest()[:12]


class _AtTheEnd:
    """The value of an accumulator: made in a worker when its task begins, and pickled, to be reported, when it ends."""

    def __init__(self) -> None:
        # Spark's context of the task is gone when it ends.
        context = TaskContext.get()
        is_bound = context is not None and context.getLocalProperty(RUN) and context.getLocalProperty(EPOCH)
        self._at = here() if is_bound else None

    def __reduce__(self) -> tuple[Any, ...]:
        if self._at is None:
            return _AtTheEnd, ()
        if _task().collected or self._at.retried:
            stage(self._at)
            _task().collected.clear()
        _spare_modules()
        return int, ()


def _spare_modules() -> None:
    """Keep the garbage collection that follows each task from looking at the modules that the first has loaded.

    Spark's workers collect everything after each task. With pandas, which Arrow loads, that takes 25 ms longer.
    """
    if not gc.get_freeze_count():
        gc.collect()
        gc.freeze()


class _Nothing(AccumulatorParam[Any]):
    """An accumulator that adds nothing up."""

    def zero(self, value: Any) -> Any:
        """Return the value that each task starts with."""
        return value

    def addInPlace(self, value1: Any, value2: Any) -> Any:  # noqa: N802 (Spark's)
        """Ignore a task's report: only staged contributions count."""
        return value1


_accumulators: dict[str, Accumulator[Any]] = {}


def task_end() -> Accumulator[Any] | None:
    """Return an accumulator that makes tasks stage their contributions; None without a session."""
    context = SparkContext._active_spark_context
    if context is None:
        return None
    key = str(context.applicationId)
    if key not in _accumulators:
        _accumulators[key] = context.accumulator(_AtTheEnd(), _Nothing())
    return _accumulators[key]
