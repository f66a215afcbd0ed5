"""Examples in docstrings run and print what they show."""

from __future__ import annotations

import pytest

from examples.docstrings import examples_of, modules, run
from examples.spark_world import DOCSTRINGS as WITH_SPARK
from examples.world import World


@pytest.mark.parametrize("module", [*modules()])
def test_examples_of_docstrings_run(module: str, world: World) -> None:
    """Every docstring example runs, and prints what the docstring shows."""
    tests = [test for test in examples_of(module) if test.name not in WITH_SPARK]
    differences = [run(test, world) for test in tests]
    assert not any(differences), "".join(differences)
