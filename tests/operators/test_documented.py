"""The tests named in docs/contributing/tested.md exist."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

TESTS = Path(__file__).parent.parent
PAGE = TESTS.parent / "docs" / "contributing" / "tested.md"


def tables() -> list[list[list[str]]]:
    """The tables of the page with a column "test", as rows of cells; the first row is the heading."""
    result: list[list[list[str]]] = []
    for block in re.findall(r"(?:^\|.*\n)+", PAGE.read_text(encoding="utf-8"), re.MULTILINE):
        rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in block.splitlines()]
        if rows[0][-1] == "test":
            result.append([rows[0], *rows[2:]])
    return result


def functions(files: Iterable[Path]) -> set[str]:
    """The names of the test functions in files."""
    return {name for file in files for name in re.findall(r"^def (test_\w+)\(", file.read_text("utf-8"), re.MULTILINE)}


def test_each_row_names_a_test_that_exists() -> None:
    """Rows have as many cells as the heading, and the last cell is the name of a test."""
    defined = set(
        re.findall(r"^def (test_\w+)\(", "\n".join(map(Path.read_text, TESTS.rglob("test_*.py"))), re.MULTILINE)
    )
    assert len(tables()) == 15
    for heading, *rows in tables():
        assert len(rows) > 3
        for row in rows:
            assert len(row) == len(heading), row
            assert row[-1].strip("`") in defined, row


def test_each_test_of_operators_is_on_the_page() -> None:
    """All tests in this folder are named on the page, except those of the page itself."""
    named = {row[-1].strip("`") for _, *rows in tables() for row in rows}
    defined = functions(path for path in Path(__file__).parent.glob("test_*.py") if path != Path(__file__))
    assert defined - named <= {"test_a_checkpoint_that_is_replaced_between_passes_is_rejected"}


def test_each_test_that_the_page_on_security_names_exists() -> None:
    """Each thing that is opened has one."""
    text = (PAGE.parents[1] / "explanation" / "security.md").read_text()
    named = set(re.findall(r"`(test_\w+)`", text))
    assert len(named) > 12
    assert named <= functions(TESTS.rglob("test_*.py"))
