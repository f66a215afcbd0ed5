"""``streamstate follow`` for many queries: one process, a line for each pass, and a summary at the end."""

from __future__ import annotations

import argparse
import queue
import sys
from collections.abc import Iterable
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeAlias

from streamstate.command_line.arguments import capture_options
from streamstate.command_line.capture import pass_line
from streamstate.command_line.command import FAILED, FINE
from streamstate.command_line.many import found_checkpoints, named, required_checkpoints
from streamstate.command_line.output import print_json
from streamstate.command_line.stopping import Stopping
from streamstate.errors import first_line

if TYPE_CHECKING:
    from streamstate.operations.capture_metrics import CaptureMetrics
    from streamstate.snapshots.capture.epoch_commit import CaptureReport
    from streamstate.snapshots.capture.fleet import Fleet, OnFleetPass

Passed: TypeAlias = "tuple[str, CaptureReport | Exception]"
"""A query, or a checkpoint that cannot be captured, and what its pass did."""

# How often --wait looks for a first checkpoint.
_LOOK_SECONDS = 1.0


def follow_many(
    given: argparse.Namespace, stopping: Stopping[Passed], metrics: CaptureMetrics | None, on_pass: OnFleetPass
) -> int:
    """Follow checkpoints until stopped, and return the exit status."""
    from streamstate.snapshots.capture.fleet import Fleet

    if not _wait(given, stopping):
        return FINE
    lines = _Lines(given)
    fleet = Fleet(
        lambda: found_checkpoints(given, versions=True),
        given.store,
        every=given.every,
        on_pass=on_pass,
        **capture_options(given),
    )
    if metrics is not None:
        metrics.attach(fleet)
    stopping.watch_signals()  # Spark has taken Ctrl+C for itself
    try:
        if not (given.quiet or given.json):
            print(f"{now()} following {len(fleet.captures)} queries into {fleet.store}", flush=True)
        while (passed := stopping.next_outcome()) is not None:
            lines.show(fleet, [passed])
    finally:
        fleet.stop(catch_up=False)
    lines.show(fleet, stopping.left())
    return _summary(given, fleet)


def _wait(given: argparse.Namespace, stopping: Stopping[Passed]) -> bool:
    """Return True once there is a checkpoint; False if the command was stopped before."""
    if not given.wait:
        required_checkpoints(given)
    while not stopping.asked and not found_checkpoints(given):
        try:
            stopping.outcomes.get(timeout=_LOOK_SECONDS)
        except queue.Empty:
            continue
    return not stopping.asked


class _Lines:
    """The lines of a fleet; an error that keeps coming is printed once."""

    def __init__(self, given: argparse.Namespace) -> None:
        self._given = given
        self._errors = dict[str, str]()

    def show(self, fleet: Fleet, passes: Iterable[Passed]) -> None:
        for name, outcome in passes:
            if isinstance(outcome, Exception):
                if self._errors.get(name) != f"{outcome}":
                    self._failed(name, outcome)
                self._errors[name] = f"{outcome}"
            else:
                self._errors.pop(name, None)
                self._passed(fleet, outcome)

    def _failed(self, name: str, error: Exception) -> None:
        if self._given.json:
            print_json({"query": name, "error": f"{error}", "time": datetime.now(UTC)})
        print(f"streamstate: {named(name, first_line(error))} (trying again)", file=sys.stderr, flush=True)

    def _passed(self, fleet: Fleet, report: CaptureReport) -> None:
        if self._given.quiet:
            return
        behind = fleet.behind(report.query)
        if self._given.json:
            print_json({**asdict(report), "time": datetime.now(UTC), "behind": behind})
            return
        waiting = f", {behind} behind" if behind else ""
        print("\n".join([f"{now()} {pass_line(report)}{waiting}", *report.damaged]), flush=True)


def _summary(given: argparse.Namespace, fleet: Fleet) -> int:
    """Print what became of the queries, and return the exit status."""
    failed = fleet.failed
    for path, error in failed.items():
        print(f"streamstate: {named(path, error)}", file=sys.stderr)
    if not (given.quiet or given.json):
        behind = sum(bool(status.behind) for status in fleet.status.values())
        print(f"{now()} stopped: {len(fleet.captures)} queries, {behind} behind; {len(failed)} failing", flush=True)
    return FAILED if failed else FINE


def now() -> str:
    """Return the time as a line begins with it."""
    return f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
