"""A debugger's session: one original, its branches, and where one stands; a view and the magics drive it."""

from __future__ import annotations

import os
import tempfile
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd

from streamstate.debugger.branch import Branch, Line
from streamstate.debugger.breakpoints import Until
from streamstate.debugger.forking import fork
from streamstate.debugger.own_folder import own_folder
from streamstate.debugger.stepper import BuildQuery
from streamstate.debugger.steps import Progress
from streamstate.debugger.watches import Watches
from streamstate.snapshots.checkpoint import Checkpoint
from streamstate.snapshots.errors import EpochGoneError, InvalidArgumentError
from streamstate.snapshots.filesystem import location
from streamstate.snapshots.forks.transfer import transfer_between
from streamstate.snapshots.layout import Layout
from streamstate.snapshots.names import check_name, name_from, unused
from streamstate.snapshots.registry import check_store

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from pyspark.sql import SparkSession

    from streamstate.debugger.report import StepReport
    from streamstate.snapshots.plan_graph import PlanGraph
    from streamstate.state_inspect import History

__all__ = ["Branch", "DebugSession", "debug"]

_FAR = 1_000


@dataclass(frozen=True)
class _Place:
    """Where a session keeps what it makes."""

    directory: str
    store: str
    name: str
    own: tempfile.TemporaryDirectory[str] | None


