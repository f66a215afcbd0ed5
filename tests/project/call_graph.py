"""A graph of the project's functions, made from the code: who calls whom, as far as names tell."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import streamstate

_ROOT = Path(streamstate.__file__).parents[1]
_ROOMS = ("kernel_ext", "sharing", "operations", "replay", "variables", "state_inspect", "snapshots")
_JVM = {"_jvm", "_jdf", "_jsq", "_jsc", "_jsparkSession"}
_Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass
class Module:
    """The functions of a module, and what its names stand for."""

    name: str
    tree: ast.Module
    functions: dict[str, _Function] = field(default_factory=dict)
    """By qualified name."""
    classes: dict[str, list[str]] = field(default_factory=dict)
    """The methods of each class."""

    def __post_init__(self) -> None:
        for node in self.tree.body:
            if isinstance(node, _Function):
                self.functions[node.name] = node
            if isinstance(node, ast.ClassDef):
                methods = [each for each in node.body if isinstance(each, _Function)]
                self.classes[node.name] = [each.name for each in methods]
                self.functions |= {f"{node.name}.{each.name}": each for each in methods}

    @cached_property
    def imported(self) -> dict[str, str]:
        """The names that the module imports from the project, as ``module:name``."""
        return dict(_imports(self.tree.body))


def _imports(body: Iterable[ast.stmt]) -> Iterator[tuple[str, str]]:
    """The names that statements import from the project."""
    for node in body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("streamstate"):
            for name in node.names:
                yield name.asname or name.name, f"{node.module}:{name.name}"


@dataclass
class Uses:
    """The names in a function: functions of the project, in order, and perhaps a JVM."""

    called: list[str]
    forwarded: bool
    jvm: bool


class CallGraph:
    """Who calls whom in the project. What an object's method is cannot be told, except for ``self``."""

    def __init__(self) -> None:
        paths = [path for room in _ROOMS for path in (_ROOT / room).rglob("*.py")]
        trees = {_name_of(path): ast.parse(path.read_text(encoding="utf-8")) for path in paths}
        self.modules = {name: Module(name, tree) for name, tree in trees.items()}
        self._found: dict[str, Uses] = {}

    def __contains__(self, function: str) -> bool:
        return self._node(function) is not None

    def chain(self, function: str, stops: Iterable[str]) -> list[str] | None:
        """A chain of calls from a function to one that uses a JVM; None if there is none. ``stops`` end chains."""
        seen, waiting = {function, *stops}, [[function]]
        while waiting:
            chain = waiting.pop(0)
            uses = self._uses(chain[-1])
            if uses.jvm:
                return chain
            new = [called for called in uses.called if called not in seen and not self.forwarded(called)]
            seen.update(new)
            waiting += [[*chain, called] for called in new]
        return None

    def forwarded(self, function: str) -> bool:
        """Return whether a function runs in the worker process beside Spark Connect."""
        return self._uses(function).forwarded

    def _uses(self, function: str) -> Uses:
        """Return the names in a function; most chains lead through the same functions, so each is read once."""
        if function not in self._found:
            node = self._node(function)
            marks = [] if node is None else map(ast.unparse, node.decorator_list)
            forwarded = any("classic_spark" in mark for mark in marks)
            self._found[function] = Uses([*self._called(function)], forwarded, self._uses_jvm(function))
        return self._found[function]

    def _called(self, function: str) -> Iterator[str]:
        """The functions that a function names; of a class, all its methods."""
        node = self._node(function)
        if node is None:
            return
        module, _, name = function.partition(":")
        own = self.modules[module]
        known = own.imported | dict(_imports(each for each in ast.walk(node) if isinstance(each, ast.stmt)))
        for each in ast.walk(node):
            if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load):
                target = known.get(each.id, f"{module}:{each.id}")
                yield from self._functions_of(target)
            elif isinstance(each, ast.Attribute) and ast.unparse(each.value) == "self":
                yield f"{module}:{name.partition('.')[0]}.{each.attr}"

    def _functions_of(self, target: str) -> Iterator[str]:
        module, _, name = target.partition(":")
        if (found := self.modules.get(module)) is None:
            return
        if name in found.imported:  # a package passes it on
            yield from self._functions_of(found.imported[name])
        yield from (f"{module}:{name}.{method}" for method in found.classes.get(name, ()))
        if name in found.functions:
            yield target

    def _node(self, function: str) -> _Function | None:
        module, _, name = function.partition(":")
        return self.modules[module].functions.get(name) if module in self.modules else None

    def _uses_jvm(self, function: str) -> bool:
        node = self._node(function)
        if node is None:
            return False
        if function == "streamstate.snapshots.spark.session:classic_session":
            return True
        return any(isinstance(each, ast.Attribute) and each.attr in _JVM for each in ast.walk(node))


def _name_of(path: Path) -> str:
    parts = list(path.relative_to(_ROOT).with_suffix("").parts)
    parts = ["streamstate", *parts[1:]] if parts[0] == "kernel_ext" else ["streamstate", *parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
