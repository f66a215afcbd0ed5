"""The drill: run a query undisturbed, run it again and kill it, let it recover, and compare the states."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_args

from streamstate.errors import InvalidArgumentError, NoStateError, QueryError, choices, require_extra
from streamstate.operations.drill.processes import Deadline, DrillProcess, Killed, kill_executor, kill_query
from streamstate.operations.drill.scratch import Scratch, scratch, spark_settings
from streamstate.operations.drill.task import Event, Task, pickled
from streamstate.operations.report_html import report
from streamstate.snapshots.calls.checks import BuildQuery, whole_number
from streamstate.snapshots.calls.html import head, paragraphs, table, tag, td
from streamstate.snapshots.calls.progress_callback import ProgressCallback, long_call, silent
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.spark.output_modes import known_mode
from streamstate.snapshots.spark.state_comparison import TableDifference
from streamstate.snapshots.spark.worker.forwarding import classic_spark

Kill = Literal["query", "executor"]
_RECOVERING = "recovering, running to the end, and comparing"
_KILLED = {"query": "the whole query (Java and Python)", "executor": "one executor"}


@classic_spark()
@long_call("The drill's processes were ended.")
def drill(
    build_query: BuildQuery,
    *,
    kill: Kill = "query",
    after: int | None = None,
    directory: str | os.PathLike[str] | None = None,
    mode: str = "update",
    epochs: int | None = None,
    partitions: int | None = None,
    timeout: float = 600.0,
    progress: ProgressCallback | None = None,
    keep: bool = False,
) -> DrillReport:
    """Kill a query in the middle of an epoch, time its recovery, and compare its state with an undisturbed run.

    The query runs twice over the same input, each time in separate processes with a new checkpoint and another Spark.
    Your own queries and data are not touched, and the results are discarded (the ``noop`` sink). The first run is
    left alone. The second is killed (SIGKILL) once an epoch is committed and the next has begun. With ``kill="query"``
    Python, Java and all Python workers are killed, and a new process continues from the checkpoint. With
    ``kill="executor"`` one of the two executors of a small cluster on this machine is killed, and Spark recovers by
    itself. Finally the states of both runs are compared, table by table and key by key.

    The input has to be bounded and repeatable. It is read with ``availableNow``, so set a rate on the source, such as
    ``maxFilesPerTrigger``, to get several epochs. Settings of the running session that a query may depend on
    (``spark.sql.…``, driver memory, jars) are taken over.

    Args:
        build_query: a function without arguments that returns the streaming DataFrame, not started. It runs in other
            processes, so it has to create its own session with ``ss.session()``.
        kill: ``"query"`` or ``"executor"``.
        after: the epoch after whose commit to kill; by default one in the middle.
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
    if kill not in get_args(Kill):
        raise InvalidArgumentError(f"Invalid kill={kill!r}: expected one of {choices(get_args(Kill))}.")
    known_mode(mode)
    for name, number, least in (("after", after, 0), ("epochs", epochs, 2), ("partitions", partitions, 1)):
        if number is not None:
            whole_number(number, name, least=least)
    if not timeout > 0:
        raise InvalidArgumentError(f"Invalid timeout={timeout!r}: expected seconds, more than 0.")
    require_extra("spark")
    query = pickled(build_query)
    with scratch(directory, keep=keep) as place:
        (place.folder / "query").write_bytes(query)
        settings = spark_settings(kill, partitions, place.temporary)
        task = Task(str(place.folder / "query"), str(place.drilled), settings, mode, epochs)
        return _Drill(place, task, kill, Deadline(timeout), progress or silent, keep=keep).run(after)


