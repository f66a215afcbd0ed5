"""``streamstate check``: whether code goes on from a checkpoint, for a pipeline that deploys it."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import sys
from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from streamstate.commands.arguments import add_checkpoint, add_json
from streamstate.commands.command import FAILED, FINE, Command
from streamstate.commands.output import print_json, progress
from streamstate.errors import InvalidArgumentError, first_line
from streamstate.snapshots.spark.output_modes import MODES

if TYPE_CHECKING:
    from streamstate.operations.code_check import CheckReport


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_checkpoint(parser)
    parser.add_argument(
        "code",
        metavar="MODULE:FUNCTION",
        type=_place,
        help="the function that returns the streaming DataFrame, such as jobs.delays:build or jobs/delays.py:build",
    )
    parser.add_argument("--mode", choices=MODES, default="update", help="the output mode (default: update)")
    parser.add_argument(
        "--store", metavar="STORE", help="the store that the query is captured into, which has its plan"
    )
    parser.add_argument(
        "--replay", metavar="N", type=_count, default=0, help="run the last N epochs again, and compare the states"
    )
    add_json(
        parser, "one object: checkpoint, epoch, ok, replayed, seconds, findings (kind, level, change, effect, advice)"
    )


def _place(text: str) -> tuple[str, str]:
    module, colon, function = text.rpartition(":")
    if not (colon and module and function.isidentifier()):
        raise argparse.ArgumentTypeError(
            f"invalid code {text!r}: expected MODULE:FUNCTION, such as jobs.delays:build, or FILE:FUNCTION"
        )
    return module, function


def _count(text: str) -> int:
    if text.isdecimal():
        return int(text)
    raise argparse.ArgumentTypeError(f"invalid number {text!r}: expected a number of epochs")


def _run(given: argparse.Namespace) -> int:
    import streamstate as ss

    build = _loaded(*given.code)
    report = ss.check(
        build, given.checkpoint, mode=given.mode, store=given.store, replay=given.replay, progress=progress()
    )
    if given.json:
        print_json(_as_json(report))
    else:
        print(report)
    return FINE if report.ok else FAILED


def _as_json(report: CheckReport) -> dict[str, Any]:
    findings = [{"level": finding.level, **asdict(finding)} for finding in report.findings]
    return {**asdict(report), "ok": report.ok, "findings": findings}


def _loaded(module: str, function: str) -> Any:
    """The function, from a module on the path or in the current folder, or from a file."""
    from pyspark import cloudpickle

    try:
        loaded = _of_file(Path(module)) if module.endswith(".py") else _of_name(module)
    except Exception as error:
        raise InvalidArgumentError(f"{module} cannot be imported: {first_line(error)}") from error
    # Spark's Python workers cannot import it from here.
    cloudpickle.register_pickle_by_value(loaded)  # type: ignore[no-untyped-call]
    if not hasattr(loaded, function):
        known = ", ".join(name for name, value in vars(loaded).items() if callable(value) and not name.startswith("_"))
        raise InvalidArgumentError(f"{module} has no {function}.\nIt has: {known or 'no functions'}.")
    return getattr(loaded, function)


def _of_name(name: str) -> ModuleType:
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
    return importlib.import_module(name)


def _of_file(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if not path.is_file() or spec is None or spec.loader is None:
        raise FileNotFoundError(f"there is no such file: {path}")
    sys.path.insert(0, str(path.parent.absolute()))
    loaded = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = loaded
    spec.loader.exec_module(loaded)
    return loaded


CHECK = Command(
    "check",
    "say whether code goes on from a checkpoint, before it is deployed",
    "Check code against a checkpoint: whether Spark would start it from there, and "
    "whether the state would then mean the same. The checkpoint is only read, and its query may be running. "
    "With the store that the query is captured into, expressions and conditions are compared with the "
    "recorded plan, too.\n\n"
    "Exits with 0 if the code goes on, and with 1 if Spark would refuse it, or the state "
    "or the results would mean something else. Notes do not count.",
    """
    streamstate check checkpoints/delays jobs.delays:build --store store
    streamstate check checkpoints/delays jobs/delays.py:build --mode append --replay 3
    streamstate check checkpoints/delays jobs.delays:build --json | jq -r '.findings[].kind'
    """,
    _arguments,
    _run,
)
