"""The branches of a debug session: forks of the original, and forks of those forks."""

from __future__ import annotations

from dataclasses import dataclass, field

from pyspark.sql import SparkSession

from streamstate.errors import EpochGoneError
from streamstate.replay.forks.make_fork import NewFork, fork
from streamstate.replay.stepping.breakpoints import ERROR, Until, breakpoint_at
from streamstate.replay.stepping.fork_capture import ForkCapture
from streamstate.replay.stepping.fork_runner import ForkRunner
from streamstate.replay.stepping.step import EpochLoop
from streamstate.replay.stepping.step_report import StepReport
from streamstate.snapshots.calls.checks import BuildQuery
from streamstate.snapshots.calls.progress_callback import ProgressCallback
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.checkpoint.filesystem import files_for
from streamstate.snapshots.store.layout import Layout
from streamstate.snapshots.store.names import name_from, unused
from streamstate.snapshots.store.registry import check_store


@dataclass(frozen=True)
class Branch:
    """A branch of a debug session, or the original.

    Attributes:
        name: its name in the session's store.
        parent: the name of the branch it was forked from; None for the original.
        epoch: the last epoch that it shares with its parent; None for the original.
        newest: its newest epoch.
        checkpoint: its checkpoint.
        current: whether the session is on it.
    """

    name: str
    parent: str | None
    epoch: int | None
    newest: int | None
    checkpoint: str
    current: bool = False


@dataclass(eq=False)
class DebugBranch:
    """A fork on which a session runs epochs.

    Args:
        parent: the branch it was forked from; None: the original.
        parent_name: the parent's name in the store.
        forked_at: the last epoch that it shares with its parent.
        newest: its newest committed epoch.
    """

    name: str
    parent: DebugBranch | None
    parent_name: str
    checkpoint: str
    forked_at: int
    newest: int
    original: str
    capture: ForkCapture
    spark: SparkSession

    def step(
        self, build_query: BuildQuery, epochs: int, until: Until, mode: str, progress: ProgressCallback | None
    ) -> StepReport:
        """Run its next epochs; see :meth:`streamstate.Checkpoint.step`."""
        point = breakpoint_at(until)
        runner = ForkRunner(
            build_query, self.checkpoint, self.original, self.spark, mode=mode, store=self.capture.layout
        )
        loop = EpochLoop(runner, self.capture, point, until == ERROR, capture_each=True, progress=progress)
        try:
            return loop.run(epochs)
        finally:
            self.newest = max(self.newest, runner.epoch)

    def path(self) -> list[tuple[int, DebugBranch]]:
        """Return the epochs that lead to the branch's newest, each with the branch that ran it."""
        lineage = [self]
        while (parent := lineage[-1].parent) is not None:
            lineage.append(parent)
        path: dict[int, DebugBranch] = {}
        # Oldest first: after the epoch it was forked at, a branch has its own epochs.
        for branch in reversed(lineage):
            path = {epoch: owner for epoch, owner in path.items() if epoch < branch.forked_at}
            path |= dict.fromkeys(range(branch.forked_at, branch.newest + 1), branch)
        return sorted(path.items(), key=lambda pair: pair[0])

    def describe(self, *, current: bool) -> Branch:
        """Return the public description of the branch."""
        return Branch(self.name, self.parent_name, self.forked_at, self.newest, self.checkpoint, current)


@dataclass(eq=False)
class BranchTree:
    """All branches of a session, in the order in which they were made."""

    original: str
    directory: str
    """Where forks go."""
    store: str
    name: str
    """What their names begin with."""
    spark: SparkSession
    branches: list[DebugBranch] = field(default_factory=list, init=False)

    def begin(self, at: int | None) -> DebugBranch:
        """Return the first branch; without an epoch, it starts at the oldest epoch that can be forked."""
        if at is not None:
            return self._fork(None, at)
        for epoch in CheckpointFiles(self.original, self.spark).committed()[:-1]:
            try:
                return self._fork(None, epoch)
            except EpochGoneError:
                continue  # the commit log lists epochs whose state is gone
        return self._fork(None, None)

    def branch_off(self, branch: DebugBranch, epoch: int) -> DebugBranch:
        """Return a new branch from an epoch of a branch."""
        parent: DebugBranch | None = branch
        while parent is not None and epoch <= parent.forked_at:
            # Where it was forked, a branch equals its parent, and the parent also has the epochs before.
            parent = parent.parent
        return self._fork(parent, epoch)

    def remove(self, branch: DebugBranch) -> None:
        """Delete a branch on which nothing was run."""
        self.branches.remove(branch)
        files_for(self.spark, branch.checkpoint).remove_tree(branch.checkpoint)

    def describe(self, current: DebugBranch) -> list[Branch]:
        """Return the original, and all branches."""
        committed = CheckpointFiles(self.original, self.spark).committed()
        newest = committed[-1] if committed else None
        original = Branch(self._original_name(), None, None, newest, self.original)
        return [original, *(branch.describe(current=branch is current) for branch in self.branches)]

    def _fork(self, parent: DebugBranch | None, epoch: int | None) -> DebugBranch:
        taken = [*check_store(Layout.at(self.store)), *(branch.name for branch in self.branches)]
        name = unused(self.name, taken)
        source = self.original if parent is None else parent.checkpoint
        made: NewFork = fork(source, f"{self.directory}/{name}", at=epoch, spark=self.spark)
        branch = DebugBranch(
            name,
            parent,
            self._original_name() if parent is None else parent.name,
            made.path,
            made.epoch,
            made.epoch,
            self.original,
            ForkCapture(made.path, self.store, name, self.spark),
            self.spark,
        )
        self.branches.append(branch)
        return branch

    def _original_name(self) -> str:
        query_id = CheckpointFiles(self.original, self.spark).query_id
        for query in check_store(Layout.at(self.store)).values():
            if query.query_id == query_id:
                return query.name
        return name_from(self.original.rsplit("/", 1)[-1])
