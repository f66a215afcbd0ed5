"""A query that is started with shared variables: the names become variables, and the frame is bound to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from streamstate.errors import InvalidArgumentError, QueryError, SparkConnectError
from streamstate.launch.launch import Launch

if TYPE_CHECKING:
    from streamstate.variables.shared_variable import SharedVariable


def chosen_variables(
    store: str, given: Sequence[str | SharedVariable], options: Mapping[str, str] | None
) -> dict[str, SharedVariable]:
    """Return the variables for some names, or for the variables themselves, by name.

    Raises:
        InvalidArgumentError: it is no sequence of names and variables.
        UnknownVariableError: the store has no variable of a name.
        QueryError: a variable is of another store.
    """
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise InvalidArgumentError(f"Invalid shared={given!r}: expected names or variables, such as shared=('limit',).")
    if not given:
        return {}
    from streamstate.variables.declaring import declared_variable
    from streamstate.variables.shared_variable import SharedVariable

    found: dict[str, SharedVariable] = {}
    for variable in given:
        if isinstance(variable, str):
            variable = declared_variable(store, variable, options)  # noqa: PLW2901 (a name becomes what it names)
        elif not isinstance(variable, SharedVariable):
            raise InvalidArgumentError(
                f"Invalid shared variable {variable!r}: expected a name, or what ss.shared returns."
            )
        if variable.store != store:
            raise QueryError(
                f"{variable.name} is a variable of {variable.store}, and the query is captured into {store}.\n"
                "Declare the variable in the query's store."
            )
        found[variable.name] = variable
    return found


def with_shared_variables(
    launch: Launch, variables: Mapping[str, SharedVariable], store: str, options: Mapping[str, str] | None
) -> Launch:
    """Return the launch of a query that was checked, whose epochs are bound to some variables.

    The level of its shedding is added, if its frame has :func:`streamstate.shed`.

    Raises:
        QueryError: the query has run before, with other sources, or a variable is the level of another query.
        VariableError: its level cannot be kept in the store, which is in an object store.
        SparkConnectError: there are variables, and a Spark Connect server runs the query.
    """
    if launch.on_connect:
        if variables:
            raise SparkConnectError.needs_classic()
        return launch
    from streamstate.variables.query_with_variables import check_goes_on, with_variables
    from streamstate.variables.shedding.bound_level import binding_before, needs_level, own_level
    from streamstate.variables.shedding.level import level_variable

    frame, name, checkpoint, own = launch.frame, launch.name, launch.checkpoint, level_variable(launch.name)
    before = binding_before(frame, checkpoint)
    lacks_level = needs_level(frame, name, before, variables)
    check_goes_on(frame, checkpoint, [*variables, *([own] if lacks_level else [])])
    chosen = tuple(variables.values())
    if lacks_level:
        transport = chosen[0].transport if chosen else None
        chosen = (*chosen, own_level(name, store, before, transport=transport, options=options))
    if not chosen:
        return launch
    return replace(launch, frame=with_variables(frame, chosen, checkpoint, level=own), shared=chosen)
