"""The drill itself: run a query undisturbed, run it again and kill it, let it recover, compare."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from streamstate.recovery.drill.children import Child, Deadline
from streamstate.recovery.drill.killing import Killed, kill_executor, kill_query
from streamstate.recovery.drill.report import DrillReport
from streamstate.recovery.drill.scratch import Scratch, scratch
from streamstate.recovery.drill.sending import BuildQuery, pickled
from streamstate.recovery.drill.settings import spark_settings
from streamstate.recovery.drill.task import Event, Task
from streamstate.snapshots.checkpoint import Checkpoint
from streamstate.snapshots.errors import InvalidArgumentError, NoStateError, QueryError, choices
from streamstate.snapshots.same_state import TableDifference

__all__ = ["drill"]

Kill = Literal["query", "executor"]
Progress = Callable[[str], None]
_MODES = ("update", "append", "complete")


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
    progress: Progress = lambda _: None,
    keep: bool = False,
) -> DrillReport:
    """Kill a query in the middle of an epoch, time its recovery, and verify its state against a run that never failed.

    The query runs twice over the same input, in processes, with checkpoints and with a Spark of its own; nothing of
    yours is touched, and its results go nowhere (the ``noop`` sink). The first run is left alone. The second is killed
    (SIGKILL) as soon as an epoch is committed and the next has been begun. With ``kill="query"`` that ends Python, Java
    and all Python workers, and a new process goes on from the checkpoint; with ``kill="executor"`` it ends one of the
    two executors of a small cluster on this machine, and Spark goes on by itself. In the end the states of both runs
    are compared key by key, table by table.

    The input has to be bounded, and to be replayed the same each time: it is read with ``availableNow``, so give the
    source a rate such as ``maxFilesPerTrigger`` to make several epochs of it. Settings of the session that runs here
    are taken over where a query may depend on them (``spark.sql.…``, driver memory, jars).

    Args:
        build_query: a function without arguments that returns the streaming DataFrame, not started. It runs in other
            processes, so it has to make its own session, with ``ss.session()``.
        kill: ``"query"`` or ``"executor"``.
        after: the epoch after whose commit to kill; by default one in the middle.
        directory: where to work, in a folder that is removed again; by default where temporary files go.
        mode: the query's output mode.
        epochs: stop both runs after so many epochs; by default the input's end ends them.
        partitions: how many partitions the state has; by default as in the session that runs here.
        timeout: seconds for all of it.
        progress: called with a few words before each step.
        keep: leave both checkpoints, and what the processes printed, where :attr:`DrillReport.directory` says.

    Returns:
        What was killed when, how long recovery took, and whether the state is the same.

    Raises:
        InvalidArgumentError: an argument that cannot be meant, a function that cannot be sent to other processes or
            gives no streaming DataFrame, input for fewer than two epochs, or no such epoch.
        NoStateError: the query keeps no state.
        QueryError: the query failed by itself, or was done before it could be killed.
        WaitTimeoutError: it was not done in time.

    Example:
        >>> def build_query():
        ...     spark = ss.session()
        ...     letters = spark.readStream.schema("k string").option("maxFilesPerTrigger", 1).json("input")
        ...     return letters.groupBy("k").count()
        >>> report = ss.drill(build_query)  # doctest: +SKIP
        >>> report.ok, report.seconds_to_recover  # doctest: +SKIP
        (True, 6.1)
    """
    for name, value, known in (("kill", kill, get_args(Kill)), ("mode", mode, _MODES)):
        _check_choice(name, value, known)
    for name, number, least in (("after", after, 0), ("epochs", epochs, 2), ("partitions", partitions, 1)):
        _check_number(name, number, least)
    if not timeout > 0:
        raise InvalidArgumentError(f"timeout={timeout!r} cannot be meant: give seconds, more than 0.")
    sent = pickled(build_query)
    with scratch(directory, keep=keep) as place:
        (place.folder / "query").write_bytes(sent)
        settings = spark_settings(kill, partitions, place.temporary)
        task = Task(str(place.folder / "query"), str(place.drilled), settings, mode, epochs)
        return _Drill(place, task, kill, Deadline.after(timeout), progress, keep=keep).run(after)


def _check_choice(name: str, value: object, known: Sequence[str]) -> None:
    if value not in known:
        raise InvalidArgumentError(f"{name}={value!r} cannot be meant.\nChoose from {choices(known)}.")


def _check_number(name: str, number: Any, least: int) -> None:
    if number is not None and (not isinstance(number, int) or isinstance(number, bool) or number < least):
        raise InvalidArgumentError(f"{name}={number!r} cannot be meant: give a whole number, {least} or more.")


@dataclass(frozen=True)
class _Drill:
    """One drill under way."""

    place: Scratch
    task: Task
    kill: Kill
    deadline: Deadline
    progress: Progress
    keep: bool

    def run(self, after: int | None) -> DrillReport:
        last = self._undisturbed()
        after = (last - 1) // 2 if after is None else after
        if after >= last:
            raise InvalidArgumentError(
                f"after={after} leaves nothing to recover: the input makes the epochs 0 to {last}.\n"
                f"Choose one from 0 to {last - 1}, or give the query more input."
            )
        return self._killed_query(after) if self.kill == "query" else self._killed_executor(after)

    def _undisturbed(self) -> int:
        """Run the query as nobody kills it; returns its last epoch."""
        during = "running the query undisturbed"
        checkpoint = str(self.place.undisturbed)
        with self._start("undisturbed", during, checkpoint=checkpoint) as child:
            child.wait("ended", self.deadline, during)
        found = Checkpoint(checkpoint)
        if not found.has_state():
            raise NoStateError("The query keeps no state, so there is none to recover.\nDrill one that has some.")
        last = max(epoch for epoch in found.committed() if self.task.epochs is None or epoch < self.task.epochs)
        if last < 1:
            raise InvalidArgumentError(
                "The input makes a single epoch, and a drill needs a next one to kill the query in.\n"
                "Give the source a rate, such as option('maxFilesPerTrigger', 1), or more input."
            )
        return last

    def _killed_query(self, after: int) -> DrillReport:
        with self._start("drilled", f"running it again, to be killed in epoch {after + 1}") as child:
            killed = kill_query(child, self.place.drilled, after, self.deadline)
        self._check_left(killed)
        during = "recovering, going on to the end, and comparing"
        with self._start("recovered", during, compare_with=str(self.place.undisturbed)) as child:
            compared = child.wait("compared", self.deadline, during)
            return self._report(after, killed, child, compared)

    def _killed_executor(self, after: int) -> DrillReport:
        during = f"running it again, one executor to be killed in epoch {after + 1}"
        with self._start("drilled", during, compare_with=str(self.place.undisturbed)) as child:
            killed = kill_executor(child, self.place.drilled, after, self.deadline)
            during = "recovering, going on to the end, and comparing"
            self.progress(during)
            compared = child.wait("compared", self.deadline, during)
            self._check_left(killed)
            return self._report(after, killed, child, compared)

    def _start(self, name: str, during: str, **other: Any) -> Child:
        self.progress(during)
        return Child(self.place, name, replace(self.task, **other))

    def _check_left(self, killed: Killed) -> None:
        """Raise where nothing was left to be done when the kill came."""
        last = max(Checkpoint(self.place.undisturbed).committed())
        if killed.committed >= last:
            raise QueryError(
                f"The query had committed its last epoch, {last}, before it could be killed.\n"
                "Give it more input, or an earlier epoch as after=."
            )

    def _report(self, after: int, killed: Killed, child: Child, compared: Event) -> DrillReport:
        first = killed.committed + 1
        seconds = (self.place.drilled / "commits" / str(first)).stat().st_mtime - killed.at
        told = child.epoch(first)
        loading = told.facts["loading_ms"] if told is not None else None
        return DrillReport(
            kill=self.kill,
            after=after,
            in_flight=killed.committed == after and killed.planned > after,
            half_written=killed.half_written,
            epochs_replayed=killed.planned - killed.committed if self.kill == "query" else 0,
            seconds_to_recover=seconds,
            phases=_phases(child, killed, told, seconds) if self.kill == "query" else {},
            loading_seconds=None if loading is None else loading / 1000,
            epochs=len(Checkpoint(self.place.drilled).committed()),
            **_comparison(compared.facts),
            directory=self.place.folder if self.keep else None,
        )


def _phases(child: Child, killed: Killed, first: Event | None, seconds: float) -> dict[str, float]:
    """Recovery in parts, from what the new process said when."""
    began, spark = child.seen("began"), child.seen("spark")
    assert began is not None
    assert spark is not None
    phases = {"to start Python": began.at - killed.at, "to start Spark": spark.at - began.at}
    end = killed.at + seconds
    if first is None:
        return {**phases, "to plan the query and run the epoch": end - spark.at}
    start = first.facts["began"]
    return {**phases, "to plan the query": start - spark.at, "to run the epoch": end - start}


def _comparison(facts: dict[str, Any]) -> dict[str, Any]:
    rows = {"of_one", "of_other"}
    differences: list[dict[str, Any]] = [
        {name: tuple(value) if name in rows else value for name, value in one.items()} for one in facts["differences"]
    ]
    return {
        "compared_at": facts["epoch"],
        "aligned": facts["aligned"],
        "first_difference": facts["first"],
        "differences": tuple(TableDifference(**one) for one in differences),
    }
