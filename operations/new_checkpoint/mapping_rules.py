"""Proposed mappings from the state tables of a query to those of the changed query."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from streamstate.errors import StateWriteError, choices, worded
from streamstate.operations.new_checkpoint.aggregates import Aggregates, base_name
from streamstate.operations.new_checkpoint.column_pairs import column_pairs, origins
from streamstate.operations.new_checkpoint.proposed_mapping import Proposal
from streamstate.snapshots.checkpoint.state_tables import NO_KEY, Shape

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

    from streamstate.operations.new_checkpoint.target import TargetTable
    from streamstate.snapshots.store.query_plans.query_plan import StateInput

_MERGED_BY = {"sum": "sum", "count": "sum", "max": "max", "min": "min", "bool_and": "bool_and", "bool_or": "bool_or"}
"""For Spark's names of buffers: the function that merges several of them into one."""

Inputs = Mapping[str, "StateInput"]
"""The input of each state table."""


def propose(
    new: Mapping[str, TargetTable],
    old: Mapping[str, TargetTable],
    inputs: tuple[Inputs, Inputs] = ({}, {}),
) -> list[Proposal]:
    """Return a mapping for each of the new state tables. Where it is not obvious, ``problem`` says why.

    Args:
        new: the new state tables by name.
        old: the old ones.
        inputs: the known inputs of the new and of the old ones.
    """
    return [_or_problem(name, new, old, inputs) for name in new]


def _or_problem(
    name: str, new: Mapping[str, TargetTable], old: Mapping[str, TargetTable], inputs: tuple[Inputs, Inputs]
) -> Proposal:
    table, source = new[name], None
    try:
        source = _old_table(name, new, old)
        after, before = inputs
        own = Aggregates.of(table, after.get(name))
        proposal = _proposal(table, source, own, Aggregates.of(source, before.get(source.source.table)))
    except StateWriteError as error:
        proposal = Proposal(name, None, problem=str(error))
    return proposal if source is None else beside(proposal, table, source)


def beside(proposal: Proposal, new: TargetTable, old: TargetTable) -> Proposal:
    """Return a proposal with the columns of both tables."""
    pairs = column_pairs(new, old, origins(proposal.sql, old))
    return replace(proposal, old=old.source.table, columns=tuple(pairs))


def _old_table(name: str, new: Mapping[str, TargetTable], old: Mapping[str, TargetTable]) -> TargetTable:
    if name in old:
        return old[name]
    if len(old) == len(new) == 1:
        return next(iter(old.values()))
    raise StateWriteError(
        f"It is not obvious what the new state table {name} follows from: the old ones are {choices(old)}.\n"
        f"{_pass_a_mapping(name, next(iter(old), 'op0'))}"
    )


def _proposal(new: TargetTable, old: TargetTable, own: Aggregates | None, before: Aggregates | None) -> Proposal:
    table, notes = new.source.table, list[str]()
    keys, lost = _keys(new, old)
    if lost and new.source.shape is not Shape.KEYED:
        raise _not_obvious(new, old, f"{choices(lost)} is no longer part of its key")
    if own is not None and before is not None:
        try:
            sources, notes = own.from_before(before)
        except ValueError as error:
            raise _not_obvious(new, old, str(error)) from error
    else:
        sources = _by_name(new, old, own, lost=bool(lost))
    selected = [*_copies(keys, new, old, notes)]
    for name in _values(new):
        if name in sources:
            selected.append(_value(name, sources[name], new, old, merged=bool(lost), notes=notes))
        else:
            selected.append(_added(name, own, new, old, notes))
    dropped = [name for name in _values(old) if name not in {*sources.values()}]
    notes += [f"{choices(dropped)} is dropped."] * bool(dropped)
    notes += [f"The rows that differ only in {choices(lost)} become one."] * bool(lost)
    grouping = f" GROUP BY {', '.join(_quoted(source) for source in keys.values())}" if lost and keys else ""
    return Proposal(table, f"SELECT {', '.join(selected)} FROM {_quoted(old.source.table)}{grouping}", tuple(notes))


def _by_name(new: TargetTable, old: TargetTable, own: Aggregates | None, *, lost: bool) -> dict[str, str]:
    """Match new value columns with old ones by name."""
    values, old_values = _values(new), _values(old)
    if len(values) != len(old_values) or lost:
        # With several buffers of one name, a number tells them apart, which changes with the aggregates before them.
        several = sorted(_several(values) | _several(old_values))
        if several:
            raise _not_obvious(new, old, f"there are several columns named {choices(several)}, {_without_a_plan()}")
    renamed = _renamed(values, old_values, new.types, old.types)
    sources = {name: name for name in values if name in old_values} | renamed
    for text, columns in (own.columns if own else {}).items():
        if 0 < len(known := [name for name in columns if name in sources]) < len(columns):
            raise _not_obvious(new, old, f"{text} needs more than {choices(known)}, {_without_a_plan()}")
    return sources


