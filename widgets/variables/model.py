"""The view of a shared variable: its value, how it changed, and from which epoch on a query saw it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Protocol, TypeAlias

from streamstate.errors import InvalidArgumentError, UnknownQueryError
from streamstate.snapshots.checkpoint.bindings import relation_of
from streamstate.snapshots.store.entries import Entry
from streamstate.state_inspect import History, open_store
from streamstate.state_inspect.bound_versions import BoundVersions
from streamstate.widgets.charts_and_words import KIND, ChartsAndWords
from streamstate.widgets.model import NoSelection, ViewModel
from streamstate.widgets.variables.drawing import ITEMS, QueryBeside, VariableFacts, drawn
from streamstate.widgets.variables.recorded_variable import RecordedVariable
from streamstate.widgets.view import View

if TYPE_CHECKING:
    from streamstate.state_inspect import Store
    from streamstate.variables.shared_variable import SharedVariable

NEWEST = 1_000
"""How many of the newest versions, and epochs of the query beside them, are drawn."""
_LISTED = 50
"""How many of the newest versions of a list are read, to find out which added its items."""


class Started(Protocol):
    """A query that was started here, as :class:`streamstate.Running`.

    Attributes:
        name: its name in the store.
        store: the store's path.
    """

    name: str
    store: str


Query: TypeAlias = "History | Started"


class FollowedQuery:
    """A query's history, as soon as there is one.

    Args:
        query: the query.

    Raises:
        InvalidArgumentError: it is no query.
    """

    def __init__(self, query: Query) -> None:
        self._history = query if isinstance(query, History) else None
        self._store: Store | None = None
        if self._history is None and not isinstance(getattr(query, "store", None), str):
            raise InvalidArgumentError(
                f"Invalid query={query!r}: expected a query's history, store['delays'], or what ss.start returned."
            )
        self.name = query.name
        self._path = "" if isinstance(query, History) else query.store

    def history(self) -> History | None:
        """Its history; None if it has not been captured yet."""
        if self._history is None:
            self._store = self._store or open_store(self._path)
            try:
                self._history = self._store[self.name]
            except UnknownQueryError:
                return None
        return self._history


class VariableModel(ViewModel[NoSelection]):
    """Reads a variable's versions from its store, to which it first writes those that are missing there.

    Args:
        versions: the variable's history.
        variable: the variable, whose newest versions may not be in the store yet; None: the store has all.
        query: the query beside it.
    """

    kind = KIND

    def __init__(self, versions: History, variable: SharedVariable | None, query: FollowedQuery | None) -> None:
        self._recorded = RecordedVariable(versions.recorded)
        self._branches = versions.recorded.lineage
        self.name = self._recorded.name
        self._variable = variable
        self._query = query
        self._bound: BoundVersions | None = None
        self._written = -1
        self._lock = threading.Lock()

    def newest(self) -> object:
        """Return the newest version, and the newest epoch of the query."""
        self._record()
        history = None if self._query is None else self._query.history()
        entries = None if history is None else history.recorded.entries()
        epochs = (len(entries), entries[-1].epoch, entries.generation) if entries else None
        return self._recorded.state(), epochs

    def view(self, selection: NoSelection) -> ChartsAndWords:
        """Return the variable in words, plots and lists."""
        self._record()
        recorded = self._recorded
        with self._lock:
            versions = recorded.newest(_LISTED if recorded.is_list else NEWEST)
            text = recorded.text(versions[-1].number) if versions else ""
            entries = recorded.map_entries(versions[-1].number, ITEMS) if versions else []
            names = {branch.query_id: branch.name for branch in self._branches.branches()}
            query = None if self._query is None else self._beside(self._query)
            return drawn(VariableFacts(recorded.declaration, versions, text, entries, query, names))

    def _record(self) -> None:
        """Write to the store what it lacks."""
        if self._variable is not None and self._variable.log.head() != self._written:
            self._written = self._variable.record()

    def _beside(self, query: FollowedQuery) -> QueryBeside:
        history = query.history()
        if history is None:
            return QueryBeside(query.name)
        if self._bound is None:
            self._bound = BoundVersions(history.recorded)
        branch = self._branches.branch(query.name)
        rows = _counted(history, history.recorded.entries()[-NEWEST:])
        return QueryBeside(query.name, branch.query_id if branch else "", rows, list(self._bound.of(self.name)))


def _counted(history: History, entries: list[Entry]) -> dict[int, int | None]:
    """Return the state rows of epochs: those that capture counted, and others if they are soon read."""
    recorded = history.recorded
    captured = [entry for entry in entries if entry.captured]
    if captured and any(entry.rows is None for entry in captured):
        for table in recorded.tables():
            if recorded.is_soon_read(table, captured[0].epoch):
                recorded.counted_rows(captured, table)
        captured = recorded.with_counts(captured)
    return {entry.epoch: entry.rows for entry in captured}


class VariableView(View[NoSelection]):
    """Shows a shared variable: its value, who made it, and how it changed.

    Numbers are drawn as steps, the increments of counters as bars, and a list's newest items with their epochs. New
    versions appear as they come about. At the end of a notebook's cell, a variable shows this view.

    Args:
        variable: the variable, or its history, ``store["shared.limit"]``.
        query: a query that uses it: its history, or what :func:`streamstate.start` returned. Values are then drawn by
            the epochs that saw them, above that query's state rows.

    Raises:
        InvalidArgumentError: one of them is something else.

    Example:
        >>> VariableView(limit, query=store["delays"])
        limit: limit is 45: version 1, set by ...@..., ... No captured epoch of delays was bound to it.
    """

    def __init__(self, variable: SharedVariable | History, *, query: Query | None = None) -> None:
        own, versions = _parts(variable)
        followed = None if query is None else FollowedQuery(query)
        super().__init__(VariableModel(versions, own, followed), NoSelection())


def _parts(variable: SharedVariable | History) -> tuple[SharedVariable | None, History]:
    """Return the variable, if that is what was given, and its history."""
    if isinstance(variable, History):
        return None, variable
    from streamstate.errors import InvalidArgumentError
    from streamstate.variables.shared_variable import SharedVariable

    if not isinstance(variable, SharedVariable):
        raise InvalidArgumentError(
            f"Invalid variable {variable!r}.\nExpected what ss.shared returns, or its history, store['shared.limit']."
        )
    variable.record()
    store = open_store(variable.store, storage_options=variable.storage_options)
    return variable, store[relation_of(variable.name)]
