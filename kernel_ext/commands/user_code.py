"""The code of a query that a command line names: a function in a module or in a file."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from streamstate.errors import InvalidArgumentError, first_line
from streamstate.snapshots.spark.output_modes import MODES


def add_code(
    parser: argparse.ArgumentParser, name: str = "code", more: str = "", *, mode: str | None = "update"
) -> None:
    """The code of a query, and its output mode; ``mode`` is the default, None where it is found if it can be."""
    parser.add_argument(
        name,
        metavar="MODULE:FUNCTION",
        type=place_of,
        help="the function that returns the streaming DataFrame, such as jobs.delays:build or jobs/delays.py:build"
        + more,
    )
    default = f"default: {mode}" if mode else "needed where Spark accepts several, and it matters which it is"
    parser.add_argument("--mode", choices=MODES, default=mode, help=f"the output mode ({default})")


def place_of(text: str) -> tuple[str, str]:
    """The module or file, and the function, of an argument."""
    module, colon, function = text.rpartition(":")
    if not (colon and module and function.isidentifier()):
        raise argparse.ArgumentTypeError(
            f"invalid code {text!r}: expected MODULE:FUNCTION, such as jobs.delays:build, or FILE:FUNCTION"
        )
    return module, function


def loaded(module: str, function: str) -> Any:
    """The function, from a module on the path or in the current folder, or from a file."""
    from pyspark import cloudpickle

    try:
        loaded = _of_file(Path(module)) if module.endswith(".py") else _of_name(module)
    except Exception as error:
        raise InvalidArgumentError(f"{module} cannot be imported: {first_line(error)}") from error
    # Spark's Python workers cannot import it from here.
    cloudpickle.register_pickle_by_value(loaded)  # type: ignore[no-untyped-call]
    if not hasattr(loaded, function):
        known = ", ".join(name for name, value in vars(loaded).items() if callable(value) and not name.startswith("_"))
        raise InvalidArgumentError(f"{module} has no {function}.\nIt has: {known or 'no functions'}.")
    return getattr(loaded, function)


def _of_name(name: str) -> ModuleType:
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
    return importlib.import_module(name)


def _of_file(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if not path.is_file() or spec is None or spec.loader is None:
        raise FileNotFoundError(f"there is no such file: {path}")
    sys.path.insert(0, str(path.parent.absolute()))
    loaded = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = loaded
    spec.loader.exec_module(loaded)
    return loaded