def _values(table: TargetTable) -> list[str]:
    return [name for name in table.types if name not in table.keys]


def _keys(new: TargetTable, old: TargetTable) -> tuple[dict[str, str], list[str]]:
    """For each key column of the new table, the old one's; and the old key columns that are lost."""
    keys = {name: name for name in new.keys if name in old.keys}
    missing, left = [name for name in new.keys if name not in keys], [name for name in old.keys if name not in keys]
    if len(missing) == len(left) == 1 and new.types[missing[0]] == old.types[left[0]]:
        keys[missing[0]] = left.pop()
    elif missing and missing != [NO_KEY]:
        raise _not_obvious(new, old, f"nothing says what its key column {choices(missing)} was")
    return {name: keys[name] for name in new.keys if name in keys}, left


def _copies(keys: Mapping[str, str], new: TargetTable, old: TargetTable, notes: list[str]) -> list[str]:
    if [*new.keys] == [NO_KEY] and not keys:
        return [f"0 AS {NO_KEY}"]
    return [_copied(name, keys[name], new, old, notes) for name in new.keys]


def _copied(name: str, source: str, new: TargetTable, old: TargetTable, notes: list[str]) -> str:
    if name != source:
        notes.append(f"{source} is renamed to {name}.")
    if new.types[name].simpleString() != old.types[source].simpleString():
        notes.append(f"{name} was {old.types[source].simpleString()} and is {new.types[name].simpleString()}.")
    return _quoted(source) if name == source else f"{_quoted(source)} AS {_quoted(name)}"


def _value(name: str, source: str, new: TargetTable, old: TargetTable, *, merged: bool, notes: list[str]) -> str:
    if not merged:
        return _copied(name, source, new, old, notes)
    function = _MERGED_BY.get(base_name(source))
    if function is None:
        raise _not_obvious(new, old, f"nothing says how several values of {source} become one")
    _copied(name, source, new, old, notes)
    return f"{function}({_quoted(source)}) AS {_quoted(name)}"


def _added(name: str, own: Aggregates | None, new: TargetTable, old: TargetTable, notes: list[str]) -> str:
    if own is None:
        raise _not_obvious(new, old, f"nothing says what {name} is for the keys that the state has")
    initial = own.initial[name]
    notes.append(f"{name} is new: for the keys that the state has, it knows nothing of the input before ({initial}).")
    return f"{initial} AS {_quoted(name)}"


def _renamed(
    values: list[str], old_values: list[str], types: Mapping[str, DataType], old_types: Mapping[str, DataType]
) -> dict[str, str]:
    """Return the one new value column that has no other origin than the one old value column that is left."""
    new = [name for name in values if name not in old_values]
    left = [name for name in old_values if name not in values]
    # Spark names a buffer after its function: another name is another function.
    is_users = not {base_name(name) for name in (*new, *left)} & {*_MERGED_BY}
    if len(new) == len(left) == 1 and is_users and types[new[0]] == old_types[left[0]]:
        return {new[0]: left[0]}
    return {}


def _several(names: list[str]) -> set[str]:
    return {name for name, count in Counter(map(base_name, names)).items() if count > 1}


def _quoted(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) else "`" + name.replace("`", "``") + "`"


def _without_a_plan() -> str:
    store = worded("store=…", command="--store")
    return f"and without a recorded plan ({store}) nothing says which function an old column belongs to"


def _pass_a_mapping(table: str, old: str) -> str:
    sql = f"'{table}': 'SELECT … FROM {old}'"
    in_file = "{" + sql.replace("'", '"') + "}"
    return worded(
        f"Pass mapping={{{sql}}}.",
        magic=f"Pass a variable with --mapping: {{{sql}}}.",
        command=f"Write it to a file, {in_file}, and pass that with --mapping FILE.",
    )


def _not_obvious(new: TargetTable, old: TargetTable, why: str) -> StateWriteError:
    table = new.source.table
    return StateWriteError(
        f"It is not obvious how {table} follows from the old state: {why}.\n"
        f"It has the columns {choices(new.types)}; the old {old.source.table} has {choices(old.types)}.\n"
        f"{_pass_a_mapping(table, old.source.table)}"
    )
