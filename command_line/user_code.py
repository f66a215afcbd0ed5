"""The code of a query that a command line names: a function in a module or in a file."""

from __future__ import annotations

import argparse
import importlib
import inspect
import sys
import sysconfig
import traceback
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from types import FrameType, ModuleType
from typing import TYPE_CHECKING, Any

from streamstate.errors import InvalidArgumentError, StreamStateError, choices, first_line
from streamstate.snapshots.calls.code_files import module_of_file
from streamstate.snapshots.spark.output_modes import MODES
from streamstate.snapshots.spark.pipeline_code import defines_pipeline, pipeline_flow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from streamstate.state_inspect import History


def add_code(
    parser: argparse.ArgumentParser,
    name: str = "code",
    more: str = "",
    *,
    mode: str | None = "update",
    **options: Any,
) -> None:
    """Add the code of a query, and its output mode; ``mode`` is the default, None if it is found."""
    add_code_alone(parser, name, more, **options)
    default = f"default: {mode}" if mode else "needed where Spark accepts several, and it matters which it is"
    parser.add_argument("--mode", choices=MODES, default=mode, help=f"the output mode ({default})")


def add_code_alone(parser: argparse.ArgumentParser, name: str = "--code", more: str = "", **options: Any) -> None:
    """Add the code of a query whose output mode does not matter."""
    parser.add_argument(
        name,
        metavar="MODULE:FUNCTION",
        type=place_of,
        help="the function that returns the streaming DataFrame, such as jobs.delays:build or jobs/delays.py:build; of"
        f" a pipeline's file the flow{more}",
        **options,
    )


def given_code(given: argparse.Namespace) -> Callable[[], DataFrame] | None:
    """Return the code that was given, with a session of Spark to run it in; None if none was."""
    if given.code is None:
        return None
    build = loaded(*given.code)
    _start_session()
    return build


def plan_by_code(history: History, given: argparse.Namespace, epoch: int) -> None:
    """Plan a query of a store from the code that was given, so that Spark can read its input again here."""
    from streamstate.snapshots.store.query_plans.describe import plan_here

    _start_session()
    plan_here(history.recorded.layout, history.name, loaded(*given.code), mode=given.mode, epoch=epoch)


def _start_session() -> None:
    from streamstate.snapshots.spark.session import running_session, session

    if running_session() is None:
        session()


def place_of(text: str) -> tuple[str, str]:
    """Split an argument into a module or file, and a function."""
    module, colon, function = text.rpartition(":")
    if not (colon and module and function.isidentifier()):
        raise argparse.ArgumentTypeError(
            f"invalid code {text!r}: expected MODULE:FUNCTION, such as jobs.delays:build, or FILE:FUNCTION"
        )
    return module, function


def loaded(module: str, function: str) -> Callable[[], DataFrame]:
    """Load a function from a module on the path or in the current folder, or from a file; of a pipeline, a flow.

    An error in its code becomes an InvalidArgumentError that names the line.
    """
    from pyspark import cloudpickle

    if module.endswith(".sql"):
        return pipeline_flow(module, function)
    try:
        if module.endswith(".py") and defines_pipeline(Path(module)):
            return _checked(pipeline_flow(module, function), f"{module}:{function}")
        loaded = module_of_file(Path(module)) if module.endswith(".py") else _of_name(module)
    except Exception as error:
        raise InvalidArgumentError(f"{module} cannot be imported: {_in_user_code(error)}") from error
    # Spark's Python workers cannot import it from here.
    cloudpickle.register_pickle_by_value(loaded)  # type: ignore[no-untyped-call]
    if not callable(getattr(loaded, function, None)):
        functions = {name: value for name, value in vars(loaded).items() if inspect.isfunction(value)}
        own = [name for name, value in functions.items() if value.__module__ == loaded.__name__ and name[0] != "_"]
        raise InvalidArgumentError(f"{module} has no function {function}.\nIt has: {choices(own)}.")
    return _checked(getattr(loaded, function), f"{module}:{function}")


def _checked(build: Callable[[], Any], name: str) -> Callable[[], DataFrame]:
    """Wrap a function: its errors are for people who do not see a traceback."""
    try:
        inspect.signature(build).bind()
    except TypeError as error:
        raise InvalidArgumentError(
            f"{name} cannot be called without arguments: {error}.\n"
            "It has to make everything that it needs, starting with spark = SparkSession.builder.getOrCreate()."
        ) from error

    @wraps(build)
    def call() -> DataFrame:
        try:
            frame: DataFrame = build()
        except StreamStateError:
            raise
        except Exception as error:
            raise InvalidArgumentError(f"{name} failed: {_in_user_code(error)}") from error
        if getattr(frame, "isStreaming", False) is not True:
            what = "a DataFrame that is not streaming" if hasattr(frame, "isStreaming") else repr(frame)
            raise InvalidArgumentError(
                f"{name} returned {what}.\n"
                "It has to return the query's streaming DataFrame, made from spark.readStream and not started."
            )
        return frame

    return call


def _in_user_code(error: Exception) -> str:
    """Return an error's message, with the innermost line of the user's own code."""
    says = first_line(error)
    said = says if says == type(error).__name__ else f"{type(error).__name__}: {says}"
    if isinstance(error, SyntaxError) and error.filename:
        return f"{said}\n  {error.filename}, line {error.lineno}: {(error.text or '').strip()}"
    own = traceback.StackSummary.extract(
        (frame, line) for frame, line in traceback.walk_tb(error.__traceback__) if _is_own(frame)
    )
    return f"{said}\n  {own[-1].filename}, line {own[-1].lineno}, in {own[-1].name}: {own[-1].line}" if own else said


def _is_own(frame: FrameType) -> bool:
    """Return True if the user wrote the code of a frame: not Python, an installed package, or streamstate."""
    file, module = frame.f_code.co_filename, str(frame.f_globals.get("__name__"))
    installed = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    return not (
        file.startswith("<")
        or module.partition(".")[0] == "streamstate"
        or any(Path(file).is_relative_to(folder) for folder in installed)
    )


def _of_name(name: str) -> ModuleType:
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
    return importlib.import_module(name)