class DebugSession:
    """Steps forward and back through a query's epochs, on forks of it; :func:`debug` makes one.

    Any thread may call; calls wait for each other. The original is only read. Going back changes nothing yet: the next
    step from there begins a new branch, and the one that was left stays as it is.
    """

    def __init__(
        self,
        build_query: BuildQuery,
        original: str,
        at: int | None,
        *,
        place: _Place,
        mode: str,
        spark: SparkSession,
    ) -> None:
        self.build_query = build_query
        """Makes the query; another one may be set, and holds from the next step on."""
        self._original, self._place, self._mode, self._spark = original, place, mode, spark
        self._lock = threading.RLock()
        self._closed = False
        self._last: StepReport | None = None
        self._watches = Watches()
        self._lines: list[Line] = []
        self._line = self._begin(at)
        self._epoch = self._line.forked_at

    @property
    def epoch(self) -> int:
        """The epoch at which the session stands."""
        return self._epoch

    @property
    def name(self) -> str:
        """The name of the branch on which it stands."""
        return self._line.name

    @property
    def checkpoint(self) -> str:
        """That branch's checkpoint."""
        return self._line.checkpoint

    @property
    def original(self) -> str:
        """The original's checkpoint."""
        return self._original

    @property
    def store(self) -> str:
        """The store with the branches' epochs."""
        return self._place.store

    @property
    def history(self) -> History:
        """The captured epochs of the branch on which the session stands, those after where it stands included."""
        with self._lock:
            return self._open().changes.history

    @property
    def last(self) -> StepReport | None:
        """What the last steps did; None before the first, and after going back."""
        return self._last

    @property
    def plan(self) -> PlanGraph | None:
        """The operators of the last epoch that was run; None before the first, and after going back."""
        with self._lock:
            return None if self._last is None else self._last.plan

    def step(self, n: int = 1, *, until: Until = None, progress: Progress | None = None) -> StepReport:
        """Run the next epochs, on a new branch where the session has gone back.

        Args:
            n: how many at most.
            until: where to stop earlier; see :func:`streamstate.step`.
            progress: is told how far it is.

        Raises:
            QueryError, NotReplayableError, EpochGoneError, InvalidArgumentError: as :func:`streamstate.step`; the
                session stays where it is.

        Example:
            >>> session.step(2).diff()  # doctest: +SKIP
        """
        _whole("n", n)
        with self._lock:
            line = self._open()
            if self._epoch < line.newest:
                line = self._branch(self._epoch)
            try:
                self._last = line.step(self.build_query, n, until, self._mode, progress)
            except BaseException:
                self._last = None
                if line is not self._line and line.newest == line.forked_at:
                    self._drop(line)
                    raise
                # Some of the epochs may have been run.
                self._line, self._epoch = line, line.newest
                raise
            self._line, self._epoch = line, line.newest
            return self._last

    def run_until(self, condition: Until, *, epochs: int = _FAR, progress: Progress | None = None) -> StepReport:
        """Run on until a breakpoint, the original's end, or so many epochs.

        Args:
            condition: where to stop; see ``until`` of :func:`streamstate.step`.
            epochs: how many epochs to run at most.
            progress: is told how far it is.

        Example:
            >>> session.run_until("max_delay > 300").reason  # doctest: +SKIP
        """
        return self.step(epochs, until=condition, progress=progress)

    def back(self, n: int = 1) -> int:
        """Go so many epochs back, at most to the first of the session; the next step begins a new branch there.

        Returns:
            The epoch.

        Raises:
            InvalidArgumentError: there are not so many.
        """
        _whole("n", n)
        with self._lock:
            return self.goto(self._epoch - n)

    def goto(self, epoch: int, *, progress: Progress | None = None) -> int:
        """Go to an epoch: back, or forward on the branch, and past its newest epoch by running those that lack.

        Args:
            epoch: its number.
            progress: is told how far it is.

        Returns:
            The epoch at which the session stands then, an earlier one where the original ends before.

        Raises:
            InvalidArgumentError: the session has no such epoch.
        """
        with self._lock:
            line = self._open()
            first = self._lines[0].forked_at
            if type(epoch) is not int or epoch < first:
                raise InvalidArgumentError(
                    f"Epoch {epoch!r} cannot be gone to: the session began at epoch {first}.\n"
                    f"Give one from {first} on, or begin another session with ss.debug(…, at=…)."
                )
            if epoch != self._epoch:
                self._last = None
            self._epoch = min(epoch, line.newest)
            if epoch > self._epoch:
                self.step(epoch - self._epoch, progress=progress)
            return self._epoch

    def watch(self, expression: str) -> None:
        """Watch the value of an SQL expression over a state table, one for each epoch.

        Args:
            expression: such as ``"max(delay)"`` where there is one table, or ``"count(*) FROM op0_left WHERE v > 3"``.

        Raises:
            InvalidSQLError: it does not parse, or has not exactly one value.
            UnknownTableError, UnknownColumnError: it names what there is not.

        Example:
            >>> session.watch("max(max_delay)")  # doctest: +SKIP
        """
        with self._lock:
            self._open()
            self._watches.add(expression, self._line, self._epoch)

    def unwatch(self, expression: str) -> None:
        """Watch it no longer.

        Raises:
            InvalidArgumentError: it is not watched.
        """
        with self._lock:
            self._watches.remove(expression)

    def watches(self) -> pd.DataFrame:
        """The watched expressions' values along the branch: ``epoch``, ``branch`` (whose it is), a column for each.

        Example:
            >>> session.watches()  # doctest: +SKIP
               epoch       branch  max(max_delay)
            0     12  debug_delays              61
        """
        with self._lock:
            self._open()
            return self._watches.values(self._path())

    def branches(self) -> list[Branch]:
        """The original and all branches, in the order in which they were made."""
        with self._lock:
            newest = Checkpoint(self._original, self._spark).committed()
            first = Branch(self._original_name(), None, None, newest[-1] if newest else None, self._original)
            return [first, *(line.branch(current=line is self._line) for line in self._lines)]

    def close(self) -> None:
        """End the session; a folder of its own is deleted with what is in it. Closing again does nothing."""
        with self._lock:
            self._closed = True
            if self._place.own is not None:
                self._place.own.cleanup()

    def __enter__(self) -> DebugSession:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        if self._closed:
            return f"<DebugSession of {self._original}: closed>"
        return (
            f"<DebugSession of {self._original}: at epoch {self._epoch} of {self.name} (newest {self._line.newest}),"
            f" {len(self._lines)} {'branch' if len(self._lines) == 1 else 'branches'}>"
        )

    def _open(self) -> Line:
        """The branch on which the session stands.

        Raises:
            InvalidArgumentError: the session is closed.
        """
        if self._closed:
            raise InvalidArgumentError("This session is closed.\nBegin another one with ss.debug.")
        return self._line

    def _begin(self, at: int | None) -> Line:
        """The first branch; without an epoch at the oldest at which a fork can be made."""
        if at is not None:
            return self._fork_of(None, at)
        committed = Checkpoint(self._original, self._spark).committed()
        for epoch in committed[:-1]:
            try:
                return self._fork_of(None, epoch)
            except EpochGoneError:
                continue  # the commit log lists more than the state holds
        return self._fork_of(None, None)

    def _branch(self, epoch: int) -> Line:
        """A new branch from an epoch of the one on which the session stands."""
        parent: Line | None = self._line
        while parent is not None and epoch <= parent.forked_at:
            # At its own first epoch a branch is its parent, and the parent has more of what led there.
            parent = parent.parent
        return self._fork_of(parent, epoch)

    def _fork_of(self, parent: Line | None, epoch: int | None) -> Line:
        taken = [*check_store(Layout.at(self._place.store)), *(line.name for line in self._lines)]
        name = unused(self._place.name, taken)
        source = self._original if parent is None else parent.checkpoint
        made = fork(source, f"{self._place.directory}/{name}", at=epoch, spark=self._spark)
        line = Line(
            made,
            name,
            parent,
            original_name=self._original_name(),
            store=self._place.store,
            original=self._original,
            spark=self._spark,
        )
        self._lines.append(line)
        return line

    def _drop(self, line: Line) -> None:
        """Take away a branch on which nothing was run."""
        self._lines.remove(line)
        transfer_between(line.checkpoint, line.checkpoint, self._spark).delete(line.checkpoint)

    def _original_name(self) -> str:
        query_id = Checkpoint(self._original, self._spark).query_id
        known = [one.name for one in check_store(Layout.at(self._place.store)).values() if one.query_id == query_id]
        return known[0] if known else name_from(self._original.rsplit("/", 1)[-1])

    def _path(self) -> list[tuple[int, Line]]:
        """The epochs that lead to the branch's newest, with the branch whose each is."""
        lines: list[Line] = [self._line]
        while (parent := lines[-1].parent) is not None:
            lines.append(parent)
        path: dict[int, Line] = {}
        # The oldest first: from where it was forked on, a branch has its own epochs.
        for line in reversed(lines):
            path = {epoch: other for epoch, other in path.items() if epoch < line.forked_at}
            path |= dict.fromkeys(range(line.forked_at, line.newest + 1), line)
        return sorted(path.items(), key=lambda one: one[0])


