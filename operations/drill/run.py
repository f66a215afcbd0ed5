"""The drill: run a query undisturbed, run it again and kill it, let it recover, and compare the states."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from streamstate.errors import InvalidArgumentError, NoStateError, QueryError, choices, require_extra
from streamstate.operations.drill.availability import AvailabilityDrill, Disturbance
from streamstate.operations.drill.outage import check_cuttable
from streamstate.operations.drill.processes import DRILLED, Deadline, DrillProcess, Killed, kill_executor, kill_query
from streamstate.operations.drill.report import DrillReport
from streamstate.operations.drill.scratch import Scratch, scratch
from streamstate.operations.drill.task import Event, Task, pickled
from streamstate.snapshots.calls.checks import BuildQuery, whole_number
from streamstate.snapshots.calls.progress_callback import ProgressCallback, long_call, silent
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.spark.child_settings import spark_settings
from streamstate.snapshots.spark.output_modes import known_mode
from streamstate.snapshots.spark.state_comparison import difference_of
from streamstate.snapshots.spark.worker.forwarding import classic_spark

Kill = Literal["query", "executor", "standby", "store"]
Slow = Literal["source", "task", "sink"]
_RECOVERING = "recovering, running to the end, and comparing"


@classic_spark()
@long_call("The drill's processes were ended.")
def drill(
    build_query: BuildQuery,
    *,
    kill: Kill | None = None,
    standby: bool = False,
    slow: Slow | None = None,
    partition: bool = False,
    after: int | None = None,
    store: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    directory: str | os.PathLike[str] | None = None,
    mode: str = "update",
    epochs: int | None = None,
    partitions: int | None = None,
    timeout: float = 600.0,
    progress: ProgressCallback | None = None,
    keep: bool = False,
) -> DrillReport:
    """Disturb a query in the middle of an epoch, time its recovery, and compare it with an undisturbed run.

    The query runs twice over the same input, each time in separate processes with a new checkpoint and another Spark.
    Your own queries and data are not touched, and the results are discarded (the ``noop`` sink). The first run is
    left alone. The second is killed (SIGKILL) once an epoch is committed and the next has begun. With ``kill="query"``
    Python, Java and all Python workers are killed, and a new process continues from the checkpoint. With
    ``kill="executor"`` one of the two executors of a small cluster on this machine is killed, and Spark recovers by
    itself. Finally the states of both runs are compared, table by table and key by key.

    With ``standby=True``, ``slow`` or ``partition``, :func:`streamstate.start` starts the second run, with its capture,
    and a standby under a lease of two seconds. The results go to a sink of the drill, which notes what each epoch gave
    and who wrote it, and keeps the epoch waiting until the standby is ready. The report says who owned which epochs,
    and what was lost or written twice. What is done in that epoch:

    - ``kill="query"``: the owner's processes are killed, after the results were written and before the commit.
    - ``kill="executor"``: one of the owner's two executors is killed.
    - ``kill="standby"``: the standby's processes are killed.
    - ``kill="store"``: nobody reaches the store, with the lease and the history, for six seconds.
    - ``partition=True``: only the owner does not, until after the standby has taken over. Needs a ``store`` that is
      reached over a network: a proxy on this machine, before the store's server, stops forwarding.
    - ``slow="sink"``: the sink takes five seconds; ``slow="task"``: one of two executors is suspended for as long;
      ``slow="source"``: the files of the next epoch come as much later.

    The input has to be bounded and repeatable. It is read with ``availableNow``, so set a rate on the source, such as
    ``maxFilesPerTrigger``, to get several epochs. Settings of the running session that a query may depend on
    (``spark.sql.…``, driver memory, jars) are taken over.

    Args:
        build_query: a function without arguments that returns the streaming DataFrame, not started. It runs in other
            processes, so it has to create its own session with ``ss.session()``.
        kill: ``"query"``, ``"executor"``, and with a standby ``"standby"`` or ``"store"``; by default ``"query"``,
            unless something is slow or cut off.
        standby: run a standby beside the query.
        slow: the place to slow down: ``"source"`` (files of the local disk only), ``"task"`` or ``"sink"``.
        partition: cut the owner off from the store.
        after: the epoch after whose commit to kill; by default one in the middle.
        store: where to capture into, in a new folder that stays; by default in the drill's folder. Only an object store
            can be cut off.
        storage_options: options of the store, as deltalake takes them; with the server's ``http://`` address if it is
            to be cut off.
        directory: where to create the drill's folder, which is removed at the end; by default with temporary files.
        mode: the query's output mode.
        epochs: stop both runs after this many epochs; by default at the end of the input.
        partitions: the number of state partitions; by default that of the running session.
        timeout: seconds for the whole drill.
        progress: called with a message and the completed share of the work, from 0 to 1 (None: not known).
        keep: keep both checkpoints, and the output of the processes, in :attr:`DrillReport.directory`.

    Returns:
        What was killed and when, how long recovery took, and whether the state is the same.

    Raises:
        InvalidArgumentError: an argument is invalid, the function cannot be sent to other processes or does not return
            a streaming DataFrame, the input has fewer than two epochs, or ``after`` is not one of them.
        MissingDependencyError: Spark is not installed.
        NoStateError: the query keeps no state.
        QueryError: the query failed by itself, or finished before it could be killed.
        WaitTimeoutError: the drill took longer than ``timeout``.

    Example:
        >>> def build_query():
        ...     spark = ss.session()
        ...     flights = spark.readStream.schema("carrier string").option("maxFilesPerTrigger", 1).json("flights")
        ...     return flights.groupBy("carrier").count()
        >>> report = drill(build_query, epochs=4)
        >>> report.ok, report.after
        (True, 1)
    """
    kind = _kind(kill, slow, standby=standby, partition=partition)
    known_mode(mode)
    for name, number, least in (("after", after, 0), ("epochs", epochs, 2), ("partitions", partitions, 1)):
        if number is not None:
            whole_number(number, name, least=least)
    if not timeout > 0:
        raise InvalidArgumentError(f"Invalid timeout={timeout!r}: expected seconds, more than 0.")
    if partition or (kind == "store" and store is not None and "://" in store):
        check_cuttable(store, storage_options or {})
    require_extra("spark")
    query = pickled(build_query)
    with scratch(directory, keep=keep) as place:
        (place.folder / "query").write_bytes(query)
        settings = spark_settings(partitions, place.temporary, cluster=kind in ("executor", "slow task"))
        task = Task(str(place.folder / "query"), str(place.drilled), settings, mode, epochs)
        what = Disturbance(kind, standby, _new_store(store, place), storage_options)
        plain = kind in ("query", "executor") and not standby
        return _Drill(place, task, what, Deadline(timeout), progress or silent, keep=keep).run(after, plain=plain)


def _kind(kill: object, slow: object, *, standby: bool, partition: bool) -> str:
    """Return the one thing to do to the query."""
    for name, value, known in (("kill", kill, get_args(Kill)), ("slow", slow, get_args(Slow))):
        if value is not None and value not in known:
            raise InvalidArgumentError(f"Invalid {name}={value!r}: expected one of {choices(known)}.")
    chosen = [*([kill] if kill else []), *([f"slow {slow}"] if slow else []), *(["partition"] if partition else [])]
    if len(chosen) > 1:
        raise InvalidArgumentError("A drill does one thing.\nChoose one of kill=, slow= and partition=.")
    kind = str(chosen[0]) if chosen else "query"
    if kind in ("standby", "store", "partition") and not standby:
        given = "partition=True" if partition else f"kill={kill!r}"
        raise InvalidArgumentError(f"{given} is about a query with a standby.\nAdd standby=True.")
    return kind


def _new_store(store: str | None, place: Scratch) -> str:
    return str(place.folder / "store") if store is None else f"{store.rstrip('/')}/{place.folder.name}"


@dataclass(frozen=True)
class _Drill:
    """A drill in progress."""

    place: Scratch
    task: Task
    what: Disturbance
    deadline: Deadline
    progress: ProgressCallback
    keep: bool

    def run(self, after: int | None, *, plain: bool) -> DrillReport:
        checkpoint, during = str(self.place.undisturbed), "running the query undisturbed"
        if plain:
            with self._start("undisturbed", during, checkpoint=checkpoint) as process:
                process.wait("ended")
            after = self._moment(after)
            return self._kill_query(after) if self.what.kind == "query" else self._kill_executor(after)
        later: dict[str, Any] = {
            "compare_later": str(self.place.drilled),
            "drilled": {
                "folder": str(self.place.folder / "whole"),
                "build_query": self.task.build_query,
                "links": self.what.links(self.place),
            },
            "settings": {**self.task.settings, "spark.master": "local[*]"},
        }
        with self._start("undisturbed", during, checkpoint=checkpoint, **later) as process:
            process.wait("ended")
            after = self._moment(after)
            return AvailabilityDrill(self._start, self.place, self.what, after, self.keep).run(process, self.task)

    def _moment(self, after: int | None) -> int:
        """Return the epoch after whose commit to disturb the query, from those of the undisturbed run."""
        result = CheckpointFiles(self.place.undisturbed)
        if not result.has_state():
            raise NoStateError("The query keeps no state, so there is none to recover.\nDrill a stateful query.")
        last = max(epoch for epoch in result.committed() if self.task.epochs is None or epoch < self.task.epochs)
        if last < 1:
            raise InvalidArgumentError(
                "The input makes a single epoch, and a drill needs a second one in which to kill the query.\n"
                "Set a rate on the source, such as option('maxFilesPerTrigger', 1), or give it more input."
            )
        after = (last - 1) // 2 if after is None else after
        if after >= last:
            raise InvalidArgumentError(
                f"Invalid after={after}: the input makes the epochs 0 to {last}, and one has to follow the kill.\n"
                f"Choose an epoch from 0 to {last - 1}, or give the query more input."
            )
        return after

    def _kill_query(self, after: int) -> DrillReport:
        with self._start("drilled", f"running the query again, to kill it in epoch {after + 1}") as process:
            killed = kill_query(process, self.place.drilled, after)
        self._check_unfinished(killed)
        with self._start("recovered", _RECOVERING, compare_with=str(self.place.undisturbed)) as process:
            compared = process.wait("compared")
            return self._report(after, killed, process, compared)

    def _kill_executor(self, after: int) -> DrillReport:
        during = f"running the query again, to kill an executor in epoch {after + 1}"
        with self._start("drilled", during, compare_with=str(self.place.undisturbed)) as process:
            killed = kill_executor(process, self.place.drilled, after)
            process.during = _RECOVERING
            self.progress(process.during, None)
            compared = process.wait("compared")
            self._check_unfinished(killed)
            return self._report(after, killed, process, compared)

    def _start(self, name: str, during: str, module: str = DRILLED, **changes: Any) -> DrillProcess:
        self.progress(during, None)
        return DrillProcess(self.place, name, replace(self.task, **changes), self.deadline, during, module=module)

    def _check_unfinished(self, killed: Killed) -> None:
        """Raise if no work was left at the kill."""
        last = max(CheckpointFiles(self.place.undisturbed).committed())
        if killed.committed >= last:
            raise QueryError(
                f"The query had committed its last epoch, {last}, before it could be killed.\n"
                "Give it more input, or choose an earlier epoch with after=."
            )

    def _report(self, after: int, killed: Killed, process: DrillProcess, compared: Event) -> DrillReport:
        first = killed.committed + 1
        seconds = (self.place.drilled / "commits" / str(first)).stat().st_mtime - killed.at
        epoch = process.epoch(first)
        loading = epoch.facts["loading_ms"] if epoch is not None else None
        return DrillReport(
            kill=self.what.kind,
            after=after,
            in_flight=killed.committed == after and killed.planned > after,
            half_written=killed.half_written,
            epochs_replayed=killed.planned - killed.committed if self.what.kind == "query" else 0,
            seconds_to_recover=seconds,
            phases=_phases(process, killed, epoch, seconds) if self.what.kind == "query" else {},
            loading_seconds=None if loading is None else loading / 1000,
            epochs=len(CheckpointFiles(self.place.drilled).committed()),
            **{**compared.facts, "differences": tuple(map(difference_of, compared.facts["differences"]))},
            directory=self.place.folder if self.keep else None,
        )


def _phases(process: DrillProcess, killed: Killed, epoch: Event | None, seconds: float) -> dict[str, float]:
    """Return the parts of the recovery, from the times of the new process's events."""
    began, spark = process.seen("began"), process.seen("spark")
    assert began is not None
    assert spark is not None
    phases = {"to start Python": began.at - killed.at, "to start Spark": spark.at - began.at}
    end = killed.at + seconds
    if epoch is None:
        return {**phases, "to plan the query and run the epoch": end - spark.at}
    start = epoch.facts["began"]
    return {**phases, "to plan the query": start - spark.at, "to run the epoch": end - start}
