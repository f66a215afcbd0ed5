"""Every public call that needs a JVM runs in the worker process beside Spark Connect, or is known to this test."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import pytest

import streamstate
from project.call_graph import CallGraph
from streamstate import reports

DECIDE = {
    "snapshots.spark.epoch_reports:reports_after",  # of a query with a policy, which is classic
    "snapshots.spark.read_limits:ReadLimits._execution",  # likewise
    "snapshots.spark.read_limits:ReadLimits._lower",  # likewise
    "state_inspect.inputs.heavy_inputs:heavy_inputs",  # likewise
    "launch.rescaling:rescale",  # refuses the query of a server
    "launch.handover:hand_over",  # likewise
    "launch.standby:stand_by",  # likewise
    "operations.checkup.topic_retention:topic_findings",  # with the plan of a classic query
    "operations.promotion.switch:move",  # only with a session that is given
    "snapshots.capture.epoch_entries:_progress_of",  # of the queries of a classic session
    "snapshots.spark.pipeline_code:_FlowCode.__call__",  # in the session of the caller
    "snapshots.spark.task_times:task_load",  # of a classic query
    "snapshots.spark.session:_start",  # only where there is no Connect
    "snapshots.store.query_plans.describe:_topics_now",  # of a classic query
    "snapshots.store.query_plans.spark_plan:plan_of_query",  # of a classic query
    "snapshots.capture.capture:_through_spark",  # the worker reads the files
    "snapshots.capture.reached_checkpoint:checkpoint_of",  # the server knows the checkpoint
    "snapshots.checkpoint.filesystem:files_for",  # only with a session that is given
    "snapshots.spark.fetching:to_arrow",  # the server sends the rows
    "snapshots.spark.session:_session_id",  # of both kinds
    "snapshots.spark.state_reader:StateReader.spark",  # ConnectCapturer makes the pass in the worker
    "state_inspect.results.results:may_compute",  # asks for a worker
}
"""Functions that find out whether Spark Connect is in use, and do without a JVM then."""

IN_WORKER = {"DebugSession", "StepReport", "Late", "Recorder"}
"""Classes of objects that the worker keeps, or that exist in classic processes only."""

REFUSE = {"record", "recorded", "shed", "start"}
"""Calls that need a classic session where the query runs: ``start`` with ``shared`` or ``record_input``."""


def public() -> Iterator[tuple[str, str]]:
    """The functions and the methods of the public classes: what they are called, and where they are in the code."""
    for package in (streamstate, reports):
        for name in package.__all__:
            value = inspect.unwrap(getattr(package, name))
            if inspect.isfunction(value):
                yield name, f"{value.__module__}:{name}"
            elif inspect.isclass(value) and name not in IN_WORKER:
                for method in (method for method in vars(value) if not method.startswith("_")):
                    yield f"{name}.{method}", f"{value.__module__}:{name}.{method}"


@pytest.fixture(scope="module")
def graph() -> CallGraph:
    """The project's calls."""
    return CallGraph()


@pytest.mark.slow
def test_what_needs_a_jvm_is_forwarded(graph: CallGraph) -> None:
    """A new call that reaches a JVM and is not marked with ``classic_spark`` shows up here, with the way there."""
    stops = [f"streamstate.{name}" for name in DECIDE]
    chains = {
        name: graph.chain(place, stops) for name, place in public() if name not in REFUSE and not graph.forwarded(place)
    }
    assert {name: chain for name, chain in chains.items() if chain} == {}


def test_a_way_to_a_jvm_is_found(graph: CallGraph) -> None:
    """As that of a call that is forwarded."""
    chain = graph.chain("streamstate.replay.stepping.step:step", [])
    assert chain is not None
    assert chain[-1] == "streamstate.snapshots.spark.session:classic_session"


def test_the_functions_exist(graph: CallGraph) -> None:
    """Those that decide are in the code."""
    assert [name for name in DECIDE if f"streamstate.{name}" not in graph] == []
