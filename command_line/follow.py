"""``streamstate follow``: keep a store up to date with a checkpoint until stopped, as a service does."""

from __future__ import annotations

import argparse
import contextlib
import os
import queue
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from streamstate.command_line.argument_types import every
from streamstate.command_line.argument_types import port as port_number
from streamstate.command_line.arguments import add_capture, add_json, capture_options, storage_options
from streamstate.command_line.capture import pass_line
from streamstate.command_line.command import FINE, Command
from streamstate.command_line.follow_many import Passed, follow_many, now
from streamstate.command_line.many import add_checkpoints, only_checkpoint
from streamstate.command_line.output import print_json
from streamstate.command_line.stopping import Stopping
from streamstate.errors import NotACheckpointError, first_line, require_extra

if TYPE_CHECKING:
    from streamstate.operations.capture_metrics import CaptureMetrics
    from streamstate.snapshots.capture.epoch_commit import CaptureReport
    from streamstate.snapshots.capture.fleet import OnFleetPass
    from streamstate.snapshots.capture.follow import Capture, OnPass

# How often --wait looks for a checkpoint.
_LOOK_SECONDS = 1.0


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_checkpoints(parser)
    add_capture(parser)
    parser.add_argument(
        "--every",
        metavar="N",
        type=every,
        default=1,
        help="capture once N epochs wait, or once this much time has passed: 10s, 2m (default: 1). Each of the epochs"
        " becomes a snapshot",
    )
    parser.add_argument(
        "--wait", action="store_true", help="if the checkpoint does not exist yet, wait until the query has created it"
    )
    parser.add_argument(
        "--nice",
        metavar="N",
        type=int,
        choices=range(20),
        default=10,
        help="leave the processor to the query first: the process's niceness, from 0 to 19 (default: 10)",
    )
    parser.add_argument("--metrics", metavar="PORT", type=port_number, help="serve metrics for Prometheus at this port")
    parser.add_argument(
        "--metrics-host", metavar="HOST", default="127.0.0.1", help="where to listen (default: this machine only)"
    )
    output = parser.add_mutually_exclusive_group()
    output.add_argument("--quiet", action="store_true", help="print only errors")
    add_json(
        output,
        "an object for each pass: query, store, epochs, gaps, rows, seconds, advice, by_spark, damaged, committed,"
        " time, behind, and with one query its checkpoint; or, if it failed: error, time, and with many queries the"
        " query or checkpoint",
    )


def _run(given: argparse.Namespace) -> int:
    from streamstate.snapshots.capture.allocator_settings import keep_pandas_out, set_plain_memory

    checkpoint = only_checkpoint(given)
    _give_way(given.nice)
    set_plain_memory(on=True)  # this process is ours; before deltalake and pyarrow are imported
    keep_pandas_out()
    metrics = _metrics(given)
    with Stopping[Passed]() as stopping, contextlib.ExitStack() as until_end:

        def on_pass(name: str, outcome: CaptureReport | Exception) -> None:
            if metrics is not None:
                metrics.observe_query(name, outcome)
            stopping.outcomes.put((name, outcome))

        if metrics is not None:
            port = until_end.enter_context(metrics.served(given.metrics, given.metrics_host))
            print(f"Metrics at http://{given.metrics_host}:{port}/metrics", file=sys.stderr, flush=True)
        if checkpoint is None:
            return follow_many(given, stopping, metrics, on_pass)
        return _follow_one(given, checkpoint, stopping, metrics, on_pass)


def _follow_one(
    given: argparse.Namespace,
    checkpoint: str,
    stopping: Stopping[Passed],
    metrics: CaptureMetrics | None,
    on_pass: OnFleetPass,
) -> int:
    """Follow a checkpoint until stopped, and return the exit status."""
    capture = _followed(given, checkpoint, stopping, partial(on_pass, ""))
    if capture is None:
        return FINE
    if metrics is not None:
        metrics.attach(capture)
    shown = _Passes(given, capture)
    stopping.watch_signals()  # Spark has taken Ctrl+C for itself
    try:
        if not (given.quiet or given.json):
            print(f"{now()} {capture.name}: following {capture.checkpoint}: {_standing(given, capture)}", flush=True)
        while (passed := stopping.next_outcome()) is not None:
            shown.show(passed[1])
    finally:
        capture.stop(catch_up=False)
    for _name, outcome in stopping.left():
        shown.show(outcome)
    return FINE


def _give_way(niceness: int) -> None:
    """Lower the priority of this thread, and of those that it starts."""
    if hasattr(os, "setpriority") and os.getpriority(os.PRIO_PROCESS, 0) < niceness:
        os.setpriority(os.PRIO_PROCESS, 0, niceness)


