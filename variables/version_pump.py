"""Writes the versions that a running query makes to the store, in the background of the process that runs it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from streamstate.errors import StreamStateError, first_line
from streamstate.snapshots.checkpoint.bindings import bound_version
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.variables.epoch_binding import take_in_branch
from streamstate.variables.in_tasks import log_of
from streamstate.variables.query_with_variables import branches_of
from streamstate.variables.shared_variable import SharedVariable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_INTERVAL = 0.5


class VersionPump:
    """Records a query's variables twice a second, and once more when the query has ended.

    Then it also merges what the last epoch contributed, which no later epoch did.
    """

    def __init__(
        self,
        variables: Sequence[SharedVariable],
        checkpoint: str,
        spark: SparkSession,
        goes_on: Callable[[], bool],
    ) -> None:
        self._variables = variables
        self._checkpoint = CheckpointFiles(checkpoint, spark)
        self._branches = branches_of([variable.name for variable in variables], checkpoint, spark)
        self._goes_on = goes_on
        self._ended = threading.Event()
        self.error: str | None = None
        """The error of the last attempt in one line; the attempt is repeated."""
        name = f"streamstate-versions-{'-'.join(variable.name for variable in variables)[:50]}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Record what there is, then end. The query has ended before."""
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(_INTERVAL) and self._goes_on():
            self._once(last=False)
        self._once(last=True)

    def _once(self, *, last: bool) -> None:
        try:
            for variable in self._variables:
                if last:
                    self._take_in(variable)
                variable.record()
            self.error = None
        except StreamStateError as error:
            self.error = first_line(error)

    def _take_in(self, variable: SharedVariable) -> None:
        committed = max(self._checkpoint.committed(), default=-1)
        if committed < 0:
            return
        planned = self._checkpoint.planned(committed)
        start = None if planned is None else bound_version(planned.offsets, variable.name)
        log = log_of(variable.declaration, variable.transport, self._branches[variable.name])
        take_in_branch(log, self._checkpoint.query_id, committed, start)
