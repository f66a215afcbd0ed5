"""``streamstate capture``: bring a store up to date with a checkpoint, once."""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

from streamstate.command_line.arguments import add_capture, add_json, capture_options, storage_options
from streamstate.command_line.command import FAILED, FINE, Command
from streamstate.command_line.many import add_checkpoints, named, only_checkpoint, required_checkpoints
from streamstate.command_line.output import print_json
from streamstate.command_line.user_code import add_code, loaded

if TYPE_CHECKING:
    from streamstate.snapshots.capture.epoch_commit import CaptureReport


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_checkpoints(parser)
    add_capture(parser)
    add_code(
        parser,
        "--code",
        "; its plan is recorded, so that the query's own column names and its result are shown",
        mode=None,
    )
    add_json(
        parser,
        "an object for each query: query, store, epochs, gaps, rows, seconds, advice, by_spark, damaged, committed; or,"
        " if it failed: checkpoint, error",
    )


def _run(given: argparse.Namespace) -> int:
    from streamstate.snapshots.capture.allocator_settings import keep_pandas_out

    keep_pandas_out()
    checkpoint = only_checkpoint(given)
    if checkpoint is None:
        return _capture_all(given)
    from streamstate.snapshots.capture.capture import capture

    report = capture(checkpoint, given.store, given.name, **capture_options(given))
    if given.code is not None:
        _record_plan(given, report.query)
    if given.json:
        print_json(asdict(report))
    else:
        by_spark = [f"{table}, by Spark: {why}" for table, why in report.by_spark.items()]
        lines = [*report.damaged, *by_spark, *report.advice, *_naming_line(given, report)]
        print("\n".join([pass_line(report), *lines]))
    return FINE


def _capture_all(given: argparse.Namespace) -> int:
    """Capture many checkpoints, print what was captured of each, and return the exit status."""
    from streamstate.snapshots.capture.fleet import capture_all

    found = required_checkpoints(given)
    report = capture_all(lambda: found, given.store, **capture_options(given))
    for query in report.reports:
        if given.json:
            print_json(asdict(query))
        else:
            print("\n".join([pass_line(query), *query.damaged, *query.advice]))
    for path, error in report.failed.items():
        if given.json:
            print_json({"checkpoint": path, "error": error})
        print(f"streamstate: {named(path, error)}", file=sys.stderr)
    if not given.json:
        print(f"{len(found) - len(report.failed)} of {len(found)} checkpoints are captured up to date.")
    return FAILED if report.failed else FINE


def _record_plan(given: argparse.Namespace, query: str) -> None:
    """Record the plan of a query, planned by Spark from its code."""
    import streamstate as ss

    ss.session()
    build = loaded(*given.code)
    ss.open_store(given.store, storage_options=storage_options(given))[query].describe(build, mode=given.mode)


def _naming_line(given: argparse.Namespace, report: CaptureReport) -> list[str]:
    """Return a line of advice if some captured columns are known only by Spark's names."""
    from streamstate.snapshots.store.layout import Layout
    from streamstate.snapshots.store.query_plans.spark_names import has_unknown_names

    if not report.epochs or not has_unknown_names(Layout.at(given.store, storage_options(given)), report.query):
        return []
    mends = "Add --code MODULE:FUNCTION, the function that returns its streaming DataFrame."
    return [f"Spark has named columns of {report.query}: the query's plan is not known. {mends}"]


def pass_line(report: CaptureReport) -> str:
    """Return a report as one line."""
    if not report.epochs:
        return f"{report.query}: {'no epoch is committed yet' if report.committed is None else 'up to date'}"
    first, last = report.epochs[0], report.epochs[-1]
    epochs = f"epoch {first}" if first == last else f"epochs {first} to {last}"
    gaps = f", {len(report.gaps)} lost in gaps" if report.gaps else ""
    return f"{report.query}: {epochs} captured, {report.rows} rows in {report.seconds:.2f} s{gaps}"


CAPTURE = Command(
    "capture",
    "bring a store up to date with a checkpoint, once",
    "Bring a store up to date with a query's checkpoint, once, and exit. Every epoch "
    "committed since the last capture becomes a snapshot. The query may be running, "
    "here or elsewhere, or be stopped. Capturing again changes nothing.\n\n"
    "With several checkpoints, a glob or --root, many queries are captured on a few threads. One that fails does not "
    "stop the others; the exit status is then 1.",
    """
    streamstate capture checkpoints/delays --store store
    streamstate capture --root checkpoints --store store
    streamstate capture checkpoints/delays --store s3://bucket/store --storage-option AWS_REGION=eu-central-1
    """,
    _arguments,
    _run,
    ("Checkpoint.capture", "Checkpoints.capture"),
)
