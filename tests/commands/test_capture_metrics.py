"""The metrics of a capture, as a scraper gets them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fleet_checkpoints import copies
from prometheus_client import REGISTRY
from prometheus_client.parser import text_string_to_metric_families

import streamstate as ss
from streamstate.errors import InvalidArgumentError
from streamstate.extras import install_command
from streamstate.operations import capture_metrics
from streamstate.operations.capture_metrics import CaptureMetrics
from streamstate.snapshots.capture.epoch_commit import CaptureReport
from streamstate.snapshots.capture.follow import CaptureLag, CaptureStatus

COMMITTED_AT = datetime(2026, 1, 1, tzinfo=UTC)


def scraped(port: int) -> dict[str, float]:
    """The samples by name, and by upper bound for those of a histogram; all have the query's name."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        families = list(text_string_to_metric_families(answer.read().decode()))
    assert all(family.documentation.endswith(".") for family in families)
    samples = [sample for family in families for sample in family.samples]
    assert len({sample.labels.pop("query") for sample in samples}) == 1
    return {" ".join([sample.name, *sample.labels.values()]): sample.value for sample in samples}


@contextmanager
def served(lag: Any) -> Iterator[tuple[CaptureMetrics, int]]:
    """The metrics of a capture with a status and a lag."""
    status = CaptureStatus("delays", "running", epoch=12, committed_at=COMMITTED_AT, freshness=0.5, error="disk full")
    metrics = CaptureMetrics()
    metrics.attach(SimpleNamespace(name="delays", status=status, lag=lag))  # type: ignore[arg-type]  # what is read
    with metrics.served(0) as port:
        yield metrics, port


def test_passes_are_counted() -> None:
    """Epochs, rows, gaps, errors and a histogram of durations, without those that Python's client adds."""
    with served(lambda: CaptureLag(3, 4.5)) as (metrics, port):
        metrics.observe(CaptureReport("delays", "store", (10, 11), (8, 9), 50, 0.07))
        metrics.observe(CaptureReport("delays", "store", (12,), (), 7, 45.0))
        metrics.observe(OSError("disk full"))
        found = scraped(port)
    assert not any(name.startswith(("python_", "process_")) for name in found)
    assert found["streamstate_captured_epochs_total"] == 3
    assert found["streamstate_change_rows_total"] == 57
    assert found["streamstate_gap_epochs_total"] == 2
    assert found["streamstate_capture_errors_total"] == 1
    buckets = [found[f"streamstate_capture_seconds_bucket {bound}"] for bound in ("0.05", "0.1", "30.0", "+Inf")]
    assert buckets == [0, 1, 1, 2]
    assert found["streamstate_capture_seconds_count"] == 2
    assert found["streamstate_capture_seconds_sum"] == pytest.approx(45.07)


def test_the_position_is_that_of_the_scrape() -> None:
    """Lag, newest epoch and its commit."""
    with served(lambda: CaptureLag(3, 4.5)) as (_, port):
        found = scraped(port)
    assert (found["streamstate_lag_epochs"], found["streamstate_lag_seconds"]) == (3, 4.5)
    assert found["streamstate_last_captured_epoch"] == 12
    assert found["streamstate_last_captured_commit_timestamp_seconds"] == COMMITTED_AT.timestamp()
    assert (found["streamstate_freshness_seconds"], found["streamstate_failing"]) == (0.5, 1)


def test_a_checkpoint_out_of_reach_does_not_break_the_scrape() -> None:
    """The lag is not a number then."""

    def lag() -> CaptureLag:
        raise OSError("no route to host")

    with served(lag) as (_, port):
        found = scraped(port)
    assert found["streamstate_lag_epochs"] != found["streamstate_lag_epochs"]
    assert found["streamstate_last_captured_epoch"] == 12


def test_a_port_in_use_is_an_error() -> None:
    """The message names it; nothing was added to the global registry."""
    before = {family.name for family in REGISTRY.collect()}
    with (
        served(lambda: CaptureLag(0, 0.0)) as (_, port),
        pytest.raises(InvalidArgumentError, match=f"127.0.0.1:{port}"),
        CaptureMetrics().served(port),
    ):
        pass
    assert {family.name for family in REGISTRY.collect()} == before


def test_without_the_client_the_command_names_its_extra(tmp_path: Path) -> None:
    """Before anything is started."""
    program = """
import sys; sys.modules["prometheus_client"] = None
from streamstate.command_line import main
sys.exit(main(["follow", "none", "--store", "store", "--metrics", "0"]))
"""
    ran = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    lines = f"prometheus-client is not installed.\nInstall with: {install_command('sidecar')}\n"
    assert (ran.returncode, ran.stderr) == (1, f"streamstate: {lines}")


def test_the_metrics_of_a_fleet(counted: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each query has its own; those beyond the limit, and checkpoints that cannot be captured, are counted together."""
    monkeypatch.setattr(capture_metrics, "_MOST", 2)
    paths = copies(counted[0], tmp_path / "root", ["a", "b", "c", "d"])
    (paths[3] / "metadata").write_text("{}")
    metrics = CaptureMetrics()
    fleet = ss.checkpoints(tmp_path / "root").follow(tmp_path / "store", verify="never", on_pass=metrics.observe_query)
    metrics.attach(fleet)
    try:
        fleet.wait(timeout=300)
        with (
            metrics.served(0) as port,
            urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer,
        ):
            families = list(text_string_to_metric_families(answer.read().decode()))
    finally:
        fleet.stop()
    samples = {(sample.name, *sample.labels.values()): sample.value for family in families for sample in family.samples}
    captured = {key[1]: value for key, value in samples.items() if key[0] == "streamstate_captured_epochs_total"}
    assert sum(captured.values()) == 15
    assert len(captured) <= 4
    assert samples["streamstate_capture_errors_total", "(others)"] == 1
    assert samples["streamstate_queries", "running"] == 3
    assert samples["streamstate_failing_checkpoints",] == 1
    assert samples["streamstate_last_captured_epoch", "a"] == 4
    assert samples["streamstate_state_changes", "a"] == 7
    assert samples["streamstate_capture_seconds_count", ""] == sum(
        value for key, value in samples.items() if key[0] == "streamstate_capture_seconds_bucket" and "+Inf" in key
    )


def test_the_dashboard_shows_metrics_that_exist() -> None:
    """Every name in the Grafana dashboard is that of a metric."""
    dashboard = Path(__file__).parents[2] / "docs" / "guides" / "files" / "grafana-dashboard.json"
    panels = json.loads(dashboard.read_text())["panels"]
    used = {
        name for panel in panels for one in panel["targets"] for name in re.findall(r"streamstate_\w+", one["expr"])
    }
    counters = {
        f"streamstate_{name}_total" for name in ("captured_epochs", "change_rows", "gap_epochs", "capture_errors")
    }
    of_fleet = {"streamstate_queries", "streamstate_failing_checkpoints", "streamstate_capture_seconds_bucket"}
    assert used <= counters | of_fleet | {f"streamstate_{name}" for name in capture_metrics._GAUGES}
