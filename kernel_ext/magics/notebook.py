"""What the magics of one shell share: its settings, its queries, the store in use."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from IPython.utils.text import DollarFormatter

from streamstate.magics.settings import StreamState
from streamstate.snapshots.errors import InvalidArgumentError, NotAStoreError, QueryError, UnknownQueryError
from streamstate.snapshots.filesystem import local_path, location

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell
    from pyspark.sql import SparkSession

    from streamstate.debugger.session import DebugSession
    from streamstate.magics.debugged import Code
    from streamstate.magics.running import RunningQuery
    from streamstate.state_inspect import Store

__all__ = ["Notebook", "Served"]


@dataclass(frozen=True)
class Served:
    """A store that a notebook serves as a page."""

    path: str
    server: Any
    port: int | None
    """The port that was asked for; None where any would do."""


class Notebook:
    """The magics' common ground.

    Args:
        shell: the shell that the magics are registered with.
    """

    def __init__(self, shell: InteractiveShell) -> None:
        self.shell = shell
        self.settings = StreamState(parent=shell)
        self.running: dict[str, RunningQuery] = {}
        """The queries that this notebook started or follows, by name, the newest last."""
        self.codes: dict[str, Code] = {}
        """What makes the queries that were given other code than the one they were forked from, by name."""
        self.sessions: list[DebugSession] = []
        """What ``%stream debug`` began."""
        self.served: Served | None = None
        """What ``%state serve`` started."""
        self._stores: dict[str, tuple[object, Store]] = {}
        # How to reach stores: in memory only, because secrets are among it.
        self._options: dict[str, dict[str, str]] = {}

    def expand(self, word: str) -> str:
        """A word of a magic's line with ``{expression}`` and ``$name`` filled in from the user's variables."""
        try:
            return str(DollarFormatter().vformat(word, (), self.shell.user_ns))
        except Exception:  # noqa: BLE001 (as IPython does: what cannot be filled in stays as it is)
            return word

    def store_path(self, given: str | None = None, query: str | None = None) -> str:
        """The store to use: the one given, else the one of a query of this notebook, else the last one used."""
        if given is not None:
            return location(given)
        if query is not None and query in self.running:
            return self.running[query].store
        return location(self.settings.store)

    def use_store(self, path: str) -> None:
        """Make a store the one that the next magics use."""
        if location(self.settings.store) != path:
            self.settings.store = path

    def known_stores(self) -> list[str]:
        """The stores that this notebook has read or written, the one in use first."""
        written = [one.store for one in self.running.values()]
        return list(dict.fromkeys([self.store_path(), *written, *self._stores]))

    def options(self, path: str, given: Iterable[tuple[str, str]] | None = None) -> dict[str, str] | None:
        """How to reach a store: as was just said, else as it was reached before; None where nothing was ever said.

        Args:
            path: the store.
            given: deltalake's options, in pairs.
        """
        if given:
            self._options[path] = dict(given)
        return self._options.get(path)

    def open(
        self, given: str | None = None, query: str | None = None, options: Iterable[tuple[str, str]] | None = None
    ) -> Store:
        """The store to read, opened once and kept.

        Args:
            given: the path that a line names.
            query: the query that it is about.
            options: how to reach the store, as a line says.

        Raises:
            NotAStoreError: where the path holds none.
        """
        path = self.store_path(given, query)
        self.options(path, options)
        store = self._opened(path)
        if given is not None:
            self.use_store(path)
        return store

    def peek(self, given: str | None = None, query: str | None = None) -> Store:
        """The store to read for completing names: nothing changes by it, and nobody waits for a network.

        Raises:
            NotAStoreError: where the path holds none, or is not on this machine and was not opened before.
        """
        path = self.store_path(given, query)
        if path not in self._stores and local_path(path) is None:
            raise NotAStoreError(f"{path} was not opened yet.")
        return self._opened(path)

    def _opened(self, path: str) -> Store:
        from streamstate.state_inspect import open_store

        reached = self.options(path)
        made = (_made(path), reached)
        if path not in self._stores or self._stores[path][0] != made:
            self._stores[path] = (made, open_store(path, storage_options=reached))
        return self._stores[path][1]

    def query(self, name: str) -> RunningQuery:
        """A query of this notebook.

        Raises:
            UnknownQueryError: where this notebook neither started nor follows it.
        """
        if name in self.running:
            return self.running[name]
        if not self.running:
            raise UnknownQueryError(
                f"There is no query {name!r} in this notebook.\n"
                f"Start one with %%stream {name}, or capture one that runs elsewhere: %stream attach CHECKPOINT."
            )
        raise UnknownQueryError.among("query", name, self.running, where="in this notebook")

    def only_query(self) -> RunningQuery:
        """The query that is meant where a line names none.

        Raises:
            QueryError: where there are none or several.
        """
        if not self.running:
            raise QueryError("This notebook has no queries yet: start one with %%stream NAME.")
        if len(self.running) > 1:
            raise QueryError(f"Say which query is meant: {', '.join(self.running)}.")
        return next(iter(self.running.values()))

    def spark(self) -> SparkSession:
        """The session called ``spark`` in the notebook; where there is none, one is started and called so."""
        from pyspark.sql import SparkSession

        from streamstate.spark_session import session

        known = self.shell.user_ns.get("spark")
        if isinstance(known, SparkSession):
            return known
        if "spark" in self.shell.user_ns:
            return session()
        known = self.shell.user_ns["spark"] = session()
        print("The Spark session is called spark in this notebook.")
        return known

    def assign(self, variable: str | None, value: Any) -> None:
        """Keep a value in a variable of the user's, where one was asked for."""
        if variable is not None:
            self.shell.user_ns[variable] = value

    def close(self) -> list[str]:
        """Stop every query and capture of this notebook; the Spark session stays.

        Returns:
            What could not be stopped, in a line each.
        """
        trouble = self.stop_serving()
        for one in self.running.values():
            try:
                one.stop()
            except Exception as error:  # noqa: BLE001 (one that does not stop must not keep the others running)
                trouble.append(f"{one.name} did not stop cleanly: {error}")
        for session in self.sessions:
            session.close()
        self.sessions.clear()
        self.codes.clear()
        self.running.clear()
        self._stores.clear()
        self._options.clear()
        return trouble

    def serving(self, path: str, server: Any, port: int | None) -> Served:
        """Remember what serves a store."""
        self.served = Served(path, server, port)
        return self.served

    def stop_serving(self) -> list[str]:
        """Stop what serves a store, if anything does.

        Returns:
            What could not be stopped, in a line.
        """
        served, self.served = self.served, None
        try:
            if served is not None:
                served.server.stop()
        except Exception as error:  # noqa: BLE001 (as with queries)
            return [f"The page of {served.path} did not stop cleanly: {error}" if served else str(error)]
        return []


def _made(path: str) -> object:
    """What tells a store from another one that was made in its place, as happens where people start over."""
    local = local_path(path)
    if local is None:
        return None
    first = local / "_queries" / "_delta_log" / f"{0:020}.json"
    found = first.stat() if first.exists() else None
    return found and (found.st_ino, found.st_mtime_ns)


def require_cell(cell: str, magic: str, example: str) -> str:
    """The cell's text, where there is any.

    Raises:
        InvalidArgumentError: where it is empty.
    """
    if cell.strip():
        return cell
    raise InvalidArgumentError(f"{magic} needs something in the cell below it, such as:\n{example}")


def checkpoint_beside(store: str, name: str) -> str:
    """Where the checkpoint of a query goes when nobody says: beside the store, never in it."""
    folder, _, last = store.rpartition("/")
    return f"{folder}/{'checkpoints' if last == 'store' else f'{last}-checkpoints'}/{name}"
