"""A debug session: stepping forward and back through the epochs of a query; widgets and magics drive it."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import sqlglot
from pyspark.sql import SparkSession
from sqlglot import exp
from sqlglot.errors import SqlglotError

from streamstate.errors import InvalidArgumentError, InvalidSQLError, UnknownTableError, choices
from streamstate.replay.debugging.branches import Branch, BranchTree, DebugBranch
from streamstate.replay.stepping.breakpoints import Until
from streamstate.replay.stepping.step_report import StepReport
from streamstate.snapshots.calls.checks import BuildQuery, whole_number
from streamstate.snapshots.calls.progress_callback import ProgressCallback, long_call
from streamstate.snapshots.checkpoint.copying import temporary_folder
from streamstate.snapshots.checkpoint.filesystem import location
from streamstate.snapshots.spark.plan_graph import PlanGraph
from streamstate.snapshots.spark.session import given_session
from streamstate.snapshots.store.names import check_name, name_from
from streamstate.state_inspect import History
from streamstate.state_inspect.frames import as_column
from streamstate.state_inspect.sql.statement_policy import first_error

_RUN_UNTIL_EPOCHS = 1_000


class DebugSession:
    """Steps forward and back through a query's epochs, on forks of it; :meth:`Checkpoint.debug` starts one.

    It is thread-safe; calls run one after another. The original is only read. Going back changes nothing yet: the next
    step from there starts a new branch, and the branch that was left stays as it is.
    """

    def __init__(
        self,
        build_query: BuildQuery,
        tree: BranchTree,
        at: int | None,
        *,
        mode: str,
        temporary: tempfile.TemporaryDirectory[str],
    ) -> None:
        self.build_query = build_query
        """Returns the query; it may be replaced, which takes effect from the next step on."""
        self._tree, self._mode, self._temporary = tree, mode, temporary
        self._lock = threading.RLock()
        self._closed = False
        self._last: StepReport | None = None
        self._watches = _Watches()
        self._branch = tree.begin(at)
        self._epoch = self._branch.forked_at

    @property
    def epoch(self) -> int:
        """The session's current epoch."""
        return self._epoch

    @property
    def name(self) -> str:
        """The name of the current branch."""
        return self._branch.name

    @property
    def checkpoint(self) -> str:
        """The checkpoint of the current branch."""
        return self._branch.checkpoint

    @property
    def original(self) -> str:
        """The original's checkpoint."""
        return self._tree.original

    @property
    def store(self) -> str:
        """The store with the branches' epochs."""
        return self._tree.store

    @property
    def history(self) -> History:
        """The captured epochs of the current branch, including those after the current epoch."""
        with self._lock:
            return self._current().capture.history

    @property
    def last(self) -> StepReport | None:
        """The report of the last step; None before the first, and after going back."""
        return self._last

    @property
    def plan(self) -> PlanGraph | None:
        """The operators of the last epoch that was run; None before the first, and after going back."""
        with self._lock:
            return None if self._last is None else self._last.plan

    @long_call("The session is at its last complete epoch.")
    def step(self, n: int = 1, *, until: Until = None, progress: ProgressCallback | None = None) -> StepReport:
        """Run the next epochs; on a new branch, if the session has gone back.

        Args:
            n: the maximum number of epochs to run.
            until: where to stop earlier; see :meth:`streamstate.Checkpoint.step`.
            progress: called with a message and the share of the work that is done, from 0 to 1 (None: not known).

        Raises:
            QueryError, NotReplayableError, EpochGoneError, InvalidArgumentError: as
                :meth:`streamstate.Checkpoint.step`; the
                session stays at the last committed epoch.

        Example:
            >>> session.step(2).diff()
            <Diff of ...>
        """
        whole_number(n, "n")
        with self._lock:
            branch = self._current()
            if self._epoch < branch.newest:
                branch = self._tree.branch_off(branch, self._epoch)
            try:
                self._last = branch.step(self.build_query, n, until, self._mode, progress)
            except BaseException:
                self._last = None
                if branch is not self._branch and branch.newest == branch.forked_at:
                    self._tree.remove(branch)
                    raise
                # Some of the epochs may have been run.
                self._branch, self._epoch = branch, branch.newest
                raise
            self._branch, self._epoch = branch, branch.newest
            return self._last

    def run_until(
        self, condition: Until, *, epochs: int = _RUN_UNTIL_EPOCHS, progress: ProgressCallback | None = None
    ) -> StepReport:
        """Run until a breakpoint, the end of the original, or the maximum number of epochs.

        Args:
            condition: where to stop; see ``until`` of :meth:`streamstate.Checkpoint.step`.
            epochs: the maximum number of epochs to run.
            progress: called with a message and the share of the work that is done, from 0 to 1 (None: not known).

        Example:
            >>> session.run_until("max > 60").reason
            "max > 60 in epoch 13: carrier='HA', origin='JFK'"
        """
        return self.step(epochs, until=condition, progress=progress)

    def back(self, n: int = 1) -> int:
        """Go back by a number of epochs, at most to the first of the session; the next step starts a new branch.

        Returns:
            The current epoch.

        Raises:
            InvalidArgumentError: the session has fewer epochs.
        """
        whole_number(n, "n")
        with self._lock:
            return self.goto(self._epoch - n)

    @long_call("The session is at its last complete epoch.")
    def goto(self, epoch: int, *, progress: ProgressCallback | None = None) -> int:
        """Go to an epoch: back, or forward on the branch; epochs after its newest are run first.

        Args:
            epoch: its number.
            progress: called with a message and the share of the work that is done, from 0 to 1 (None: not known).

        Returns:
            The epoch of the session, which is an earlier one if the original ends before.

        Raises:
            InvalidArgumentError: the session has no such epoch.
        """
        with self._lock:
            branch = self._current()
            first = self._tree.branches[0].forked_at
            if type(epoch) is not int or epoch < first:
                raise InvalidArgumentError(
                    f"Invalid epoch {epoch!r}: the session starts at epoch {first}.\n"
                    f"Go to epoch {first} or later, or start another session with ss.Checkpoint(…).debug(…, at=…)."
                )
            if epoch != self._epoch:
                self._last = None
            self._epoch = min(epoch, branch.newest)
            if epoch > self._epoch:
                self.step(epoch - self._epoch, progress=progress)
            return self._epoch

    def watch(self, expression: str) -> None:
        """Watch the value of an SQL expression over a state table at each epoch.

        Args:
            expression: such as ``"max(delay)"`` if there is one table, or ``"count(*) FROM op0_left WHERE v > 3"``.

        Raises:
            InvalidSQLError: it does not parse, or does not return exactly one value.
            UnknownTableError, UnknownColumnError: it names a table or column that does not exist.

        Example:
            >>> session.watch("max(max)")
        """
        with self._lock:
            self._watches.add(expression, self._current(), self._epoch)

    def unwatch(self, expression: str) -> None:
        """Stop watching an expression.

        Raises:
            InvalidArgumentError: it is not watched.
        """
        with self._lock:
            self._watches.remove(expression)

    def watches(self) -> pd.DataFrame:
        """Return the values of the watched expressions along the branch.

        Columns: ``epoch``, ``branch`` (the one that ran the epoch), and one for each expression.

        Example:
            >>> session.watch("sum(count)")
            >>> session.watches()
               epoch       branch  sum(count)
            0     12  debug_delays          78
        """
        with self._lock:
            return self._watches.values(self._current().path())

    def branches(self) -> list[Branch]:
        """Return the original and all branches, in the order in which they were made."""
        with self._lock:
            return self._tree.describe(self._branch)

    def close(self) -> None:
        """End the session, and delete its temporary folder. Closing it again does nothing."""
        with self._lock:
            self._closed = True
            self._temporary.cleanup()

    def __enter__(self) -> DebugSession:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        if self._closed:
            return f"<DebugSession of {self.original}: closed>"
        count = len(self._tree.branches)
        return (
            f"<DebugSession of {self.original}: at epoch {self._epoch} of {self.name} (newest {self._branch.newest}),"
            f" {count} {'branch' if count == 1 else 'branches'}>"
        )

    def _current(self) -> DebugBranch:
        """Return the current branch, if the session is open."""
        if self._closed:
            raise InvalidArgumentError("This session is closed.\nStart another one with Checkpoint.debug.")
        return self._branch


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
    """Start a session at an epoch of a query, to step from there, forward and back.

    :meth:`streamstate.Checkpoint.debug` describes the arguments and errors.
    """
    path = location(os.fspath(original))
    prefix = check_name(name) if name is not None else name_from(f"debug_{path.rsplit('/', 1)[-1]}")
    temporary = temporary_folder("debug")
    root: str | Path = temporary.name if directory is None else os.fspath(directory)
    captures = location(os.fspath(store) if store is not None else f"{root}/store")
    try:
        tree = BranchTree(path, location(root), captures, prefix, given_session(spark))
        return DebugSession(build_query, tree, at, mode=mode, temporary=temporary)
    except BaseException:
        temporary.cleanup()
        raise