def _whole(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InvalidArgumentError(f"{name}={value!r} cannot be meant: a whole number from 1 on.")


def debug(
    build_query: BuildQuery,
    original: str | os.PathLike[str],
    *,
    at: int | None = None,
    directory: str | os.PathLike[str] | None = None,
    store: str | os.PathLike[str] | None = None,
    name: str | None = None,
    mode: str = "update",
    spark: SparkSession | None = None,
) -> DebugSession:
    """Stand at an epoch of a query, and step from there, forward and back.

    Args:
        build_query: makes the streaming DataFrame.
        original: the query's checkpoint; it is only read.
        at: the epoch to begin at; by default the oldest that can be forked at.
        directory: where the branches' checkpoints go; by default a folder that :meth:`DebugSession.close` deletes.
        store: where the branches' epochs are captured; by default one in that folder.
        name: what the branches are called: ``name``, ``name_2``, …; by default ``debug_`` and the original's folder.
        mode: the output mode.
        spark: the session; by default the running one, or an embedded one.

    Raises:
        NotACheckpointError, EpochGoneError, ForkError, NoStateError: as :func:`streamstate.fork`.
        InvalidNameError: where ``name`` cannot be one.

    Example:
        >>> with ss.debug(build, "checkpoints/delays", at=12) as session:  # doctest: +SKIP
        ...     session.run_until("max_delay > 300")
        ...     session.back()
    """
    from streamstate.spark_session import session

    path = location(os.fspath(original))
    called = check_name(name) if name is not None else name_from(f"debug_{path.rsplit('/', 1)[-1]}")
    own = own_folder("debug")
    root: str | Path = own.name if directory is None else os.fspath(directory)
    place = _Place(location(root), location(os.fspath(store) if store is not None else f"{root}/store"), called, own)
    try:
        return DebugSession(build_query, path, at, place=place, mode=mode, spark=spark or session())
    except BaseException:
        own.cleanup()
        raise
