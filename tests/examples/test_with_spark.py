"""Examples that need Spark run: those of docstrings, and the pages that start or replay queries."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from examples import pages
from examples.docstrings import examples_of, modules, run
from examples.spark_world import DOCSTRINGS, PAGES, SparkWorld

pytestmark = pytest.mark.slow

REPEATED = {
    "docs/guides/determinism.md",  # as Checkpoint.audit
    "docs/start/quickstart.md",  # as the first tutorial
    "streamstate.launch.running.Running",
    "streamstate.operations.drill.run.drill",  # as docs/guides/recovery.md
    "streamstate.operations.promotion.promoting.Promotion",
    "streamstate.operations.rescaling.rescale.RescaleReport",
    "streamstate.operations.supervision.supervise.supervise",  # as docs/guides/recovery.md
    "streamstate.replay.debugging.session.DebugSession.watch",
    "streamstate.snapshots.capture.recording.recorder.Recorder",
}
"""Examples that call what another docstring or page calls."""


def cases(names: Iterable[str]) -> list[object]:
    """Return names in their order, those of repeated examples marked as exhaustive."""
    return [pytest.param(name, marks=pytest.mark.exhaustive) if name in REPEATED else name for name in sorted(names)]


@pytest.mark.parametrize("name", cases(DOCSTRINGS), ids=lambda name: name.split(".", 2)[-1])
def test_examples_of_docstrings_run_with_spark(name: str, spark_world: SparkWorld) -> None:
    """Every docstring example that needs Spark runs, and prints what the docstring shows."""
    module = max((module for module in modules() if name.startswith(f"{module}.")), key=len)
    [differences] = [run(test, spark_world) for test in examples_of(module) if test.name == name]
    assert not differences, differences


@pytest.mark.parametrize("page", cases(PAGES))
def test_examples_of_pages_run_with_spark(page: str, spark_world: SparkWorld) -> None:
    """Every Python block of a page that needs Spark runs, after those above it."""
    assert pages.run(pages.ROOT / page, spark_world)