class _Watches:
    """The expressions that a session watches, and their values computed so far."""

    def __init__(self) -> None:
        self._expressions: list[str] = []
        self._values: dict[tuple[str, int, str], Any] = {}

    def add(self, expression: str, branch: DebugBranch, epoch: int) -> None:
        """Watch an expression, if it has a value at the session's epoch."""
        self._value(expression, epoch, branch)
        if expression not in self._expressions:
            self._expressions.append(expression)

    def remove(self, expression: str) -> None:
        """Stop watching an expression."""
        if expression not in self._expressions:
            raise InvalidArgumentError(f"{expression!r} is not watched.\nWatched: {choices(self._expressions)}.")
        self._expressions.remove(expression)

    def values(self, path: Iterable[tuple[int, DebugBranch]]) -> pd.DataFrame:
        """One row per epoch, one column per expression."""
        steps = list(path)
        frame = pd.DataFrame([(epoch, branch.name) for epoch, branch in steps], columns=["epoch", "branch"])
        for expression in self._expressions:
            frame[expression] = as_column([self._value(expression, epoch, branch) for epoch, branch in steps])
        return frame

    def _value(self, expression: str, epoch: int, branch: DebugBranch) -> Any:
        place = (branch.name, epoch, expression)
        if place not in self._values:
            store = branch.capture.store
            tables = store[branch.name].at(epoch).tables()
            result = store.sql(watch_query(expression, branch.name, tables), at=epoch).to_arrow()
            if (result.num_rows, result.num_columns) != (1, 1):
                raise InvalidSQLError(
                    f"{expression!r} returns {result.num_rows} rows of {result.num_columns} columns; a watch needs"
                    " exactly one value.\nWrite an aggregate, such as max(column), or count(*) FROM op0 WHERE …"
                )
            self._values[place] = result.column(0)[0].as_py()
        return self._values[place]


