"""Declaring a shared variable in a store, or finding one there: :func:`shared`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from streamstate.errors import InvalidNameError, UnknownVariableError, VariableConflictError, VariableError
from streamstate.snapshots.checkpoint.bindings import LEVEL
from streamstate.snapshots.checkpoint.filesystem import local_path, location
from streamstate.snapshots.store.declared_variables import DeclaredVariable, DeclaredVariables, declare
from streamstate.snapshots.store.layout import Layout
from streamstate.snapshots.store.registry import check_store
from streamstate.variables.declaration import Declaration, Function, check_variable_name
from streamstate.variables.recorded_versions import VersionRecorder
from streamstate.variables.shared_variable import SharedVariable, whoami
from streamstate.variables.shedding.level import is_level
from streamstate.variables.transports.addresses import transport_at
from streamstate.variables.version_bytes import encoded_contribution
from streamstate.variables.version_log import INIT

# The users' merge functions that were given in this process: forks and steps find the variables by their names.
_functions: dict[tuple[str, str], Function] = {}


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
        The variable, with ``.get()``, ``.set(x)``, ``.add(x)``, ``.history()`` and ``.on_change(callback)``.

    Raises:
        InvalidNameError, InvalidArgumentError: a part of the declaration is invalid; names that end with ``_shed`` are
            those of the levels of :func:`shed`, which starting a query declares.
        VariableConflictError: the store has a variable of the name that was declared otherwise.
        UnknownVariableError: ``type`` is left out, and the store has no such variable.
        TransportError: the transport cannot be reached.
        StoreError: the store cannot be read or written.

    Example:
        >>> limit = ss.shared("store", "limit", "double", init=60.0)
        >>> limit.set(45)
        1
    """
    path = location(store)
    check_store(Layout.at(path, storage_options))
    check_variable_name(name)
    if type is None:
        return declared_variable(path, name, storage_options, function=merge if callable(merge) else None)
    if is_level(name):
        raise InvalidNameError(
            f"Invalid variable name {name!r}: names that end with {LEVEL!r} belong to the levels of ss.shed, which"
            f" starting a query declares.\nUse another name. An existing level: ss.shared(store, {name!r}), without a"
            " type."
        )
    made = Declaration.checked(name, type, init=init, merge=merge, access=access, consistency=consistency)
    return declared_as(made, path, transport, storage_options)


def declared_as(
    made: Declaration, path: str, transport: str | None, storage_options: Mapping[str, str] | None
) -> SharedVariable:
    """Return the variable of a declaration, which is declared in a store unless it is there.

    Raises:
        VariableConflictError: the store has a variable of the name that was declared otherwise.
        TransportError: the transport cannot be reached.
    """
    layout, name = Layout.at(path, storage_options), made.name
    known = DeclaredVariables(layout).all()
    found = next((variable for variable in known.values() if variable.name.casefold() == name.casefold()), None)
    if found is None:
        address = _address(path, transport)
        # Both raise before anything is written: if it cannot be reached, and if the value is too large.
        transport_at(address).names(f"log/{made.key}")
        encoded_contribution(made.first_state, made)
        declare(layout, DeclaredVariable(name, made.text(), "" if transport is None else address))
        found = DeclaredVariables(layout).all()[name]
    if found.name != name:
        raise VariableConflictError(f"{path} has a variable {found.name!r}, whose name differs only in case.")
    declared = Declaration.from_text(found.declaration)
    if differences := made.differences(found.declaration):
        listed = "\n  ".join(differences)
        raise VariableConflictError(
            f"{name} was declared otherwise in {path}:\n  {listed}\nUse another name, or the same declaration."
        )
    if transport is not None and found.transport not in ("", _address(path, transport)):
        raise VariableConflictError(f"{name} was declared with transport={found.transport!r}.\nLeave transport out.")
    return _attached(replace(made, identity=declared.identity), found, path, storage_options)


def declared_variable(
    store: str, name: str, storage_options: Mapping[str, str] | None = None, *, function: Function | None = None
) -> SharedVariable:
    """Return a variable that a store has.

    Raises:
        UnknownVariableError: it has none of the name.
    """
    known = DeclaredVariables(Layout.at(store, storage_options)).all()
    if name not in known:
        raise UnknownVariableError.among("shared variable", name, known, where=f"in {store}")
    made = Declaration.from_text(known[name].declaration, function or _functions.get((store, name)), store)
    return _attached(made, known[name], store, storage_options)


def _attached(
    made: Declaration, found: DeclaredVariable, store: str, options: Mapping[str, str] | None
) -> SharedVariable:
    """Return the variable, whose log has its first version, or again the newest of the store's if it is empty."""
    made, address = replace(made, store=store), found.transport or _address(store, None)
    if made.function is not None:
        _functions[store, made.name] = made.function
    variable = SharedVariable(made, address, options)
    log = variable.log
    if log.head() < 0:
        recorder = VersionRecorder(Layout.at(store, options), log)
        newest = recorder.recorded()
        if newest < 0:
            log.begin(made.first_state, kind=INIT, by=whoami())
            variable.record()
        else:  # the store was copied, or the transport emptied
            log.begin(log.state(newest), number=newest, kind=INIT, by=whoami())
    return SharedVariable(made, address, options, seen=log.entry(log.head()).sets)


def _address(store: str, transport: str | None) -> str:
    """Return the transport's address: the one given, else a folder of the store."""
    if transport is not None:
        return transport if "://" in transport else location(transport)
    if local_path(store) is None:
        raise VariableError(
            f"{store} is in an object store, which cannot hold the variables of running queries.\n"
            "Say where they are kept: transport='redis://host:6379/0', or a folder that the driver reaches."
        )
    return default_transport(store)


def default_transport(store: str) -> str:
    """Return the folder of a local store that holds the variables of running queries."""
    return f"{store}/_variables/_transport"
