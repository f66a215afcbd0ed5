"""The marks of a timeline for set shared variables, and for a policy's decisions: the first epoch that saw them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from streamstate.errors import UnknownNameError
from streamstate.snapshots.checkpoint.bindings import LEVEL, relation_of
from streamstate.snapshots.store.control_table import Control
from streamstate.state_inspect.bound_versions import BoundFrom, BoundVersions
from streamstate.state_inspect.captured_query import CapturedQuery
from streamstate.state_inspect.control import acted_from, moved_words
from streamstate.widgets.variables.recorded_variable import RecordedVariable


@dataclass(frozen=True)
class VariableMark:
    """A version that was set, and the first epoch that saw it. Its value is read when it is shown."""

    epoch: int
    number: int
    variable: RecordedVariable

    @cached_property
    def text(self) -> str:
        """Return the setting in words, such as ``limit = 45``."""
        return f"{self.variable.name} = {self.variable.text(self.number)}"

    def __str__(self) -> str:
        return f"{self.text} from epoch {self.epoch} on."


@dataclass(frozen=True)
class DecisionMark:
    """A decision of a load policy, and the first epoch that it applied to."""

    epoch: int
    text: str

    def __str__(self) -> str:
        return f"{self.text} from epoch {self.epoch} on."


class VariableMarks:
    """Finds the marks of a query. Of each version that an epoch saw, it looks once whether it was set or merged."""

    def __init__(self, query: CapturedQuery) -> None:
        self._query = query
        self._control = Control(query.layout, query.name)
        self._decided: tuple[object, list[DecisionMark]] = None, []
        self._bound = BoundVersions(query)
        self._variables: dict[str, _SetVersions | None] = {}

    def all(self) -> list[VariableMark | DecisionMark]:
        """Return the marks, ascending by epoch. Those of decisions replace those of the level that they set."""
        decided = self._decisions()
        found: list[VariableMark | DecisionMark] = [*decided]
        for name, versions in self._bound.all().items():
            if name.endswith(LEVEL) and decided:
                continue
            variable = self._variable(name)
            found += [] if variable is None else variable.marks(versions)
        return sorted(found, key=lambda mark: mark.epoch)

    def _decisions(self) -> list[DecisionMark]:
        entries = self._query.entries()
        at = entries[-1].epoch if entries else None, len(entries)
        if self._decided[0] != at:
            rows = self._control.rows()
            acted = acted_from(self._query, rows) if rows else {}
            found = [DecisionMark(acted[row.number], moved_words(row)) for row in rows if row.number in acted]
            self._decided = at, found
        return self._decided[1]

    def state(self) -> object:
        """Return a value that changes once the store has versions that it lacked, although epochs saw them."""
        known = self._variables.items()
        return [name for name, variable in known if variable is not None and variable.still_waits()]

    def _variable(self, name: str) -> _SetVersions | None:
        """Return the settings of a variable; None if the store lacks it, for example a partial copy."""
        if name not in self._variables:
            try:
                recorded = self._query.related(relation_of(name)).recorded
                self._variables[name] = _SetVersions(RecordedVariable(recorded))
            except UnknownNameError:
                self._variables[name] = None
        return self._variables[name]


class _SetVersions:
    """The versions of one variable that were set, among those that epochs saw."""

    def __init__(self, variable: RecordedVariable) -> None:
        self._variable = variable
        self._versions: Sequence[BoundFrom] = ()
        self._looked_at = 0
        self._waits_for = -1
        self._found: list[VariableMark] = []

    def still_waits(self) -> bool:
        """Check if an epoch saw a version that the store does not have yet."""
        return self._waits_for >= 0 and self._waits_for > self._variable.recorded_up_to

    def marks(self, versions: Sequence[BoundFrom]) -> list[VariableMark]:
        """The marks, given the versions that epochs saw: the same list as the last time, with those of new epochs."""
        if versions is not self._versions:  # retention dropped epochs, and all were read again
            self._versions, self._looked_at, self._found = versions, 0, []
        if self._looked_at == len(versions):
            return self._found
        recorded_up_to = self._variable.recorded_up_to
        for bound in versions[self._looked_at :]:
            if not bound.version.branch and bound.number > recorded_up_to:
                self._waits_for = bound.number
                break
            before = versions[self._looked_at - 1].number if self._looked_at else -1
            number = None if bound.version.branch else self._variable.newest_set(before, bound.number)
            if number is not None:
                self._found.append(VariableMark(bound.epoch, number, self._variable))
            self._looked_at += 1
        return self._found