def watch_query(expression: str, branch: str, tables: Sequence[str]) -> str:
    """Return the SQL query for a watched expression on one branch; with only one state table, FROM is optional."""
    try:
        parsed = sqlglot.parse_one(f"SELECT {expression}", read="duckdb")
    except SqlglotError as error:
        raise InvalidSQLError(
            f"The watch {expression!r} does not parse: {first_error(error)}\nWrite it as you would after SELECT."
        ) from error
    named = [*parsed.find_all(exp.Table)]
    if not named and isinstance(parsed, exp.Select):
        if len(tables) != 1:
            raise UnknownTableError(
                f"{branch} has {len(tables)} state tables, and {expression!r} names none of them.\n"
                f"Write it as: {expression} FROM {tables[0] if tables else 'table'}. Tables: {choices(tables)}."
            )
        return parsed.from_(_relation(branch, tables[0])).sql(dialect="duckdb")
    for table in named:
        chosen = table.name if table.name in tables else tables[0] if len(tables) == 1 else None
        if chosen is None:
            raise UnknownTableError.among("state table", table.name, tables, where=f"in {branch}")
        alias = table.alias or table.name
        table.replace(exp.alias_(_relation(branch, chosen), alias, table=True, quoted=True))
    return parsed.sql(dialect="duckdb")


def _relation(branch: str, table: str) -> exp.Table:
    return exp.table_(table, db=branch, quoted=True)
