"""Stop a query, act on its checkpoint, and start it again, as ``%stream rescale``, ``promote`` and ``migrate`` do."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from streamstate.errors import QueryError
from streamstate.launch.launch import Launch
from streamstate.launch.running import RUNNING, Running
from streamstate.launch.starting import start_launch
from streamstate.magics.notebook_context import NotebookContext
from streamstate.magics.progress import CaptureProgress
from streamstate.operations.checkpoint import Checkpoint
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.spark.connect import classic_of

if TYPE_CHECKING:
    from streamstate.widgets.progress import Progress


@dataclass
class Interruption:
    """A query that is stopped while a verb acts on its checkpoint."""

    progress: Progress
    then: Launch | None = None
    """The launch with which the query continues after the block; None if the block starts it itself."""
    line: str = ""
    """The last line of the progress, to which the length of the interruption is added."""


@contextmanager
def interruption(
    notebook: NotebookContext, running: Running | None, *, stays: str, undo: Callable[[], object] | None = None
) -> Iterator[Interruption]:
    """Start a query again after the block if it ran before; if the block fails, as it was.

    Args:
        notebook: the notebook that runs the query.
        running: the query; None if the notebook does not run the query.
        stays: what an interrupt leaves behind.
        undo: called for a query that ran, if the block fails; by default, the query is started again as it was.
    """
    __tracebackhide__ = True
    before = running.launch if running is not None and running.state in RUNNING else None
    began = time.monotonic()
    with notebook.working(stays=stays, always=True) as progress:
        stopped = Interruption(progress)
        try:
            yield stopped
        except BaseException:
            if undo is not None and before is not None:
                undo()
            elif running is not None and before is not None:
                restart(notebook, before, running)
            raise
        if running is None or stopped.then is None:
            return
        if before is not None:
            restart(notebook, stopped.then, running)
            progress.line = f"{stopped.line}; it was stopped for {time.monotonic() - began:.1f} s."
        else:
            running.launch = stopped.then
            progress.line = f"{stopped.line}."


def own_launch(running: Running, call: str) -> Launch:
    """Return the launch of a query that this notebook started; refuse another one, and name the call for it."""
    if running.launch is None:
        raise QueryError(
            f"{running.name} was not started by this notebook, which therefore cannot stop and restart it.\n"
            f"Stop it where it runs, call {call}, and start it again there."
        )
    return running.launch


def restart(notebook: NotebookContext, launch: Launch, running: Running) -> Running:
    """Start a query of this notebook again from its checkpoint."""
    options = notebook.options(running.store)
    return start_launch(
        launch, running.store, notebook.running, every=running.every, storage_options=options, say=print
    )


def stop_captured(notebook: NotebookContext, running: Running, progress: Progress) -> None:
    """Stop a query at a committed epoch, and capture it, before another checkpoint continues."""
    ran = running.state in RUNNING
    running.stop(on_status=CaptureProgress(progress))
    spark, options = classic_of(notebook.spark()), notebook.options(running.store)
    if ran and running.launch is not None:
        from streamstate.launch.rescaling import finish_epoch

        finish_epoch(running.launch, CheckpointFiles(running.checkpoint.path, spark), progress.say)
    Checkpoint(running.checkpoint, storage_options=options).capture(running.store, running.name, spark=spark)
