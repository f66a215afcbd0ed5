"""Shared variables, as notebooks and operators use them: :func:`shared` and what it returns."""

from __future__ import annotations

import copy
import getpass
import os
import socket
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from streamstate.errors import VariableConflictError, VariableError
from streamstate.snapshots.checkpoint.bindings import relation_of
from streamstate.variables.declaration import Declaration
from streamstate.variables.shedding.level import is_level
from streamstate.variables.state_in_store import state_in_store
from streamstate.variables.transports.addresses import transport_at
from streamstate.variables.transports.driver_key import DriverKey, learn
from streamstate.variables.version_log import Overtaken, VersionLog

if TYPE_CHECKING:
    import pandas as pd

    from streamstate.variables.notifications import Change, Subscription
    from streamstate.variables.recorded_versions import VersionRecorder


class SharedVariable:
    """A named, typed value that a notebook and the operators of queries share; :func:`shared` returns it.

    In a notebook, it reads and sets the newest version. In an operator's Python code, it reads the version that the
    epoch is bound to, and adds to what the epoch contributes; the merged contributions are visible from the next epoch
    on. It can be used in any function that Spark sends to its Python workers.
    """

    def __init__(
        self,
        declaration: Declaration,
        transport: str,
        storage_options: Mapping[str, str] | None,
        *,
        seen: int | None = None,
        ends_reported: bool = False,
    ) -> None:
        self._declaration = declaration
        self._transport = transport
        self._options = storage_options
        # How many times it was set, when this object last looked.
        self._seen = seen
        self._ends_reported = ends_reported
        self._log: VersionLog | None = None
        self._recording = threading.Lock()
        self._kept: VersionRecorder | None = None

    @property
    def name(self) -> str:
        """The variable's name."""
        return self._declaration.name

    @property
    def store(self) -> str:
        """The store that records its versions."""
        return self._declaration.store

    @property
    def declaration(self) -> Declaration:
        """The declaration, for parts of streamstate that bind it."""
        return self._declaration

    @property
    def transport(self) -> str:
        """The transport that keeps its versions while queries run, for parts of streamstate that bind it."""
        return self._transport

    @property
    def storage_options(self) -> Mapping[str, str] | None:
        """Options for its store, for parts of streamstate that read it."""
        return self._options

    @property
    def log(self) -> VersionLog:
        """Its versions, for parts of streamstate that read them directly."""
        if self._log is None:
            self._log = self._new_log()
        return self._log

    def _new_log(self) -> VersionLog:
        recorded = state_in_store(self._declaration)
        return VersionLog(transport_at(self._transport), self._declaration, "", recorded)

    def get(self) -> Any:
        """Return the value: in a notebook the newest, in an operator the one that its epoch is bound to.

        Do not change what it returns: a worker returns one object to all who ask. Of a map, an operator gets a view.

        Returns:
            The value; None before the first (a map is empty), sets as ``frozenset``, structs and maps as ``dict``; of
            the merge ``average`` the mean, of ``moments`` a dict of ``n``, ``mean`` and ``variance`` (of the
            population), of ``regression`` the list of intercept and coefficients, of ``hll`` an estimate, of ``kll`` a
            dict of ``n``, ``min``, ``max``, ``p50``, ``p90`` and ``p99``.

        Raises:
            VariableError: the operator's query is not bound to the variable, or the version is gone.
            TransportError: the transport cannot be reached.
        """
        at = self._here()
        if at is not None:
            from streamstate.variables.in_tasks import read_in_task

            return read_in_task(self._declaration, at)
        head = self._head()
        self._seen = self.log.entry(head).sets
        value = self.log.value(head)
        return dict(value) if isinstance(value, Mapping) else copy.copy(value)

    @property
    def version(self) -> int | str:
        """The version that :meth:`get` reads: its number; in a fork that has its own, a text such as ``"<id>:7"``."""
        at = self._here()
        if at is None:
            return self._head()
        from streamstate.variables.in_tasks import version_in_epoch

        return version_in_epoch(self._declaration, at).as_json()

    def set(self, *value: Any) -> int:
        """Set the value, for the next epoch that begins. Not in operators: they contribute with :meth:`add`.

        If another notebook has set the variable since this object last read or set it, nothing is set. What operators
        contribute meanwhile is no conflict: it is replaced.

        Args:
            value: the value; for the merges ``average`` (value, weight) and ``regression`` (features, target), what
                :meth:`add` takes.

        Returns:
            The new version.

        Raises:
            VariableConflictError: another has set it since.
            InvalidArgumentError: the value is not of the variable's type, or too large.
            VariableError: called in an operator.
            TransportError: the transport cannot be reached.
        """
        if self._here() is not None:
            raise VariableError(
                f"{self.name}.set() is for notebooks: which of many tasks would win?\nContribute with"
                f" {self.name}.add(x), which merges."
            )
        return self._set(self._declaration.state_of(*value))

    def clear(self) -> int:
        """Set the variable to its first value, and return the new version."""
        return self._set(self.log.state(0) if 0 in self.log.numbers() else None)

    def _set(self, state: Any) -> int:
        try:
            entry = self.log.set(state, whoami(), self._seen)
        except Overtaken:
            newest = self._newest_set()
            raise VariableConflictError(
                f"{self.name} was set to {newest!r} by another since you last read it.\nNothing was set. Look at"
                f" {self.name}.get(), then set it again."
            ) from None
        self._seen = entry.sets
        self.record()
        number: int = entry.number
        return number

    def _newest_set(self) -> Any:
        return self.log.value(self.log.head())

    def add(self, *value: Any, operator: str | None = None) -> None:
        """Contribute to the value, in an operator; the epoch's contributions are merged once it is committed.

        Each operator and partition of an epoch contributes once, however often Spark runs a task. The function
        that calls this identifies an operator; two that call the same one need names.

        Args:
            value: what to contribute: a value of the type; an item for ``append`` and ``union``; a value and a weight
                for ``average``; features and target for ``regression``.
            operator: a name, for operators that share a function.

        Raises:
            InvalidArgumentError: it is not of the variable's type.
            VariableError: called outside of an operator, or the query is not bound to the variable.
        """
        from streamstate.variables.in_tasks import collect, operator_at

        at = self._here()
        if is_level(self.name):
            raise VariableError(
                f"{self.name} is a level of ss.shed, which is set in the driver: {self.name}.set(level)."
            )
        if at is None:
            raise VariableError(
                f"{self.name}.add() is for operators, whose contributions belong to an epoch.\nIn a notebook, set the"
                f" value: {self.name}.set(x)."
            )
        named = operator_at(1, operator)
        collect(self._declaration, at, value, named, reported=self._ends_reported and at.attempt >= 0)

    def history(self) -> pd.DataFrame:
        """Return all versions that the store keeps.

        Returns:
            One row per version, ascending. The columns are ``version``, ``value`` (not for maps: ask
            ``store["shared.<name>"].key_history``), ``kind`` (``init``, ``set`` or ``merge``), ``by`` (who set it, or
            the id of the query), ``epoch`` (whose contributions are merged), ``contributions`` (from how many tasks)
            and ``at``.

        Raises:
            StoreError: the store cannot be read.
        """
        import json

        import pandas as pd

        from streamstate.state_inspect import open_store
        from streamstate.state_inspect.frames import as_column
        from streamstate.state_inspect.python_rows import row_tuples

        self.record()
        with_values = open_store(self.store, storage_options=self._options)
        entries = with_values[relation_of(self.name)].recorded.entries()
        rows = [
            {
                "version": entry.epoch,
                "kind": (entry.run_id or "").partition(" ")[0],
                "by": (entry.run_id or "").partition(" ")[2],
                "epoch": json.loads(entry.offsets or "{}").get("epoch"),
                "contributions": entry.input_rows,
                "at": entry.committed_at,
            }
            for entry in entries
            if entry.captured
        ]
        found = pd.DataFrame(rows, columns=pd.Index(["version", "kind", "by", "epoch", "contributions", "at"]))
        found["epoch"] = found["epoch"].astype("Int64")
        if self._declaration.type.is_map:
            return found
        values = with_values.sql(f"SELECT _valid_from AS version, value FROM {relation_of(self.name)}.history")
        known = dict(row_tuples(values.to_arrow()))
        found.insert(1, "value", as_column([known.get(version) for version in found["version"]]))
        return found

    def on_change(
        self, callback: Callable[[Change], object], *, name: str | None = None, interval: float = 0.2
    ) -> Subscription:
        """Call a function for each new version, in order and once, in the background.

        Args:
            callback: called with a :class:`Change`.
            name: keeps the position under a name, for a later process to continue where this one ended; without a name
                it begins with the next version.
            interval: seconds between two looks at the transport.

        Returns:
            A handle with ``.stop()`` and ``.error``.

        Example:
            >>> limit = ss.shared("store", "limit", "double", init=60.0)
            >>> heard = limit.on_change(lambda change: print(change.value))
            >>> heard.stop()
        """
        from streamstate.variables.notifications import Subscription

        return Subscription(self.log, callback, name=name, interval=interval)

    def record(self) -> int:
        """Write the versions that the store lacks, and return the newest. Queries do so while they run."""
        from streamstate.snapshots.store.layout import Layout
        from streamstate.variables.recorded_versions import VersionRecorder

        with self._recording:
            if self._kept is None:
                # With a log of its own, because a pump's thread calls this.
                self._kept = VersionRecorder(Layout.at(self.store, self._options), self._new_log())
            return self._kept.record()

    def _head(self) -> int:
        head = self.log.head()
        if head < 0:
            raise self.log.gone(0)
        return head

    @staticmethod
    def _here() -> Any:
        import sys

        if not hasattr(sys.modules.get("pyspark"), "SparkContext"):  # not loaded, or the client of Spark Connect alone
            return None
        from streamstate.variables.in_tasks import here

        return here()

    def __reduce__(self) -> tuple[Any, ...]:
        from streamstate.variables.in_tasks import key_for_tasks, task_end

        self._declaration.merging  # noqa: B018 (sent along, so that workers need not make it)
        return _in_worker, (self._declaration, self._transport, task_end(), key_for_tasks())

    def __repr__(self) -> str:
        made = self._declaration
        return f"<SharedVariable {self.name}: {made.type.text}, merge {made.merge}, in {self.store}>"


def _in_worker(declaration: Declaration, transport: str, end: object, key: DriverKey | None) -> SharedVariable:
    """Return the variable that was sent to a worker; ``end`` stages its contributions when the task ends."""
    learn(key)
    return SharedVariable(declaration, transport, None, ends_reported=end is not None)


def whoami() -> str:
    """Who sets a variable, for its history: user, machine and process."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a user without a name, as in some containers
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}:{os.getpid()}"
