"""``streamstate migrate``: a checkpoint for changed code, from the state of a stopped query."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from streamstate.command_line.arguments import add_checkpoint, read_text
from streamstate.command_line.command import FINE, Command
from streamstate.command_line.output import print_json
from streamstate.command_line.user_code import add_code, loaded
from streamstate.errors import InvalidArgumentError


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_checkpoint(parser)
    add_code(parser)
    parser.add_argument("--to", metavar="PATH", help="the new checkpoint (default: only print the mapping)")
    parser.add_argument("--store", metavar="STORE", help="the store with the query's captures, for its recorded plan")
    parser.add_argument(
        "--mapping",
        metavar="FILE",
        help="JSON: for each new state table, SQL over the old ones (default: what is obvious)",
    )


def _run(given: argparse.Namespace) -> int:
    import streamstate as ss

    build, mapping = loaded(*given.code), None if given.mapping is None else _mapping(given.mapping)
    if given.to is not None:
        old = ss.Checkpoint(given.checkpoint)
        print(repr(old.migrate(build, to=given.to, mapping=mapping, mode=given.mode, store=given.store)))
        return FINE
    proposals = ss.Checkpoint(given.checkpoint).propose_mapping(build, mode=given.mode, store=given.store, rows=0)
    proposals.check()
    print_json({proposal.table: proposal.sql for proposal in proposals})
    for proposal in proposals:
        print("\n".join(proposal.notes), file=sys.stderr)
    return FINE


def _mapping(path: str) -> dict[str, Any]:
    try:
        mapping = json.loads(read_text(path))
    except ValueError as error:
        raise InvalidArgumentError(f"{path} is not JSON: {error}") from error
    if isinstance(mapping, dict) and all(isinstance(sql, str) for sql in mapping.values()):
        return mapping
    raise InvalidArgumentError(f'{path} has no mapping: expected {{"op0": "SELECT … FROM op0"}}.')


MIGRATE = Command(
    "migrate",
    "make a checkpoint for changed code, with the state of a query",
    "Make a checkpoint for changed code from the checkpoint of a stopped query; the old one is only read. Start the "
    "changed query from the new one: it continues where the other stopped. Spark reads back what was written, and "
    "every row is compared, before the new checkpoint appears.\n\n"
    "Without --to, print the mapping that is obvious, and write nothing. It can be edited, and passed with --mapping.",
    """
    streamstate migrate checkpoints/delays jobs.delays:build --store store | tee mapping.json
    streamstate migrate checkpoints/delays jobs.delays:build --to checkpoints/delays_2 --mapping mapping.json
    """,
    _arguments,
    _run,
    ("Checkpoint.migrate", "Checkpoint.propose_mapping"),
)
