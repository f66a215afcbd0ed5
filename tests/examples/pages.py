"""Run the examples of a page of the documentation with Sybil, which knows MyST's code blocks and ``skip`` comments."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from unittest import SkipTest

from sybil import Example, Sybil
from sybil.parsers.myst import CodeBlockParser, SkipParser

from examples.world import Names, World

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(page: Path) -> Iterator[str]:
    """Yield the Python blocks of a page that are not skipped."""
    parser = Sybil([CodeBlockParser("python", lambda _: None)])
    return (str(example.parsed) for example in parser.parse(page))


def run(page: Path, world: World) -> int:
    """Run the Python blocks of a page in one namespace, from top to bottom; return how many there are."""
    ran = 0

    def evaluate(example: Example) -> None:
        nonlocal ran
        line = example.line + example.parsed.line_offset
        # As in a notebook: what an expression returns is shown, and so computed.
        body = ast.parse("\n" * line + example.parsed, example.path).body
        code = compile(ast.Interactive(body), example.path, "single", dont_inherit=True)
        exec(code, example.namespace)
        ran += 1

    document = Sybil([CodeBlockParser("python", evaluate), SkipParser()]).parse(page)
    document.namespace = Names(world)
    for example in document.examples():
        with suppress(SkipTest):  # of a block that a comment skips, with the reason
            example.evaluate()
    return ran
