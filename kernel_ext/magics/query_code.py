"""Arguments of the verbs of ``%stream`` that run a query again: the query, its code, and changes to its state."""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from streamstate.command_line.argument_types import count, identifier
from streamstate.errors import (
    InvalidArgumentError,
    NameTakenError,
    NotAStoreError,
    QueryError,
    SparkConnectError,
    UnknownQueryError,
)
from streamstate.launch.launch import Launch
from streamstate.magics.arguments import MagicParser
from streamstate.magics.notebook_context import NotebookContext, QueryCode
from streamstate.operations.checkpoint import Checkpoint
from streamstate.snapshots.spark.connect import is_of_connect
from streamstate.snapshots.spark.output_modes import MODES
from streamstate.snapshots.store.names import check_name
from streamstate.snapshots.store.registry import Branch, Lineage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

T = TypeVar("T")

_DEFINE_FUNCTION = "Define a function that returns its streaming DataFrame, and pass its name: --query build_query."


def add_changed_code(parser: MagicParser) -> None:
    """Add the changed code of a query, and its output mode."""
    parser.add(
        "code",
        metavar="FRAME_OR_FUNCTION",
        type=identifier,
        completes="code",
        help="the changed code: a streaming DataFrame, or a function that returns it, as Spark Connect needs",
    )
    parser.add("--mode", choices=MODES, help="output mode (default: the query's)")


def add_function(parser: MagicParser) -> None:
    """Add the function that another process runs."""
    parser.add(
        "code",
        metavar="FUNCTION",
        type=identifier,
        completes="code",
        help="a function that returns the query's streaming DataFrame, and makes all that it needs",
    )


def add_code(parser: MagicParser, default: str = "default: the query's own code") -> None:
    """Add the options that name a query's code."""
    parser.add(
        "--query",
        metavar="VAR",
        type=identifier,
        completes="code",
        help=f"the streaming DataFrame, or a function that returns it, as Spark Connect needs ({default})",
    )
    parser.add("--mode", choices=MODES, help="output mode (default: the query's)")


def add_edits(parser: MagicParser) -> None:
    """Add the options that change a fork's state."""
    parser.add("--partitions", metavar="K", type=count, help="repartition the state into this many partitions")
    parser.add(
        "--edit",
        metavar="SQL",
        action="append",
        help="edit the state first: \"UPDATE op0 SET max = 0 WHERE carrier = 'HA'\"; may be repeated",
    )


def edits_of(args: argparse.Namespace) -> dict[str, Any]:
    """The changes to a fork's state that a line asks for."""
    given = {"partitions": args.partitions, "edit": args.edit}
    return {name: value for name, value in given.items() if value is not None}


def check_free(notebook: NotebookContext, store: str, name: str) -> None:
    """Refuse a name for a new query that is invalid, or that the store or this notebook already has."""
    check_name(name)
    if name in notebook.running or name in notebook.open(store):
        raise NameTakenError(f"There is already a query {name!r}.\nUse another name, such as --as {name}_2.")


@dataclass(frozen=True)
class KnownQuery:
    """A query of a store, whether this notebook started it, follows it, forked it, or only finds it there."""

    name: str
    store: str
    checkpoint: str
    parent: str | None = None
    """The query that it was forked from."""
    forked_at: int | None = None
    """The last epoch that both share."""


def known_query(notebook: NotebookContext, name: str) -> KnownQuery:
    """A query of this notebook, or of the store in use."""
    running = notebook.running.get(name)
    branch = _branch(notebook, name)
    if running is not None:
        forked = (branch.parent, branch.parent_epoch) if branch is not None else (None, None)
        return KnownQuery(name, running.store, running.checkpoint.path, *forked)
    if branch is None:
        known = [*notebook.running, *(query.name for query in _branches(notebook, None))]
        if not known:
            raise UnknownQueryError(
                f"There is no query {name!r}: neither this notebook nor its store has any queries.\n"
                f"Start one with %%stream {name}, or set the store that has it: %config StreamState.store = …"
            )
        raise UnknownQueryError.among("query", name, dict.fromkeys(known), where="in this notebook and its store")
    return KnownQuery(name, notebook.store_path(None, name), branch.checkpoint, branch.parent, branch.parent_epoch)


