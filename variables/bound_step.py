"""A step of a query that uses shared variables: its epoch is bound to what the original's was, or to other values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from streamstate.errors import InvalidArgumentError
from streamstate.snapshots.checkpoint.bindings import Binding, binding_in, bound_version, is_binding
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from streamstate.variables.shared_variable import SharedVariable


@dataclass
class BoundStep:
    """Binds the epochs of a fork.

    Args:
        original: the checkpoint that the fork follows.
        fork: the fork.
        values: what some variables are to be instead, by name.
    """

    original: CheckpointFiles
    fork: CheckpointFiles
    values: Mapping[str, Any]
    _variables: dict[str, SharedVariable] = field(default_factory=dict, init=False)

    def bound(self, frame: DataFrame) -> DataFrame:
        """Return the query's frame with the source that binds its epochs, which code may leave out."""
        binding = self._binding()
        if binding is None:
            self._refuse_values({})
            return frame
        from streamstate.variables.query_with_variables import variables_in, with_variables

        self._variables = variables_in(frame, binding)
        self._refuse_values(self._variables)
        return with_variables(frame, list(self._variables.values()), self.fork.path)

    def rebound(self, logs: Mapping[str, str], epoch: int) -> dict[str, str]:
        """Return the logs that an epoch is planned with, by path, bound to the values that were given."""
        texts = dict(logs)
        if not self.values or not self._variables:
            return texts
        from streamstate.variables.query_with_variables import overridden

        name = f"offsets/{epoch}"
        lines = texts[name].split("\n")
        for at, line in enumerate(lines):
            source, brace, rest = line.partition("{")
            if at > 1 and brace and is_binding(brace + rest):
                binding = Binding.of_offset(json.loads(brace + rest))
                made = overridden(binding, self.values, self._variables, self.fork.query_id)
                lines[at] = source + json.dumps(made.offset())
        texts[name] = "\n".join(lines)
        return texts

    def run(self, frame: DataFrame) -> AbstractContextManager[None]:
        """Within the block, the fork's tasks know what they are bound to."""
        if not self._variables:
            return nullcontext()
        from streamstate.variables.query_with_variables import bound_run

        return bound_run(frame, self.fork.path)

    def settle(self, epoch: int) -> None:
        """Merge what an epoch has contributed, into the fork's own branch."""
        if not self._variables:
            return
        from streamstate.variables.epoch_binding import take_in_branch
        from streamstate.variables.in_tasks import log_of

        planned = self.fork.planned(epoch)
        query = self.fork.query_id
        for variable in self._variables.values():
            start = None if planned is None else bound_version(planned.offsets, variable.name)
            take_in_branch(log_of(variable.declaration, variable.transport, query), query, epoch, start)

    def _binding(self) -> Binding | None:
        newest = max(self.fork.committed(), default=-1)
        for checkpoint, epoch in ((self.fork, newest), (self.original, newest + 1)):
            planned = checkpoint.planned(epoch) if epoch >= 0 else None
            found = None if planned is None else binding_in(planned.offsets)
            if found is not None:
                return found
        return None

    def _refuse_values(self, known: Mapping[str, object]) -> None:
        for name in self.values:
            if name not in known:
                raise InvalidArgumentError(
                    f"The epochs of {self.original.path} are not bound to {name!r}, so it cannot be given a value.\n"
                    f"They are bound to: {', '.join(known) or 'no shared variables'}."
                )
