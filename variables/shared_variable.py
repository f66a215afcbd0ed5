"""Shared variables, as notebooks and operators use them: :func:`shared` and what it returns."""

from __future__ import annotations

import copy
import getpass
import os
import socket
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamstate.errors import UnknownVariableError, VariableConflictError, VariableError
from streamstate.snapshots.declared_variables import DeclaredVariable, DeclaredVariables, declare
from streamstate.snapshots.filesystem import local_path, location
from streamstate.snapshots.layout import Layout
from streamstate.snapshots.registry import check_store
from streamstate.variables.declaration import Declaration, Function, check_variable_name
from streamstate.variables.notifications import Change, Subscription
from streamstate.variables.recorded_versions import VersionRecorder, relation_of
from streamstate.variables.transports import transport_at
from streamstate.variables.version_log import INIT, Overtaken, VersionLog, encoded_contribution

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import Column

_UNSET: Any = object()


class SharedVariable:
    """A named, typed value that a notebook and the operators of queries share; :func:`shared` returns it.

    In a notebook, it reads and sets the newest version. In an operator's Python code, it reads the version that the
    epoch is bound to, and adds to what the epoch contributes; the merged contributions are visible from the next epoch
    on. It can be used in any function that Spark sends to its Python workers.

    Attributes:
        name: its name.
        store: the store that records its versions.
    """

    def __init__(self, declaration: Declaration, transport: str, storage_options: Mapping[str, str] | None) -> None:
        self._declaration = declaration
        self._transport = transport
        self._options = storage_options
        self._ends_reported = False
        self._seen: int | None = None
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
        """What was declared, for parts of streamstate that bind it."""
        return self._declaration

    @property
    def transport(self) -> str:
        """Where its versions are kept while queries run, for parts of streamstate that bind it."""
        return self._transport

    @property
    def log(self) -> VersionLog:
        """Its versions, for parts of streamstate that read them directly."""
        from streamstate.variables.recorded_versions import recorded_state

        if "_log" not in self.__dict__:
            found = transport_at(self._transport)
            self._log = VersionLog(found, self._declaration, "", lambda number: recorded_state(self._declaration, number))
        return self._log

    def get(self) -> Any:
        """The value: in a notebook the newest, in an operator the one that its epoch is bound to.

        Do not change what it returns: a worker returns one object to all who ask. Of a map, an operator gets a view.

        Returns:
            The value: None before the first, sets as ``frozenset``, structs and maps as ``dict``; of the merge
            ``average`` the mean, of ``moments`` a dict of ``n``, ``mean`` and ``variance`` (of the population), of
            ``regression`` the list of intercept and coefficients, of ``hll`` an estimate, of ``kll`` a dict of ``n``,
            ``min``, ``max``, ``p50``, ``p90`` and ``p99``.

        Raises:
            VariableError: the operator's query is not bound to the variable, or the version is gone.
            TransportError: the transport cannot be reached.
        """
        at = self._here()
        if at is not None:
            from streamstate.variables.in_tasks import read

            return read(self._declaration, at)
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
        from streamstate.variables.in_tasks import version_of

        return version_of(self._declaration, at).as_json()

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
        merging = self._declaration.merging
        state = (
            self._declaration.type.stored(value[0], self.name)
            if len(value) == 1 and merging.state == self._declaration.type.arrow
            else merging.lifted(self.name, *value)
        )
        return self._set(state)

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

        Each operator and partition of an epoch contributes once, however often Spark runs a task. Operators are told
        apart by the function that calls this; two that call the same one need names.

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
        if at is None:
            raise VariableError(
                f"{self.name}.add() is for operators, whose contributions belong to an epoch.\nIn a notebook, set the"
                f" value: {self.name}.set(x)."
            )
        named = operator_at(1, operator)
        collect(self._declaration, at, value, named, reported=self._ends_reported and at.attempt >= 0)

    def history(self) -> pd.DataFrame:
        """All versions that the store keeps.

        Returns:
            One row per version, ascending: ``version``, ``value`` (not for maps: ask
            ``store["shared.<name>"].key_history``), ``kind`` (``init``, ``set`` or ``merge``), ``by`` (who set it, or
            the id of the query), ``epoch`` (whose contributions are merged), ``contributions`` (from how many tasks)
            and ``at``.

        Raises:
            StoreError: the store cannot be read.
        """
        import json

        import pandas as pd

        from streamstate.state_inspect import open_store

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
        values = with_values.sql(f"SELECT _valid_from AS version, value FROM {relation_of(self.name)}.history").to_pandas()
        return found.merge(values, on="version", how="left")[["version", "value", *found.columns[1:]]]

    def on_change(
        self, callback: Callable[[Change], object], *, name: str | None = None, interval: float = 0.2
    ) -> Subscription:
        """Call a function for each new version, in order and once, in the background.

        Args:
            callback: called with a :class:`Change`.
            name: keeps the position under a name, so that a later process goes on where this one ended; without a name
                it begins with the next version.
            interval: seconds between two looks at the transport.

        Returns:
            A handle with ``.stop()`` and ``.error``.

        Example:
            >>> alerts.on_change(lambda change: print(change.added))  # doctest: +SKIP
        """
        return Subscription(self.log, callback, name=name, interval=interval)

    def column(self) -> Column:
        """The value as a column of a streaming DataFrame; see :func:`shared_column`."""
        from streamstate.variables.columns import column_of

        return column_of(self)

    def record(self) -> int:
        """Write the versions that the store lacks, and return the newest. Queries do so while they run."""
        with self._recording:
            if self._kept is None:
                self._kept = VersionRecorder(Layout.at(self.store, self._options), self.log)
            return self._kept.record()

    def _head(self) -> int:
        head = self.log.head()
        if head < 0:
            raise self.log.gone(0)
        return head

    @staticmethod
    def _here() -> Any:
        import sys

        if "pyspark" not in sys.modules:
            return None
        from streamstate.variables.in_tasks import here

        return here()

    def __reduce__(self) -> tuple[Any, ...]:
        from streamstate.variables.in_tasks import task_end

        made = self._declaration
        return _in_worker, (made.text(), made.function, made.store, self._transport, task_end())

    def __repr__(self) -> str:
        made = self._declaration
        return f"<SharedVariable {self.name}: {made.type.text}, merge {made.merge}, in {self.store}>"


