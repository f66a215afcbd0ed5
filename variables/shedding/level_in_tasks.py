"""The level of shedding inside a task: of the version that its epoch is bound to."""

from __future__ import annotations

from typing import Any

from pyspark import TaskContext

from streamstate.errors import UnknownVariableError
from streamstate.snapshots.checkpoint.bindings import EPOCH, RUN, Binding, Version
from streamstate.variables.declaration import Declaration
from streamstate.variables.declared_types import declared_type
from streamstate.variables.in_tasks import QueryRun, key_for_tasks, log_of
from streamstate.variables.shedding.level import MOST, TYPE, Level, is_level
from streamstate.variables.transports.driver_key import DriverKey, learn

NATIVE = ", ".join(
    [
        "version: bigint",
        *(f"from{number}: double" for number in range(2, MOST + 1)),
        *(f"keep{number}: int" for number in range(MOST + 1)),
    ]
)
"""A level as native expressions read it: where the intervals 2 to 5 begin, and the shares of 0 (no value) to 5."""


class LevelReader:
    """Reads the level of an epoch in one of its tasks, as :data:`NATIVE` describes it.

    A query that is not bound to a level keeps everything: one that was not started by streamstate, or an epoch that was
    planned before the query had a level.
    """

    def __call__(self) -> tuple[Any, ...]:
        """Return the level's version, bounds and shares."""
        version, level = _level_here()
        bounds = [*level.bounds, *[None] * (MOST - 1 - len(level.bounds))]
        shares = [level.base, *level.keep, *[None] * (MOST - len(level.keep))]
        return (version, *bounds, *shares)

    def __reduce__(self) -> tuple[Any, ...]:
        return _in_worker, (key_for_tasks(),)


def _in_worker(key: DriverKey | None) -> LevelReader:
    learn(key)
    return LevelReader()


def _level_here() -> tuple[int | None, Level]:
    """Return the version and the level of this task's epoch."""
    context = TaskContext.get()
    text, epoch = (None, None) if context is None else (context.getLocalProperty(RUN), context.getLocalProperty(EPOCH))
    if not text or not epoch:
        return None, Level()
    run = QueryRun.of(text)
    binding = run.binding_if_any(int(epoch))
    bound = () if binding is None else ((name, at) for name, at in binding.versions.items() if is_level(name))
    for name, version in bound:
        if binding is not None and version is not None and version.number is not None:
            return version.number, Level.of(_value(run, binding, name, version))
    return None, Level()


def _value(run: QueryRun, binding: Binding, name: str, version: Version) -> Any:
    """Return a version's value."""
    keys = dict(zip(run.variables, run.keys, strict=False))
    if name in keys:
        transport, identity = run.transport, keys[name].removeprefix(f"{name}-")
    else:  # an epoch that is only looked at again, or that a fork's original planned
        transport, identity = binding.at, _declared(binding.store, name).identity
    declaration = Declaration(name, declared_type(TYPE), identity=identity, store=binding.store)
    return log_of(declaration, transport, version.branch).value(version.number or 0)


def _declared(store: str, name: str) -> Declaration:
    from streamstate.snapshots.store.declared_variables import DeclaredVariables
    from streamstate.snapshots.store.layout import Layout

    known = DeclaredVariables(Layout.at(store, None)).all()
    if name not in known:
        raise UnknownVariableError.among("shared variable", name, known, where=f"in {store}")
    return Declaration.from_text(known[name].declaration, store=store)
