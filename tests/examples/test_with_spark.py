"""Examples that need Spark run: those of docstrings, and the pages that start or replay queries."""

from __future__ import annotations

import pytest

from examples import pages
from examples.docstrings import examples_of, modules, run
from examples.spark_world import DOCSTRINGS, PAGES, SparkWorld

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", sorted(DOCSTRINGS), ids=lambda name: name.split(".", 2)[-1])
def test_examples_of_docstrings_run_with_spark(name: str, spark_world: SparkWorld) -> None:
    """Every docstring example that needs Spark runs, and prints what the docstring shows."""
    module = max((module for module in modules() if name.startswith(f"{module}.")), key=len)
    [differences] = [run(test, spark_world) for test in examples_of(module) if test.name == name]
    assert not differences, differences


@pytest.mark.parametrize("page", sorted(PAGES))
def test_examples_of_pages_run_with_spark(page: str, spark_world: SparkWorld) -> None:
    """Every Python block of a page that needs Spark runs, after those above it."""
    assert pages.run(pages.ROOT / page, spark_world)
