"""Public names that are loaded on first use, so that importing the package stays quick."""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from streamstate.snapshots.spark.connect import needing_spark


def lazy_names(module: str, source: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return ``__getattr__``, ``__dir__`` and ``__all__`` of a module whose public names are loaded on first use.

    The names are listed once: those that the module imports as themselves under ``TYPE_CHECKING``
    (``from … import Checkpoint as Checkpoint``), where type checkers and editors see them. Scientific Python recommends
    the same with a stub file (SPEC 1).

    Args:
        module: the module's ``__name__``.
        source: its ``__file__``.
    """
    homes = _homes(Path(source))

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        with needing_spark():
            value = getattr(importlib.import_module(homes[name]), name)
        setattr(sys.modules[module], name, value)
        return value

    return load, lambda: sorted({*vars(sys.modules[module]), *homes}), sorted(homes)


def _homes(source: Path) -> dict[str, str]:
    """The module of each name that a source imports as itself."""
    return {
        alias.name: str(node.module)
        for node in ast.walk(ast.parse(source.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname == alias.name
    }
