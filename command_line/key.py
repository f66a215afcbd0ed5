"""``streamstate key``: every change of a key, or its row at an epoch."""

from __future__ import annotations

import argparse

from streamstate.command_line.argument_types import key_of, snapshot_at
from streamstate.command_line.arguments import add_at, add_json, add_key, add_query, add_store, add_table, history_of
from streamstate.command_line.command import FINE, Command
from streamstate.command_line.output import print_state


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_store(parser)
    add_query(parser)
    add_key(parser)
    add_table(parser)
    add_at(parser, "the key's row at this epoch, instead of its changes")
    add_json(parser, "an object for each change; with --at one for the row, if there is one")


def _run(given: argparse.Namespace) -> int:
    from streamstate.state_inspect.keys.key_text import in_shell

    history = history_of(given)
    state = snapshot_at(history, "live" if given.at is None else given.at).table(given.table)
    key = key_of(state, given.words, given, whole=given.at is not None, spelling=in_shell)
    rows = history.key_history_arrow(state.name, key=key) if given.at is None else state.lookup_many_arrow([key])
    print_state(state, rows, as_json=given.json)
    return FINE


KEY = Command(
    "key",
    "show every change of a key, or its row at an epoch",
    "Show every change of a key: its values, the epochs, and the causes. Some of the key columns are enough, for all "
    "keys with these values. With --at, show the key's row at one epoch.",
    """
    streamstate key store delays carrier=UA origin=EWR
    streamstate key store delays carrier=UA
    streamstate key store delays carrier=UA origin=EWR --at 12
    """,
    _arguments,
    _run,
    ("History.key_history",),
)
