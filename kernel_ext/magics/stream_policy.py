"""``%stream policy``: what must hold for a query, and whether it does."""

from __future__ import annotations

import argparse
import re
from typing import Any

from streamstate.errors import InvalidArgumentError
from streamstate.launch.running import Running
from streamstate.magics.arguments import MagicParser, Verb, add_output
from streamstate.magics.notebook_context import NotebookContext
from streamstate.snapshots.store.control_table import DECISION, NONE, Control, in_force, policy_words
from streamstate.widgets.tables.summary_table import SummaryTable

_OPTIONS = ("latency", "may_drop", "keep", "partitions", "state_limit")


def _arguments(parser: MagicParser) -> None:
    parser.add("name", metavar="NAME", nargs="?", completes="running", help="the query (default: the only one)")
    parser.add("--latency", metavar="TIME", help="the longest time from a row's arrival to its result: 5s, 500ms, 2m")
    parser.add("--may-drop", metavar="SHARE", type=float, help="the largest share of rows that may be dropped: 0.2")
    parser.add("--keep", metavar="CONDITION", help='rows that are never dropped: "delay > 60"')
    parser.add("--partitions", metavar="FEWEST..MOST", type=_span, help="how many partitions the state may have: 4..16")
    parser.add("--state-limit", metavar="SIZE", help="the size that the state must not exceed: 10GB")
    parser.add("--off", action="store_true", help="end the policy: everything is kept and read again")
    add_output(parser, "keep the table in a variable, as a DataFrame")


def _span(text: str) -> tuple[int, int]:
    found = re.fullmatch(r"(\d+)(?:\.\.(\d+))?", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"invalid partitions {text!r}: expected 4..16, or one number.")
    return int(found[1]), int(found[2] or found[1])


def _policy(notebook: NotebookContext, args: argparse.Namespace) -> SummaryTable:
    """Change the policy, if the line says so; show it, and what was decided last."""
    __tracebackhide__ = True
    running = notebook.query(args.name)
    changes = {name: value for name in _OPTIONS if (value := getattr(args, name)) is not None}
    if args.off and changes:
        raise InvalidArgumentError("--off ends the policy: it takes no other options.")
    if args.off:
        running.policy = None
    elif changes:
        running.policy = _changed(running, changes)
    table = _shown(running)
    if args.output is not None:
        notebook.assign(args.output, table.to_pandas())
    return table


def _changed(running: Running, changes: dict[str, Any]) -> Any:
    """Return the policy with some values changed, or a new one."""
    now: Any = running.policy
    if now is not None:
        return now.changed(**changes)
    if "latency" not in changes:
        raise InvalidArgumentError(
            f"{running.name} has no policy yet, and one needs a latency: %stream policy {running.name} --latency 5s."
        )
    from streamstate.operations.policies.policy import Policy

    return Policy(**changes)


def _shown(running: Running) -> SummaryTable:
    from streamstate.state_inspect.control import moved_words

    rows = Control(running.capture.layout, running.name).rows()
    known = in_force(rows)
    last = next((row for row in reversed(rows) if row.kind == DECISION), None)
    moved = "" if last is None or last.lever == NONE else f"{moved_words(last)}. "
    decision = None if last is None else f"after epoch {last.epoch}: {moved}{last.reason}"
    policy = None if known.policy is None else repr(running.policy)
    return SummaryTable(
        ["name", "policy", "state", "last decision"],
        [[running.name, policy or "no policy", policy_words(known), decision]],
        empty="",
        caption=f"The load policy of {running.name}",
    )


POLICY = Verb(
    "policy",
    "show or change what must hold for a query (--latency 5s), or end it (--off)",
    _arguments,
    _policy,
    "Running.policy",
)
