"""Few examples are skipped, each with a reason beside it."""

from __future__ import annotations

import re

from examples.left_out import PAGES as LEFT_OUT
from examples.pages import PAGES, ROOT
from scripts.typecheck import folders

_MOST = 20
_FLAG = re.compile(r"(?P<reason>#\s*\w.*)?# doctest: \+SKIP")
"""As in ``>>> lines = read()  # needs a network  # doctest: +SKIP``."""
_COMMENT = re.compile(r'^(?:%|<!---?) *skip: (?:next|start)(?P<reason> "\w.*")?')
"""As in ``% skip: next "needs a network"``."""


def skipped() -> dict[str, bool]:
    """Return the examples that are skipped, by file and line, and whether each has a reason."""
    modules = [file for folder in folders().values() for file in sorted(folder.glob("*.py"))]
    return {
        f"{file.relative_to(ROOT)}:{number}": found["reason"] is not None
        for pattern, files in ((_FLAG, modules), (_COMMENT, PAGES))
        for file in files
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
        if (found := pattern.search(line))
    }


def test_few_examples_are_skipped() -> None:
    """At most 20 examples of docstrings and pages are skipped; a page that is left out counts as one."""
    assert len(skipped()) + len(LEFT_OUT) <= _MOST, [*skipped(), *LEFT_OUT]


def test_every_skipped_example_has_a_reason() -> None:
    """A reader of the source sees why an example does not run."""
    assert [example for example, has_reason in skipped().items() if not has_reason] == []
