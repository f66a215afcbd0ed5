"""The level of a query that starts: which sheds its frame has, and the variable that its epochs are bound to."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamstate.errors import QueryError, VariableError
from streamstate.snapshots.checkpoint.bindings import Binding, binding_in
from streamstate.snapshots.checkpoint.filesystem import local_path, location
from streamstate.snapshots.spark.catalyst import each, kind_of
from streamstate.snapshots.store.declared_variables import DeclaredVariables
from streamstate.snapshots.store.epoch_load import SHED
from streamstate.snapshots.store.layout import Layout
from streamstate.snapshots.store.registry import check_store
from streamstate.variables.declaration import Declaration
from streamstate.variables.declaring import declared_as, declared_variable, default_transport
from streamstate.variables.in_tasks import log_of
from streamstate.variables.query_with_variables import planned_before
from streamstate.variables.shared_variable import SharedVariable
from streamstate.variables.shedding.level import TYPE, Level, is_level, level_variable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def sheds_in(frame: DataFrame) -> list[str]:
    """Return the names of the observed metrics of the sheds in a frame."""
    return sorted({name for name in _observed(frame._jdf.queryExecution().analyzed()) if name.startswith(SHED)})


def _observed(node: Any) -> Iterator[str]:
    if kind_of(node) == "CollectMetrics":
        yield str(node.name())
    for child in each(node.children()):
        yield from _observed(child)


def needs_level(frame: DataFrame, name: str, before: Binding | None, variables: Collection[str]) -> bool:
    """Return whether a query that starts is to be bound to the level of its shedding, besides some variables.

    A query that sheds no more keeps its level, because Spark cannot remove the source that binds epochs. ``before`` is
    the binding of its newest epoch.

    Raises:
        QueryError: one of the variables is the level of another query.
    """
    own = level_variable(name)
    for known in variables:
        if is_level(known) and known != own:
            raise QueryError(
                f"{known} is the level of another query's shedding, and {name} has its own: {own}.\nLeave it out of"
                " shared=…."
            )
    return own not in variables and bool(sheds_in(frame) or _levels(before))


def own_level(
    name: str, store: str, before: Binding | None, *, transport: str | None, options: Mapping[str, str] | None
) -> SharedVariable:
    """Return the level of a query that starts, which is declared if it is not.

    A query that goes on from a fork under a new name begins with the level that the fork was made at.
    """
    levels = _levels(before)
    init = None if before is None or not levels or level_variable(name) in levels else _value(before, levels[0])
    return declare_level(store, name, transport=transport, init=init, storage_options=options)


def _levels(binding: Binding | None) -> list[str]:
    return [] if binding is None else [name for name in binding.versions if is_level(name)]


def declare_level(
    store: str | Path,
    query: str,
    *,
    transport: str | None = None,
    init: Mapping[str, Any] | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> SharedVariable:
    """Declare the level of a query's shedding, or return the declared one. Starting the query does so by itself.

    Call it before, to begin with another level than keeping everything, for a fork that begins with a level, or if the
    store is in an object store, which cannot hold the variables of running queries.

    Args:
        store: the store that the query is captured into.
        query: the query's name.
        transport: where versions are kept while the query runs, as for :func:`streamstate.shared`.
        init: the first level, as :func:`level_for` returns it; by default every row is kept.
        storage_options: deltalake's options for a store in an object store.

    Raises:
        VariableError: the store is in an object store, and there is no transport.
        TransportError: the transport cannot be reached.
        StoreError: the store cannot be read or written.

    Example:
        >>> from streamstate.shedding import declare_level, level_for
        >>> level = declare_level("store", "late", init=level_for("delay > 60", 0.5))
        >>> level.get()["base"]
        5000
    """
    path, name = location(store), level_variable(query)
    check_store(layout := Layout.at(path, storage_options))
    if name in DeclaredVariables(layout).all():
        return declared_variable(path, name, storage_options)
    if transport is None and local_path(path) is None:
        raise VariableError(
            f"{query} sheds, and its store {path} is in an object store, which cannot hold the level of a running"
            " query.\nSay where it is kept, once, before the query starts:"
            f" streamstate.shedding.declare_level({path!r}, {query!r}, transport='redis://host:6379/0'), or a folder"
            " that the driver reaches."
        )
    first = Level().value() if init is None else init
    made = Declaration.checked(name, TYPE, init=first, merge="last", access="read-mostly", consistency="epoch")
    return declared_as(made, path, None if transport == default_transport(path) else transport, storage_options)


def binding_before(frame: DataFrame, checkpoint: str) -> Binding | None:
    """Return the binding of the newest committed epoch of a query that starts; None if there is none."""
    planned = planned_before(checkpoint, frame.sparkSession)
    return None if planned is None else binding_in(planned.offsets)


def _value(binding: Binding, name: str) -> Any:
    """Return the value of a level that an epoch was bound to."""
    version = binding.versions[name]
    if version is None or version.number is None:
        return None
    declaration = declared_variable(binding.store, name).declaration
    return log_of(declaration, binding.at, version.branch).value(version.number)