@dataclass(frozen=True)
class DrillReport:
    """The recovery of a query from a kill, and the comparison of its state with that of an undisturbed run."""

    kill: str
    """What was killed: ``"query"`` or ``"executor"``."""
    after: int
    """The epoch after whose commit it was killed."""
    in_flight: bool
    """Whether the next epoch was in progress, begun but not committed, at the kill: the hard case."""
    half_written: int
    """How many state files the unfinished epoch left behind."""
    epochs_replayed: int
    """How many epochs had to be run again."""
    seconds_to_recover: float
    """Seconds from the kill to the commit of the next epoch."""
    phases: Mapping[str, float]
    """The parts of that time in seconds, in order; empty if Spark recovered by itself, which does not report them."""
    loading_seconds: float | None
    """How long all tasks of the first epoch together took to load state; None if Spark does not report it."""
    epochs: int
    """How many epochs the query that was killed committed in all."""
    compared_at: int
    """Its last epoch, whose state was compared."""
    aligned: bool
    """Whether both runs had the same epochs; if not, only their final states can be compared."""
    first_difference: int | None
    """The epoch in which the states diverge; None if they do not, or if the epochs are not the same."""
    differences: tuple[TableDifference, ...]
    """The state tables that differ from the undisturbed run, at that epoch or at the end: the rows that are missing
    (``of_one``), and those that are there instead (``of_other``)."""
    directory: Path | None = field(default=None, compare=False)
    """The folder with the checkpoints ``undisturbed`` and ``drilled``; None if they were not kept."""

    @property
    def ok(self) -> bool:
        """True if the state is the same as that of the undisturbed run."""
        return not self.differences

    @property
    def verdict(self) -> str:
        """The result of the comparison, in a sentence."""
        where = f"at epoch {self.compared_at}" if self.aligned else "at the end of the input"
        if self.ok:
            result = f"The state {where} is the same, key by key, as in an undisturbed run."
        elif self.first_difference is None:
            result = f"The state {where} differs from that of an undisturbed run."
        elif self.first_difference <= self.after:
            result = (
                f"The states of the two runs diverge in epoch {self.first_difference}, before anything was killed: "
                "the query itself is not deterministic."
            )
        else:
            result = f"The state differs from that of an undisturbed run from epoch {self.first_difference} on."
        return result if self.aligned else f"{result} The two runs divided their input into different epochs."

    @property
    def moment(self) -> str:
        """The killed process and the moment, in a sentence."""
        upcoming = self.after + 1
        if not self.in_flight:
            return f"Killed {_KILLED[self.kill]} after epoch {self.after}; epoch {upcoming} was not in progress."
        files = f", with {self.half_written:,} of its state files written" if self.half_written else ""
        return f"Killed {_KILLED[self.kill]} while epoch {upcoming} was in progress{files}."

    def __repr__(self) -> str:
        parts = [f"{seconds:6.2f} s  {name}" for name, seconds in self.phases.items()]
        if self.loading_seconds is not None:
            parts.append(f"{self.loading_seconds:6.2f} s  to load state, all tasks of the epoch together")
        recovered = f"The next epoch was committed {self.seconds_to_recover:,.2f} s later. {self._replayed}"
        lines = [self.moment, recovered, *(f"  {part}" for part in parts), self.verdict]
        return "\n".join([*lines, *map(str, self.differences)])

    def _repr_html_(self) -> str:
        phases = [*self.phases.items(), ("until the next epoch was committed", self.seconds_to_recover)]
        rows = [[tag("th", name, scope="row"), td(f"{seconds:,.2f} s", "number")] for name, seconds in phases]
        seconds = self.loading_seconds
        loading = "" if seconds is None else f"Loading state took {seconds:,.2f} s, all tasks together."
        return report(
            tag("p", f"{self.moment} {self._replayed}"),
            table(["phase", head("took", "number")], rows, caption="After the kill"),
            paragraphs([loading, tag("strong", f"{'✓' if self.ok else '✗'} {self.verdict}")]),
            *(tag("pre", str(difference)) for difference in self.differences),
        )

    @property
    def _replayed(self) -> str:
        if self.kill == "executor":
            return "Spark recovered by itself."
        if not self.epochs_replayed:
            return "No epoch had to be run again."
        return f"{self.epochs_replayed:,} epoch{'s' if self.epochs_replayed > 1 else ''} had to be run again."


@dataclass(frozen=True)
class _Drill:
    """A drill in progress."""

    place: Scratch
    task: Task
    kill: Kill
    deadline: Deadline
    progress: ProgressCallback
    keep: bool

    def run(self, after: int | None) -> DrillReport:
        last = self._run_undisturbed()
        after = (last - 1) // 2 if after is None else after
        if after >= last:
            raise InvalidArgumentError(
                f"Invalid after={after}: the input makes the epochs 0 to {last}, and one has to follow the kill.\n"
                f"Choose an epoch from 0 to {last - 1}, or give the query more input."
            )
        return self._kill_query(after) if self.kill == "query" else self._kill_executor(after)

    def _run_undisturbed(self) -> int:
        """Run the query without a kill; returns its last epoch."""
        checkpoint = str(self.place.undisturbed)
        with self._start("undisturbed", "running the query undisturbed", checkpoint=checkpoint) as process:
            process.wait("ended")
        result = CheckpointFiles(checkpoint)
        if not result.has_state():
            raise NoStateError("The query keeps no state, so there is none to recover.\nDrill a stateful query.")
        last = max(epoch for epoch in result.committed() if self.task.epochs is None or epoch < self.task.epochs)
        if last < 1:
            raise InvalidArgumentError(
                "The input makes a single epoch, and a drill needs a second one in which to kill the query.\n"
                "Set a rate on the source, such as option('maxFilesPerTrigger', 1), or give it more input."
            )
        return last

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

    def _start(self, name: str, during: str, **changes: Any) -> DrillProcess:
        self.progress(during, None)
        return DrillProcess(self.place, name, replace(self.task, **changes), self.deadline, during)

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
            kill=self.kill,
            after=after,
            in_flight=killed.committed == after and killed.planned > after,
            half_written=killed.half_written,
            epochs_replayed=killed.planned - killed.committed if self.kill == "query" else 0,
            seconds_to_recover=seconds,
            phases=_phases(process, killed, epoch, seconds) if self.kill == "query" else {},
            loading_seconds=None if loading is None else loading / 1000,
            epochs=len(CheckpointFiles(self.place.drilled).committed()),
            **{**compared.facts, "differences": tuple(map(_difference, compared.facts["differences"]))},
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


def _difference(facts: dict[str, Any]) -> TableDifference:
    """Return a difference from plain values: JSON has turned its tuples into lists."""
    difference = TableDifference(**facts)
    return replace(difference, of_one=tuple(difference.of_one), of_other=tuple(difference.of_other))
