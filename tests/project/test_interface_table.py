"""The table of Python, magics and commands lists every verb."""

from __future__ import annotations

import importlib
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import streamstate as ss
from streamstate import reports, state_inspect
from streamstate.command_line import COMMANDS
from streamstate.extension import MAGICS

EXTENSIONS = Path(__file__).resolve().parents[2] / "docs" / "_ext"


@pytest.fixture(scope="module")
def table() -> Any:
    """The module that makes the table."""
    sys.path.insert(0, str(EXTENSIONS))
    try:
        return importlib.import_module("interface_table")
    finally:
        sys.path.remove(str(EXTENSIONS))


def test_every_verb_is_in_the_table(table: Any) -> None:
    """Magics, their verbs and commands; each name in Python has one row."""
    found = [text for rows in table.magics().values() for text, _ in rows]
    verbs = {verb.prog for magic in MAGICS for verb in magic.parser.verbs.values()}
    assert verbs | {f"{'%' * (1 + (magic.kind == 'cell'))}{magic.name}" for magic in MAGICS} == set(found)
    commands = {text for rows in table.commands().values() for text, _ in rows}
    assert commands == {f"streamstate {command.name}" for command in COMMANDS}
    assert {*table.magics(), *table.commands()} <= set(table.PYTHON)
    assert max(Counter(table.PYTHON).values()) == 1


def test_every_name_in_python_exists(table: Any) -> None:
    """At the top level, or as a method of a class that a call returns."""
    missing = [name for name in table.PYTHON if _resolved(name) is None]
    assert missing == []


def _resolved(name: str) -> Any:
    for part in ("widgets.page", "sharing"):
        importlib.import_module(f"streamstate.{part}")
    first, *rest = name.removeprefix("ss.").split(".")
    value: Any = next(
        (getattr(module, first) for module in (ss, reports, state_inspect) if hasattr(module, first)), None
    )
    for part in rest:
        value = getattr(value, part, None)
    return value
