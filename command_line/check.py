"""``streamstate check``: check code against a checkpoint, for a pipeline that deploys it."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from streamstate.command_line.argument_types import count
from streamstate.command_line.arguments import add_checkpoint, add_json
from streamstate.command_line.command import FAILED, FINE, Command
from streamstate.command_line.output import print_json
from streamstate.command_line.user_code import add_code, loaded

if TYPE_CHECKING:
    from streamstate.operations.code_check import CheckReport


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_checkpoint(parser)
    add_code(parser)
    parser.add_argument("--store", metavar="STORE", help="the store with the query's captures, for its recorded plan")
    parser.add_argument(
        "--replay", metavar="N", type=count, default=0, help="run the last N epochs again, and compare the states"
    )
    add_json(
        parser, "one object: checkpoint, epoch, ok, replayed, seconds, findings (kind, level, change, effect, advice)"
    )


def _run(given: argparse.Namespace) -> int:
    import streamstate as ss

    build = loaded(*given.code)
    report = ss.Checkpoint(given.checkpoint).check(build, mode=given.mode, store=given.store, replay=given.replay)
    if given.json:
        print_json(_as_json(report))
    else:
        print(report)
    return FINE if report.ok else FAILED


def _as_json(report: CheckReport) -> dict[str, Any]:
    findings = [{"level": finding.level, **asdict(finding)} for finding in report.findings]
    return {**asdict(report), "ok": report.ok, "findings": findings}


CHECK = Command(
    "check",
    "check whether code can continue from a checkpoint, before it is deployed",
    "Check code against a checkpoint: whether Spark would start it from there, and "
    "whether the state would then mean the same. The checkpoint is only read, and its query may be running. "
    "With the store that the query is captured into, expressions and conditions are compared with the "
    "recorded plan, too.\n\n"
    "Exits with 0 if the code can continue, and with 1 if Spark would refuse it, or the state "
    "or the results would mean something else. Notes do not count.",
    """
    streamstate check checkpoints/delays jobs.delays:build --store store
    streamstate check checkpoints/delays jobs/delays.py:build --mode append --replay 3
    streamstate check checkpoints/delays jobs.delays:build --json | jq -r '.findings[].kind'
    """,
    _arguments,
    _run,
    ("Checkpoint.check",),
)