def code_of(notebook: NotebookContext, query: KnownQuery, given: str | None, mode: str | None) -> QueryCode:
    """The code of a query: the variable given, else what it was forked with, else what this notebook started."""
    known = known_code(notebook, query)
    if given is not None:
        return QueryCode(builder(notebook, given), mode or (known.mode if known else "update"))
    if known is None:
        raise QueryError(
            f"The code of {query.name} is unknown, because this notebook did not start it.\n{_DEFINE_FUNCTION}"
        )
    if known.in_server:
        raise SparkConnectError(f"The code of {query.name} is in the Spark Connect server only.\n{_DEFINE_FUNCTION}")
    return QueryCode(known.build, mode or known.mode)


@dataclass(frozen=True)
class CodeRun:
    """A verb that runs a query's code beside the query."""

    notebook: NotebookContext
    query: KnownQuery
    code: QueryCode
    output: str | None
    """The variable that keeps the result."""

    @classmethod
    def of(cls, notebook: NotebookContext, args: argparse.Namespace, given: str | None) -> CodeRun:
        """Return the run of a line's query, with the code in the variable ``given`` or the query's own."""
        query = known_query(notebook, args.name)
        return cls(notebook, query, code_of(notebook, query, given, args.mode), args.output)

    def report(
        self,
        method: Callable[..., T],
        *,
        stays: str,
        line: Callable[[T], str],
        always: bool = False,
        **arguments: Any,
    ) -> T:
        """Call a method of the query's checkpoint with the code, show its progress, and keep what it returns.

        Args:
            method: of :class:`~streamstate.Checkpoint`.
            stays: what an interrupt leaves behind.
            line: returns the last line of the progress.
            always: whether that line is shown after quick work too.
            arguments: the method's other arguments.
        """
        __tracebackhide__ = True
        checkpoint = Checkpoint(self.query.checkpoint, storage_options=self.notebook.options(self.query.store))
        with self.notebook.working(stays=stays, always=always) as progress:
            if "progress" in inspect.signature(method).parameters:
                arguments["progress"] = progress.of(arguments.get("name") or self.query.name)
            result = method(checkpoint, self.code.build, mode=self.code.mode, spark=self.notebook.spark(), **arguments)
            progress.line = line(result)
        self.notebook.assign(self.output, result)
        return result


def known_code(notebook: NotebookContext, query: KnownQuery) -> QueryCode | None:
    """The code of a query, or of the nearest query that it was forked from, if this notebook knows it."""
    seen: set[str] = set()
    name: str | None = query.name
    while name is not None and name not in seen:
        seen.add(name)
        if name in notebook.codes:
            return notebook.codes[name]
        running = notebook.running.get(name)
        if running is not None and running.launch is not None:
            return _launched_code(running.launch)
        branch = _branch(notebook, name)
        name = None if branch is None else branch.parent
    return None


def _launched_code(launch: Launch) -> QueryCode:
    """The code of a query that this notebook started: a streaming DataFrame can be started any number of times."""
    return QueryCode(lambda: launch.frame, launch.mode, in_server=launch.on_connect)


def builder(notebook: NotebookContext, name: str) -> Callable[[], DataFrame]:
    """A function that returns a streaming DataFrame, from a variable of the notebook."""
    value: Any = notebook.shell.user_ns.get(name)
    if is_of_connect(value):
        raise SparkConnectError(
            f"{name} is a DataFrame of Spark Connect, which exists in the server only.\n{_DEFINE_FUNCTION}"
        )
    if getattr(value, "isStreaming", False):
        return lambda: value
    if callable(value):
        function: Callable[[], DataFrame] = value
        return function
    kind = "not defined" if value is None else f"of type {type(value).__name__}"
    raise InvalidArgumentError(
        f"Invalid --query {name}: {name} is {kind}.\n"
        "Expected a streaming DataFrame, or a function without arguments that returns one."
    )


def _branch(notebook: NotebookContext, name: str) -> Branch | None:
    return next((query for query in _branches(notebook, name) if query.name == name), None)


def _branches(notebook: NotebookContext, name: str | None) -> tuple[Branch, ...]:
    """The queries of the store that a query is in, or of the store in use; empty if it does not exist yet."""
    try:
        return Lineage(notebook.open(query=name).layout).branches()
    except NotAStoreError:
        return ()