def _metrics(given: argparse.Namespace) -> CaptureMetrics | None:
    if given.metrics is None:
        return None
    require_extra("sidecar")
    from streamstate.operations.capture_metrics import CaptureMetrics

    return CaptureMetrics()


def _followed(
    given: argparse.Namespace, checkpoint: str, stopping: Stopping[Passed], on_pass: OnPass
) -> Capture | None:
    """The capture, once there is a checkpoint; None if it was stopped before."""
    from streamstate.snapshots.capture.follow import follow

    while not stopping.asked:
        try:
            _check_exists(checkpoint)
            return follow(
                checkpoint,
                given.store,
                given.name,
                every=given.every,
                on_pass=on_pass,
                **capture_options(given),
            )
        except NotACheckpointError:
            if not given.wait:
                raise
            with contextlib.suppress(queue.Empty):
                stopping.outcomes.get(timeout=_LOOK_SECONDS)
    return None


def _check_exists(checkpoint: str) -> None:
    """Raise at once if a local checkpoint does not exist: with a name, following would wait for it without a word."""
    from streamstate.snapshots.capture.flow_versions import is_flow
    from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
    from streamstate.snapshots.checkpoint.filesystem import local_path

    if local_path(checkpoint) is not None:
        opened = CheckpointFiles(checkpoint)
        if not is_flow(opened.files, opened.path):
            _ = opened.query_id


class _Passes:
    """The lines of a capture: one for each pass, and one where it goes on with another version of a flow."""

    def __init__(self, given: argparse.Namespace, capture: Capture) -> None:
        self._given, self._capture = given, capture
        self._name, self._checkpoint = capture.name, capture.checkpoint

    def show(self, outcome: CaptureReport | Exception) -> None:
        """Print what a pass did; raise the error that ended the capture."""
        status = self._capture.status
        if isinstance(outcome, Exception):
            if status.state == "failed":
                raise outcome
            if self._given.json:
                print_json({"error": str(outcome), "time": datetime.now(UTC)})
            print(f"streamstate: {first_line(outcome)} (trying again)", file=sys.stderr, flush=True)
            return
        self._note_version(outcome.query)
        behind = status.behind if outcome.query == status.name else 0
        if self._given.json:
            place = {"checkpoint": self._checkpoint, "time": datetime.now(UTC), "behind": behind}
            print_json({**asdict(outcome), **place})
        elif not self._given.quiet:
            waiting = f", {behind} behind" if behind else ""
            print("\n".join([f"{now()} {pass_line(outcome)}{waiting}", *outcome.damaged]), flush=True)

    def _note_version(self, name: str) -> None:
        """Print a line if a pass is the first of another version of a flow."""
        checkpoint = self._capture.checkpoint
        if name != self._capture.name or checkpoint == self._checkpoint:
            return
        if not (self._given.quiet or self._given.json):
            print(f"{now()} {name}: following {checkpoint}: a full refresh ended {self._name}", flush=True)
        self._name, self._checkpoint = name, checkpoint


def _standing(given: argparse.Namespace, capture: Capture) -> str:
    """Return the store's newest epoch before the first pass, as a line."""
    from streamstate.snapshots.store.layout import Layout
    from streamstate.snapshots.store.manifest import Manifest

    manifest = Manifest(Layout.at(given.store, storage_options(given)), capture.name)
    manifest.refresh()
    committed, captured = capture.committed(), manifest.newest
    if captured is not None and captured.epoch >= committed:
        return f"up to date at epoch {captured.epoch}"
    if committed < 0:
        return "no epoch is committed yet"
    return f"committed up to epoch {committed}, captured {'nothing' if captured is None else f'up to {captured.epoch}'}"


FOLLOW = Command(
    "follow",
    "keep a store up to date with a checkpoint, as a service",
    "Keep a store up to date with a query's checkpoint until stopped, and print a line "
    "for each pass. Errors that may pass, such as a full disk, are retried.\n\n"
    "SIGTERM and Ctrl+C finish the pass under way and exit with status 0; the second "
    "one ends the process at once, which does the store no harm. The next start "
    "continues where this one stopped.\n\n"
    "With several checkpoints, a glob or --root, one process follows many queries on a few threads, and looks for new "
    "checkpoints every minute. One that fails does not stop the others, and is tried again; if it still fails at the "
    "end, the exit status is 1.",
    """
    streamstate follow checkpoints/delays --store store --name delays
    streamstate follow checkpoints/delays --store store --every 10s --wait --metrics 9095
    streamstate follow --root checkpoints --store store --every 10s
    streamstate follow checkpoints/delays --store store --json | jq .behind
    """,
    _arguments,
    _run,
    ("Checkpoint.follow", "Checkpoints.follow"),
)
