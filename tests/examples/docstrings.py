"""Run the examples in docstrings with doctest."""

from __future__ import annotations

import doctest
import importlib
from collections.abc import Iterator

from examples.world import Names, World
from scripts.typecheck import folders

FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE | doctest.IGNORE_EXCEPTION_DETAIL


class _Shown(doctest.OutputChecker):
    """Compares what an example prints with what its docstring shows, if it shows anything."""

    def check_output(self, want: str, got: str, optionflags: int) -> bool:
        return not want or super().check_output(want, got, optionflags)


BROKER = "streamstate.tutorials.broker"
"""The module whose examples need Kafka; ``tests/services/kafka`` runs them."""


def modules() -> Iterator[str]:
    """Yield the names of the modules that have examples, without importing them; not that of the broker."""
    for package, folder in folders().items():
        for file in sorted(folder.glob("*.py")):
            module = package if file.stem == "__init__" else f"{package}.{file.stem}"
            if module != BROKER and ">>> " in file.read_text(encoding="utf-8"):
                yield module


def examples_of(module: str) -> list[doctest.DocTest]:
    """Return the docstrings of a module that have examples."""
    found = doctest.DocTestFinder(exclude_empty=True).find(importlib.import_module(module), module)
    return [test for test in found if test.examples]


def run(test: doctest.DocTest, world: World) -> str:
    """Run the examples of a docstring; return how they differ from what it shows, nothing if they do not."""
    test.globs = Names(world, test.globs)
    runner = doctest.DocTestRunner(_Shown(), optionflags=FLAGS, verbose=False)
    report: list[str] = []
    runner.run(test, out=report.append, clear_globs=False)
    return "".join(report) if runner.failures else ""
