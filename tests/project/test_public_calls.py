"""Conventions of all public calls: one type of progress callback, and one tree of errors."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import streamstate
import streamstate.errors
from streamstate import reports
from streamstate.errors import StreamStateError
from streamstate.snapshots.calls.progress_callback import ProgressCallback

ROOMS = ("snapshots", "state_inspect", "variables", "replay", "operations", "sharing", "widgets", "command_line")


def modules() -> Iterator[Any]:
    """All modules of the package, except those that run when they are imported."""
    for name in ("streamstate", *(f"streamstate.{room}" for room in ROOMS)):
        package = importlib.import_module(name)
        yield package
        for module in pkgutil.walk_packages(package.__path__, f"{name}."):
            if not module.name.endswith("__main__"):
                yield importlib.import_module(module.name)


def calls() -> dict[str, Callable[..., Any]]:
    """All public functions and methods of the package, by full name."""
    functions: dict[str, Callable[..., Any]] = {}
    for module in modules():
        for name, value in vars(module).items():
            if getattr(value, "__module__", None) != module.__name__:
                continue
            members = vars(value).items() if inspect.isclass(value) else [(name, value)]
            for member, call in members:
                if inspect.isfunction(call) and not member.startswith("_"):
                    functions[f"{module.__name__}.{name}.{member}"] = call
    return functions


def tree(error: type[BaseException]) -> set[type[BaseException]]:
    """An error class and all its subclasses."""
    return {error}.union(*(tree(subclass) for subclass in error.__subclasses__()))


def test_every_error_can_be_imported_from_one_module() -> None:
    """``streamstate.errors`` has all errors, and the module that defines an error exports it."""
    defined = {(module.__name__, name) for module in modules() for name in getattr(module, "__all__", ())}
    errors = {error for error in tree(StreamStateError) if error.__module__.startswith("streamstate.")}
    assert {error.__name__ for error in errors} == set(streamstate.errors.__all__)
    assert streamstate.errors.__all__ == sorted(streamstate.errors.__all__)
    for error in errors:
        assert getattr(streamstate.errors, error.__name__) is error
        assert (error.__module__, error.__name__) in defined


def test_the_tree_of_errors_is_documented() -> None:
    """The module's docstring names all errors."""
    docstring = inspect.getdoc(streamstate.errors) or ""
    assert [name for name in streamstate.errors.__all__ if name not in docstring] == []


def test_progress_callbacks_have_one_signature() -> None:
    """Every public ``progress=`` is a keyword-only ProgressCallback, called with a message and a share."""
    parameters = {
        name: inspect.signature(call).parameters["progress"]
        for name, call in calls().items()
        if "progress" in inspect.signature(call).parameters and "dashboard" not in name  # Spark's progress events
    }
    public = {name: parameter for name, parameter in parameters.items() if parameter.kind is parameter.KEYWORD_ONLY}
    assert len(public) >= 10
    assert {parameter.annotation for parameter in public.values()} == {"ProgressCallback | None"}
    assert list(inspect.signature(ProgressCallback.__call__).parameters) == ["self", "message", "share"]


@pytest.mark.parametrize("folder", ["kernel_ext", *ROOMS])
def test_errors_have_a_message(folder: str) -> None:
    """The message is never a bare attribute, such as a path."""
    import ast

    bare = [
        f"{source.name}:{node.lineno}"
        for source in (Path(__file__).parents[2] / folder).rglob("*.py")
        for node in ast.walk(ast.parse(source.read_text(encoding="utf-8")))
        if isinstance(node, ast.Raise)
        and isinstance(node.exc, ast.Call)
        and isinstance(node.exc.func, ast.Name)
        and node.exc.func.id in streamstate.errors.__all__
        and (not node.exc.args or isinstance(node.exc.args[0], ast.Attribute))
    ]
    assert bare == []


@pytest.mark.parametrize("option", ["at", "mode", "verify", "shared", "progress", "spark", "storage_options"])
def test_options_of_the_nouns_are_keywords(option: str) -> None:
    """Public functions, and methods of the nouns, take each of these by its name only."""
    nouns = [getattr(reports, name) for name in ("Store", "History", "Snapshot", "Running")]
    members = [value for noun in [streamstate.Checkpoint, *nouns] for _, value in inspect.getmembers(noun, callable)]
    functions = [getattr(streamstate, name) for name in streamstate.__all__]
    public = [call for call in (*members, *functions) if inspect.isfunction(call) and not call.__name__.startswith("_")]
    found = [(call.__qualname__, inspect.signature(call).parameters.get(option)) for call in public]
    taken = [(name, parameter) for name, parameter in found if parameter is not None]
    assert taken
    assert [name for name, parameter in taken if parameter.kind is not parameter.KEYWORD_ONLY] == []
