"""``streamstate why``: what changed a key in an epoch."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from streamstate.command_line.argument_types import key_of
from streamstate.command_line.arguments import (
    add_epoch,
    add_json,
    add_key,
    add_query,
    add_store,
    add_table,
    history_of,
)
from streamstate.command_line.command import FINE, Command
from streamstate.command_line.output import print_json, shown_rows
from streamstate.command_line.user_code import add_code, plan_by_code
from streamstate.errors import InvalidArgumentError

if TYPE_CHECKING:
    from streamstate.state_inspect import History, Why
    from streamstate.state_inspect.inputs.key_change import StateChange


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_store(parser)
    add_query(parser)
    add_epoch(parser)
    add_key(parser)
    add_table(parser, "the state table, or result (default: the result if it is known, else the only table)")
    add_code(parser, "--code", "; the input rows behind the change are then read again with Spark", mode=None)
    add_json(
        parser,
        "one object: query, epoch, table, key, cause, before, after, nearest, changes; with --code also input_rows"
        " (how many), rows (the first 200 of each side), dropped (how many rows were late), late, moved and"
        " nondeterministic",
    )


def _run(given: argparse.Namespace) -> int:
    from streamstate.state_inspect.keys.key_rows import row_number_column
    from streamstate.state_inspect.keys.key_text import in_shell

    if given.mode is not None and given.code is None:
        raise InvalidArgumentError("--mode is the mode of the query that --code gives. Add --code MODULE:FUNCTION.")
    history = history_of(given)
    table = given.table or next(iter(history.results()), None)
    number = history.at(given.epoch).epoch
    state = history.live().table(table)
    row_number = row_number_column(state.name, state.key_columns)
    key = key_of(state, given.words, given, without=row_number, spelling=in_shell)
    change = (_stored if given.code is None else _with_input)(history, given, number, (state.name, key))
    if given.json:
        print_json(_as_json(history.name, change))
        return FINE
    print(change)
    if given.code is None:
        print("--code MODULE:FUNCTION shows the input rows behind it", file=sys.stderr)
    return FINE


_Asked = tuple[str, dict[str, Any]]
"""A table, and a key."""


def _stored(history: History, _given: argparse.Namespace, number: int, asked: _Asked) -> StateChange:
    """Return a change as the store knows it, without Spark."""
    from streamstate.state_inspect.inputs.key_change import asked_key, key_change

    table, key = asked
    return key_change(history.recorded, history.at, number, asked_key(history.recorded, table, {"key": key}))


def _with_input(history: History, given: argparse.Namespace, number: int, asked: _Asked) -> Why:
    """Return the change with its input rows."""
    plan_by_code(history, given, number)
    table, key = asked
    return history.why(number, table=table, key=key)


def _as_json(query: str, change: StateChange) -> dict[str, Any]:
    from streamstate.state_inspect.frames import frame_records
    from streamstate.state_inspect.inputs.why import Why

    facts = {name: getattr(change, name) for name in ("epoch", "table", "key", "cause", "before", "after", "nearest")}
    known = {"query": query, **facts, "changes": frame_records(change.changes)}
    if not isinstance(change, Why):
        return known
    suspects = [vars(suspect) for suspect in change.nondeterministic]
    return {
        **known,
        "input_rows": change.count(),
        "rows": shown_rows(change),
        "dropped": change.dropped,
        "late": shown_rows(change.late_rows),
        "moved": change.moved,
        "nondeterministic": suspects,
    }


WHY = Command(
    "why",
    "show what changed a key in an epoch",
    "Show why a key changed in an epoch: its values before and after, and the cause. "
    "With the code of the query, the input rows that fell on the key are read again from the query's sources, and "
    "those that came too late; nothing is written.",
    """
    streamstate why store delays 12 carrier=HA origin=JFK
    streamstate why store delays live-3 carrier=HA origin=JFK --code jobs.delays:build
    streamstate why store delays 12 carrier=HA origin=JFK --code jobs/delays.py:build --json | jq .rows
    """,
    _arguments,
    _run,
    ("History.why",),
)
