"""Run the examples of a page of the documentation with Sybil, which knows MyST's code blocks and ``skip`` comments."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from pathlib import Path
from unittest import SkipTest

from sybil import Example, Sybil
from sybil.parsers.myst import CodeBlockParser, SkipParser

from examples.notebook_page import notebook
from examples.world import Names, World

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(page: Path) -> Iterator[str]:
    """Yield the Python blocks of a page, with those that are skipped."""
    parser = Sybil([CodeBlockParser("python", lambda _: None)])
    return (str(example.parsed) for example in parser.parse(page))


def has_magics(page: Path) -> bool:
    """Return whether a block of the page has a line that is a magic."""
    return any(line.startswith("%") for block in blocks(page) for line in block.splitlines())


def run(page: Path, world: World) -> int:
    """Run the Python blocks of a page in one namespace, from top to bottom; return how many there are.

    If one has magics, they run as the cells of a notebook.
    """
    names = Names(world)
    ran = 0
    with notebook(names) if has_magics(page) else nullcontext() as shell:

        def evaluate(example: Example) -> None:
            nonlocal ran
            run_block(example) if shell is None else shell.run(example.parsed)
            ran += 1

        document = Sybil([CodeBlockParser("python", evaluate), SkipParser()]).parse(page)
        document.namespace = names
        for example in document.examples():
            with suppress(SkipTest):  # of a block that a comment skips, with the reason
                example.evaluate()
    return ran


def run_block(example: Example) -> None:
    """Run a block so that an error names its line. As in a notebook, the values of expressions are shown."""
    line = example.line + example.parsed.line_offset
    body = ast.parse("\n" * line + example.parsed, example.path).body
    exec(compile(ast.Interactive(body), example.path, "single", dont_inherit=True), example.namespace)
