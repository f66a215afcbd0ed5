"""The README is short, names the purpose and the requirements first, and is correct."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from streamstate.command_line import COMMANDS

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
FOR_USERS = README.partition("\n## Developing")[0]
OPENING = " ".join(README.splitlines()[:10])
PYTHONS = re.compile(r"Python (3\.\d+) to\s+(3\.\d+)")

FIGURE = re.compile(r"[\d.,]+ m?s\b")

TEXTS = sorted(
    path
    for pattern in ("README.md", "docs/**/*.md", "kernel_ext/**/*.py", "state_inspect/**/*.py")
    for path in ROOT.glob(pattern)
)


def test_the_opening_names_the_problem_and_the_reader() -> None:
    """The first ten lines mention a wrong number, its batch, key and input, and the kind of queries."""
    for words in ("wrong number", "batch", "key", "input", "Spark Structured Streaming"):
        assert words in OPENING


def test_the_opening_has_the_requirements_and_installation() -> None:
    """The first ten lines have the versions of Spark and Java, the platforms, and the command to install."""
    for words in ("Spark 3.4 to 4.3", "PySpark 3.5 to 4.3", "Java 17 or 21", "Linux or macOS", "pip install"):
        assert words in OPENING


def test_the_opening_has_the_supported_python_versions() -> None:
    """They equal those of pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    versions = PYTHONS.search(OPENING)
    assert versions is not None
    oldest, newest = versions.groups()
    next_minor = int(newest.partition(".")[2]) + 1
    assert project["requires-python"] == f">={oldest},<3.{next_minor}"


def test_the_part_for_users_is_short() -> None:
    """It has at most 700 words, including tables and code."""
    assert "\n## Developing" in README
    assert len(FOR_USERS.split()) <= 700


def test_averages_divide_by_the_count_of_delays() -> None:
    """``count`` includes departures without a delay, so an average is ``sum / count_2``."""
    wrong = re.compile(r"\bsum ?/ ?count\b")
    assert TEXTS
    assert [path for path in TEXTS if wrong.search(path.read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize("name", ["README.md", "docs/index.md", "docs/start/quickstart.md"])
def test_no_text_claims_that_capture_is_free(name: str) -> None:
    """A query shares the machine with its capture."""
    assert not re.search(r"query\s+does\s+not\s+(know|notice)", (ROOT / name).read_text(encoding="utf-8"))


def test_the_named_commands_exist() -> None:
    """The sentence about commands names at least twelve of them."""
    sentence = re.search(r"The \[commands\].*? and a few more", README, re.DOTALL)
    assert sentence is not None
    named = re.findall(r"`(\w+)`", sentence[0])
    assert len(named) >= 12
    assert {*named} < {command.name for command in COMMANDS}


def test_the_notebook_example_prepares_its_own_data() -> None:
    """It does not depend on files that ``make demo`` writes."""
    section = README.partition("\n## In a notebook")[2].partition("\n## ")[0]
    assert "flights.prepare(" in section
    assert "demo/" not in section


def test_the_measured_figures_are_those_of_the_page_that_is_linked() -> None:
    """Each row of the table has the figures of one row of the page."""
    section = README.partition("\n## Measured")[2].partition("\n## ")[0]
    linked = re.findall(r"\]\((docs/[^)]*performance\.md)\)", section)
    rows = [line for line in (ROOT / linked[0]).read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    shown = [FIGURE.findall(line) for line in section.splitlines()[1:] if FIGURE.search(line)]
    assert len(shown) > 3
    assert [figures for figures in shown if not any({*figures} <= {*FIGURE.findall(row)} for row in rows)] == []


def test_links_are_valid() -> None:
    """Linked images, guides and folders exist."""
    targets = re.findall(r"\]\(([^)#]+)", README)
    assert targets
    assert [target for target in targets if not (ROOT / target).exists()] == []
