"""The metrics of a capture, as a scraper gets them."""

from __future__ import annotations

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
from prometheus_client import REGISTRY
from prometheus_client.parser import text_string_to_metric_families

from streamstate.errors import InvalidArgumentError
from streamstate.extras import install_command
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
