"""The context that the magics of one shell share: settings, queries, and the store in use."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from IPython.utils.text import DollarFormatter
from traitlets import Bool, Float, Int, TraitError, Unicode, Union, observe, validate
from traitlets.config import Configurable

from streamstate.errors import InvalidArgumentError, NotAStoreError, QueryError, UnknownQueryError
from streamstate.snapshots.capture.allocator_settings import set_plain_memory
from streamstate.snapshots.capture.pass_plan import CaptureInterval
from streamstate.snapshots.checkpoint.filesystem import local_path, location

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell
    from pyspark.sql import DataFrame, SparkSession

    from streamstate.launch.running import Running
    from streamstate.replay.debugging.session import DebugSession
    from streamstate.state_inspect import Store
    from streamstate.widgets.progress import Progress


class StreamState(Configurable):
    """Settings of the streamstate magics; IPython names them after this class."""

    # Not a folder named "streamstate": Python would take it for the package if that is installed in editable form.
    store = Unicode(
        "streamstate-data/store", help="The store that magics read and write; --store on any magic changes it."
    ).tag(config=True)
    rows = Int(20, min=1, help="How many rows of a state table %state displays; -o VAR keeps all of them.").tag(
        config=True
    )
    refresh = Float(0.5, min=0.2, max=3600, help="Seconds between two updates of live views, at least 0.2.").tag(
        config=True
    )
    every = Union(
        [Int(), Unicode()],
        default_value=1,
        help="The default of --every: capture once per N epochs, or per '10s', '2m', …",
    ).tag(config=True)
    tracebacks = Bool(default_value=False, help="Show tracebacks of streamstate's own errors.").tag(config=True)
    plain_memory = Bool(
        default_value=True,
        help="Make the kernel return freed memory to the system, so that following a query for days does not make it "
        "grow. To leave the allocators of deltalake and Arrow alone, set it to False before %load_ext.",
    ).tag(config=True)

    @validate("store")
    def _valid_store(self, proposal: Any) -> str:
        path = str(proposal["value"])
        if not path.strip():
            raise TraitError("Invalid StreamState.store: expected a directory or a URI, not an empty string.")
        return path

    @validate("refresh")
    def _valid_refresh(self, proposal: Any) -> float:
        seconds = float(proposal["value"])
        if math.isnan(seconds):  # no bound excludes it
            raise TraitError("Invalid StreamState.refresh=nan: expected seconds from 0.2 to 3600.")
        return seconds

    @validate("every")
    def _valid_every(self, proposal: Any) -> int | str:
        every: int | str = proposal["value"]
        try:
            CaptureInterval.of(every)
        except InvalidArgumentError as error:
            raise TraitError(str(error)) from None
        return every

    @observe("refresh")
    def _refresh_changed(self, _change: object) -> None:
        # Views that no magic makes use it too. The widgets are loaded only if somebody changes the setting.
        from streamstate.widgets.live.loop import set_refresh

        set_refresh(self.refresh)

    @observe("plain_memory")
    def _plain_memory_changed(self, _change: object) -> None:
        set_plain_memory(on=self.plain_memory)


@dataclass(frozen=True)
class QueryCode:
    """The code of a query: a function that returns its streaming DataFrame, and its output mode."""

    build: Callable[[], DataFrame]
    mode: str = "update"
    in_server: bool = False
    """True if its streaming DataFrame is one of a Spark Connect server, which no other process can run."""


@dataclass(frozen=True)
class ServedStore:
    """A store that the notebook serves as a page."""

    path: str
    server: Any
    port: int | None
    """The port that was asked for; None for any free one."""


class NotebookContext:
    """The settings, queries and stores that the magics of one shell share."""

    def __init__(self, shell: InteractiveShell) -> None:
        self.shell = shell
        self.settings = StreamState(parent=shell)
        self.running: dict[str, Running] = {}
        """The queries that this notebook started or follows, by name, the newest last."""
        self.codes: dict[str, QueryCode] = {}
        """The code of forks that were given other code than the query they were forked from, by name."""
        self.sessions: list[DebugSession] = []
        """The sessions that ``%stream debug`` began."""
        self.served: ServedStore | None = None
        """What ``%state serve`` started."""
        self._stores: dict[str, tuple[object, Store]] = {}
        # Kept in memory only, because storage options may contain secrets.
        self._options: dict[str, dict[str, str]] = {}

    def expand(self, word: str) -> str:
        """A word of a magic's line with ``{expression}`` and ``$name`` replaced by the user's variables."""
        try:
            return str(DollarFormatter().vformat(word, (), self.shell.user_ns))
        except Exception:  # noqa: BLE001 (as in IPython: a word that cannot be expanded stays as it is)
            return word

    def store_path(self, given: str | None = None, query: str | None = None) -> str:
        """The store to use: the one given, else that of a query of this notebook, else the last one used."""
        if given is not None:
            return location(given)
        if query is not None and query in self.running:
            return self.running[query].store
        return location(self.settings.store)

    def use_store(self, path: str) -> None:
        """Make a store the default of the magics that follow."""
        if location(self.settings.store) != path:
            self.settings.store = path

    def known_stores(self) -> list[str]:
        """The stores that this notebook has read or written, the one in use first."""
        written = [running.store for running in self.running.values()]
        return list(dict.fromkeys([self.store_path(), *written, *self._stores]))

    def options(self, path: str, given: Iterable[tuple[str, str]] | None = None) -> dict[str, str] | None:
        """The storage options of a store: those given now, else those given before, else None."""
        if given:
            self._options[path] = dict(given)
        return self._options.get(path)

    def open(
        self, given: str | None = None, query: str | None = None, options: Iterable[tuple[str, str]] | None = None
    ) -> Store:
        """The store to read, given the path, the query and the storage options on the line; each is opened once."""
        path = self.store_path(given, query)
        self.options(path, options)
        store = self._opened(path)
        if given is not None:
            self.use_store(path)
        return store

    def peek(self, given: str | None = None, query: str | None = None) -> Store:
        """The store to complete names from: changes nothing, and never opens a remote store."""
        path = self.store_path(given, query)
        if path not in self._stores and local_path(path) is None:
            raise NotAStoreError(f"{path} was not opened yet.")
        return self._opened(path)

    def _opened(self, path: str) -> Store:
        from streamstate.state_inspect import open_store

        options = self.options(path)
        identity = (_identity(path), options)
        if path not in self._stores or self._stores[path][0] != identity:
            self._stores[path] = (identity, open_store(path, storage_options=options))
        return self._stores[path][1]

    def query(self, name: str | None) -> Running:
        """A query that this notebook started or follows; without a name, its only one."""
        if name is None:
            return self._only_query()
        if name in self.running:
            return self.running[name]
        if not self.running:
            raise UnknownQueryError(
                f"This notebook has no query {name!r}.\n"
                f"Start it with %%stream {name}, or capture one that runs elsewhere: %stream attach CHECKPOINT."
            )
        raise UnknownQueryError.among("query", name, self.running, where="in this notebook")

    def _only_query(self) -> Running:
        if not self.running:
            raise QueryError("This notebook has no queries yet: start one with %%stream NAME.")
        if len(self.running) > 1:
            raise QueryError(f"This notebook has several queries. Name one of them: {', '.join(self.running)}.")
        return next(iter(self.running.values()))

    def spark(self) -> SparkSession:
        """The notebook's ``spark`` variable; if it is not defined, a session is started and assigned to it."""
        from streamstate.snapshots.spark.session import session

        if (known := self.known_spark()) is not None:
            return known
        if "spark" in self.shell.user_ns:
            return session()
        known = self.shell.user_ns["spark"] = session()
        print("The Spark session is available as spark.")
        return known

    def known_spark(self) -> SparkSession | None:
        """The notebook's ``spark`` variable; None if that is no session. Spark is not started."""
        if sys.modules.get("pyspark") is None:
            return None
        from pyspark.sql import SparkSession

        from streamstate.snapshots.spark.connect import is_of_connect

        known = self.shell.user_ns.get("spark")
        return known if isinstance(known, SparkSession) or is_of_connect(known) else None

    def assign(self, variable: str | None, value: Any) -> None:
        """Keep a value in a variable of the user's, if the line names one."""
        if variable is not None:
            self.shell.user_ns[variable] = value

    def working(self, *, stays: str, always: bool = False) -> AbstractContextManager[Progress]:
        """Display the progress of the block; an interrupt ends the block and is reported in one line, ``stays``."""
        from streamstate.widgets.progress import working

        return working(self.shell, stays=stays, always=always)

    def stop_serving(self) -> list[str]:
        """Stop the server, if there is one; the problem is returned if it did not stop cleanly."""
        served, self.served = self.served, None
        if served is None:
            return []
        try:
            served.server.stop()
        except Exception as error:  # noqa: BLE001 (as with queries)
            return [f"The page of {served.path} did not stop cleanly: {error}"]
        return []

    def close(self) -> list[str]:
        """Stop every query and capture; the Spark session stays. Returns what did not stop cleanly, in a line each."""
        problems = self.stop_serving()
        for running in self.running.values():
            try:
                running.stop()
            except Exception as error:  # noqa: BLE001 (the other queries must still be stopped)
                problems.append(f"{running.name} did not stop cleanly: {error}")
        for session in self.sessions:
            session.close()
        self.sessions.clear()
        self.codes.clear()
        self.running.clear()
        self._stores.clear()
        self._options.clear()
        return problems


def _identity(path: str) -> object:
    """Return a value that differs for a store that is later created at the same path."""
    local = local_path(path)
    if local is None:
        return None
    first_commit = local / "_queries" / "_delta_log" / f"{0:020}.json"
    found = first_commit.stat() if first_commit.exists() else None
    return found and (found.st_ino, found.st_mtime_ns)


def only_query(store: Store, line: str) -> str:
    """Return the only query of a store; ``line`` is how another one is named."""
    queries = store.queries()
    if len(queries) != 1:
        raise InvalidArgumentError(f"Name a query: {line}. Queries: {', '.join(queries) or 'none yet'}.")
    return queries[0]


def require_cell(cell: str, magic: str, example: str) -> str:
    """The cell's text, unless it is empty."""
    if cell.strip():
        return cell
    raise InvalidArgumentError(f"The {magic} cell is empty. For example:\n{example}")
