"""``streamstate why-policy``: what a load policy did to an epoch, and why."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from streamstate.command_line.arguments import add_epoch, add_json, add_query, add_store, history_of
from streamstate.command_line.command import FINE, Command
from streamstate.command_line.output import print_json


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_store(parser)
    add_query(parser)
    add_epoch(parser)
    add_json(parser, "one object: the policy, the levels, and the decisions that set them")


def _run(given: argparse.Namespace) -> int:
    why = history_of(given).why_policy(given.epoch)
    if given.json:
        print_json(asdict(why))
    else:
        print(why)
    return FINE


WHY_POLICY = Command(
    "why-policy",
    "explain what a load policy did to an epoch",
    "Show which load policy and which levels were in force in an epoch, which decisions set them, and the numbers that "
    "these follow from. It reads the store only.",
    """
    streamstate why-policy store delays 12
    streamstate why-policy store delays live --json
    """,
    _arguments,
    _run,
    ("History.why_policy",),
)