def _in_worker(text: str, function: Function | None, store: str, transport: str, end: object) -> SharedVariable:
    """The variable that was sent to a worker; ``end`` stages its contributions when the task ends."""
    found = SharedVariable(_declaration(text, function, store), transport, None)
    found._ends_reported = end is not None
    return found


_unpickled: dict[tuple[str, str], Declaration] = {}


def _declaration(text: str, function: Function | None, store: str) -> Declaration:
    if function is not None:
        return Declaration.from_text(text, function, store)
    if (text, store) not in _unpickled:
        _unpickled[text, store] = Declaration.from_text(text, None, store)
    return _unpickled[text, store]


def shared(
    store: str | Path,
    name: str,
    type: Any = None,  # noqa: A002 (the field's word)
    *,
    init: Any = None,
    merge: str | Function = "last",
    access: str = "read-mostly",
    consistency: str = "epoch",
    transport: str | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> SharedVariable:
    """Declare a variable that operators share with each other and with the notebook, or use a declared one.

    A query uses it if it is started with it: ``ss.start(…, shared=("limit",))`` or ``%%stream NAME --shared limit``.
    Every version is a row of the store: ``FROM shared.limit VERSION AS OF 12``. Shared variables for stream operators
    were described with CAPSULE (Losa et al., DEBS 2012).

    Args:
        store: the store that records the versions.
        name: its name: letters, digits and ``_``.
        type: as Spark's DDL spells it (``double``, ``struct<n: bigint, mean: double>``, ``map<string, double>``), also
            ``set<…>``, ``list<…>`` and ``counter`` (a ``bigint`` that adds up), or a type of PySpark. Left out: the
            variable was declared before.
        init: its first value, version 0.
        merge: how contributions become one value: ``last`` (of the highest partition), ``sum``, ``min``, ``max``
            (of a map: key by key), ``union`` (sets), ``append(N)`` (lists: the newest N items), ``average``,
            ``moments``, ``regression``, ``hll``, ``kll``, or a function of two values that is associative and
            commutative, which is tried with random values.
        access: ``read-mostly``: epochs are bound to versions; ``write-mostly``: operators only add to it, such as to a
            counter or a list of alerts, and no epoch runs because it changed.
        consistency: ``epoch``: all tasks of an epoch see one version, which has all contributions of the epochs before;
            ``bounded(k)``: the same, but new versions and contributions are taken in every k epochs; ``latest``: each
            read sees the newest version, so that running an epoch again may see another.
        transport: where versions are kept while queries run: ``redis://host:6379/0`` (or Valkey), or a folder that the
            driver reaches; by default in the store's own folder.
        storage_options: deltalake's options for a store in an object store.

    Returns:
        The variable: ``.get()``, ``.set(x)``, ``.add(x)``, ``.history()``, ``.on_change(callback)``.

    Raises:
        InvalidNameError, InvalidArgumentError: a part of the declaration is invalid.
        VariableConflictError: the store has a variable of the name that was declared otherwise.
        UnknownVariableError: ``type`` is left out, and the store has no such variable.
        TransportError: the transport cannot be reached.
        StoreError: the store cannot be read or written.

    Example:
        >>> limit = ss.shared("store", "limit", "double", init=60.0)  # doctest: +SKIP
        >>> limit.set(45)  # doctest: +SKIP
        1
    """
    path = location(store)
    layout = Layout.at(path, storage_options)
    check_store(layout)
    check_variable_name(name)
    known = DeclaredVariables(layout).all()
    if type is None:
        return declared_variable(path, name, storage_options, function=merge if callable(merge) else None)
    made = Declaration.checked(name, type, init=init, merge=merge, access=access, consistency=consistency)
    found = next((variable for variable in known.values() if variable.name.casefold() == name.casefold()), None)
    if found is None:
        address = _address(path, transport)
        # Both raise before anything is written: if it cannot be reached, and if the value is too large.
        transport_at(address).names("log")
        encoded_contribution(made.first_state, made)
        declare(layout, DeclaredVariable(name, made.text(), "" if transport is None else address))
        found = DeclaredVariables(layout).all()[name]
    if found.name != name:
        raise VariableConflictError(f"{path} has a variable {found.name!r}, whose name differs only in case.")
    if differences := made.differences(found.declaration):
        listed = "\n  ".join(differences)
        raise VariableConflictError(f"{name} was declared otherwise in {path}:\n  {listed}\nUse another name, or the same declaration.")
    if transport is not None and found.transport not in ("", _address(path, transport)):
        raise VariableConflictError(f"{name} was declared with transport={found.transport!r}.\nLeave transport out.")
    return _attached(made, found, path, storage_options)


def declared_variable(
    store: str, name: str, storage_options: Mapping[str, str] | None = None, *, function: Function | None = None
) -> SharedVariable:
    """A variable that a store has.

    Raises:
        UnknownVariableError: it has none of the name.
    """
    known = DeclaredVariables(Layout.at(store, storage_options)).all()
    if name not in known:
        raise UnknownVariableError.among("shared variable", name, known, where=f"in {store}")
    return _attached(Declaration.from_text(known[name].declaration, function), known[name], store, storage_options)


def _attached(
    made: Declaration, found: DeclaredVariable, store: str, options: Mapping[str, str] | None
) -> SharedVariable:
    """The variable, whose log has its first version, or again the newest of the store's if it is empty."""
    from dataclasses import replace

    variable = SharedVariable(replace(made, store=store), found.transport or _address(store, None), options)
    log = variable.log
    if log.head() < 0:
        recorder = VersionRecorder(Layout.at(store, options), log)
        newest = recorder.recorded()
        if newest < 0:
            log.begin(made.first_state, kind=INIT, by=whoami())
            variable.record()
        else:  # the store was copied, or the transport emptied
            log.begin(log.state(newest), number=newest, kind=INIT, by=whoami())
    variable._seen = log.entry(log.head()).sets
    return variable


def _address(store: str, transport: str | None) -> str:
    """The transport's address: the one given, else a folder of the store."""
    if transport is not None:
        return transport if "://" in transport else location(transport)
    if local_path(store) is None:
        raise VariableError(
            f"{store} is in an object store, which cannot hold the variables of running queries.\n"
            "Say where they are kept: transport='redis://host:6379/0', or a folder that the driver reaches."
        )
    return f"{store}/_variables/_transport"


def whoami() -> str:
    """Who sets a variable, for its history: user, machine and process."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a user without a name, as in some containers
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}:{os.getpid()}"
