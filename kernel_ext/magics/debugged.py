"""Which query a debugging verb means, and the code that makes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from streamstate.magics.notebook import Notebook
from streamstate.snapshots.errors import InvalidArgumentError, NotAStoreError, QueryError, UnknownQueryError
from streamstate.snapshots.lineage import Kin, Lineage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from streamstate.magics.launch import Launch

__all__ = ["Code", "Debugged", "code_of", "debugged", "function_called"]


@dataclass(frozen=True)
class Debugged:
    """A query of a store, whether this notebook runs it, follows it, made it as a fork, or only finds it there."""

    name: str
    store: str
    checkpoint: str
    parent: str | None = None
    """The query that it was forked from."""
    forked_at: int | None = None
    """The last epoch that both share."""


@dataclass(frozen=True)
class Code:
    """What makes a query: a function that gives its streaming DataFrame, and its output mode."""

    build: Callable[[], DataFrame]
    mode: str = "update"


def debugged(notebook: Notebook, name: str) -> Debugged:
    """The query of a name: one of this notebook, or of the store in use.

    Raises:
        UnknownQueryError: there is no such query in either.
    """
    running = notebook.running.get(name)
    kin = _kin(notebook, name)
    if running is not None:
        forked = (kin.parent, kin.parent_epoch) if kin is not None else (None, None)
        return Debugged(name, running.store, running.checkpoint, *forked)
    if kin is None:
        known = [*notebook.running, *(one.name for one in _queries(notebook, None))]
        if not known:
            raise UnknownQueryError(
                f"There is no query {name!r}: this notebook runs none, and its store has none.\n"
                f"Start one with %%stream {name}, or name the store that has it: %config StreamState.store = …"
            )
        raise UnknownQueryError.among("query", name, dict.fromkeys(known), where="in this notebook and its store")
    return Debugged(name, notebook.store_path(None, name), kin.checkpoint, kin.parent, kin.parent_epoch)


def code_of(notebook: Notebook, query: Debugged, given: str | None, mode: str | None) -> Code:
    """The code of a query: what was named, what it was forked with, what this notebook started it or its parent with.

    Args:
        notebook: whose variables are meant.
        query: the query.
        given: the variable that a line names.
        mode: the output mode that a line names.

    Raises:
        QueryError: this notebook does not have the code.
        InvalidArgumentError: the variable is no code.
    """
    if given is not None:
        known = _known(notebook, query)
        return Code(_builder(notebook, given), mode or (known.mode if known else "update"))
    found = _known(notebook, query)
    if found is None:
        raise QueryError(
            f"The code of {query.name} is not known here: this notebook did not start it.\n"
            "Define a function that returns its streaming DataFrame, and name it: --query build_query."
        )
    return Code(found.build, mode or found.mode)


def function_called(notebook: Notebook, name: str) -> Callable[[], DataFrame]:
    """A function of the notebook.

    Raises:
        InvalidArgumentError: the name is none of a function.
    """
    value = notebook.shell.user_ns.get(name)
    if not callable(value):
        raise InvalidArgumentError(
            f"{name} is {_what(value)}, not a function.\nDefine one in a cell: def {name}(): return …"
        )
    function: Callable[[], DataFrame] = value
    return function


def _known(notebook: Notebook, query: Debugged) -> Code | None:
    """The code that this notebook has of a query, or of the one that it was forked from."""
    passed: set[str] = set()
    name: str | None = query.name
    while name is not None and name not in passed:
        passed.add(name)
        if name in notebook.codes:
            return notebook.codes[name]
        running = notebook.running.get(name)
        if running is not None and running.launch is not None:
            return _started(running.launch)
        kin = _kin(notebook, name)
        name = None if kin is None else kin.parent
    return None


def _started(launch: Launch) -> Code:
    """The code of a query that this notebook started; one streaming DataFrame can be started any number of times."""
    return Code(lambda: launch.frame, launch.mode)


def _builder(notebook: Notebook, name: str) -> Callable[[], DataFrame]:
    """A function, or a streaming DataFrame, of the notebook."""
    value: Any = notebook.shell.user_ns.get(name)
    if getattr(value, "isStreaming", False):
        return lambda: value
    if callable(value):
        return function_called(notebook, name)
    raise InvalidArgumentError(
        f"--query {name}: {name} is {_what(value)}.\n"
        "It takes the name of a streaming DataFrame, or of a function without arguments that returns one."
    )


def _what(value: object) -> str:
    return "not defined in this notebook" if value is None else f"a {type(value).__name__}"


def _kin(notebook: Notebook, name: str) -> Kin | None:
    return next((one for one in _queries(notebook, name) if one.name == name), None)


def _queries(notebook: Notebook, name: str | None) -> tuple[Kin, ...]:
    """The queries of the store of a query, or of the store in use; none where that is not there yet."""
    try:
        return Lineage(notebook.open(query=name).layout).queries()
    except NotAStoreError:
        return ()
