"""Find which private interfaces of Spark the package uses: ``python -m scripts.private_interfaces`` lists them.

Spark's classes are the names ``org.apache.spark…`` in strings and in attributes of the JVM. PySpark's private
attributes begin with an underscore; PySpark's source defines them, and no module of the package does.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from scripts.house import sources
from scripts.typecheck import folders

_PACKAGE = "org.apache.spark"
_MARK = "apache"  # in every name of a class, however the code splits it
_CLASS = re.compile(r"org\.apache\.spark(?!\.sql\.kafka010)(?:\.[a-z]\w*)*\.[A-Z]\w*[a-z]\w*")
_DEFINED = re.compile(r"^\s+(?:def |self\.|cls\.)?(_[a-z]\w*)(?=\s*[:=(])", re.MULTILINE)
Uses = dict[str, set[str]]
"""The modules that use each name."""


@dataclass
class Interfaces:
    """The parts of Spark that the package uses, each with the modules that use it."""

    classes: Uses = field(default_factory=lambda: defaultdict(set))
    """Classes of the JVM."""
    attributes: Uses = field(default_factory=lambda: defaultdict(set))
    """Private attributes of PySpark's objects."""

    @classmethod
    def of(cls, modules: Mapping[str, Path]) -> Interfaces:
        """Read every module."""
        written = {module: path.read_text(encoding="utf-8") for module, path in modules.items()}
        trees = {module: ast.parse(source) for module, source in written.items()}
        texts = {module: _texts(tree) for module, tree in trees.items()}
        nodes = {module: [*ast.walk(tree)] for module, tree in trees.items()}
        own = {name for module in nodes.values() for name in _defined(module)}
        known = {name for name in private_names(_pyspark()) if name.startswith("_j") or name not in own}
        found = cls()
        for module, tree in trees.items():
            imported = _imported(nodes[module], texts)
            # A class is in the module's own text or in an imported constant; most modules have neither.
            if _MARK in written[module] or any(_MARK in text for text in imported.values()):
                for name in _classes(tree, texts[module] | imported):
                    found.classes[name].add(module)
            for name in _of_others(nodes[module], known, knows_pyspark="pyspark" in written[module]):
                found.attributes[name].add(module)
        return found


@cache
def interfaces() -> Interfaces:
    """Return what the package uses."""
    return Interfaces.of(sources(folders()))


def private_names(folder: Path) -> set[str]:
    """Return the names of private attributes and methods in a PySpark's source."""
    left_out = {"pandas", "tests", "testing", "connect", "ml", "mllib"}
    files = (path for path in folder.rglob("*.py") if not left_out & {*path.relative_to(folder).parts})
    return {name for path in files for name in _DEFINED.findall(path.read_text(encoding="utf-8"))}


def _pyspark() -> Path:
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


def _classes(tree: ast.Module, texts: Mapping[str, str]) -> Iterator[str]:
    """Yield the names of classes in a module, which may be in its constants and those that it imports."""
    shared = {name: package for name, package in _packages(tree) if name.startswith("self.")}
    for scope in [tree, *(node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))]:
        packages = shared | dict(_packages(scope))
        for node in ast.walk(scope):
            name = ""
            if isinstance(node, ast.Attribute) and isinstance(scope, ast.FunctionDef):
                package = packages.get(ast.unparse(node.value), "")
                name = f"{package}.{node.attr}" if package else _dotted(node)
            elif isinstance(node, (ast.Constant, ast.BinOp, ast.JoinedStr)):
                name = _text(node, texts) or ""
            if match := _CLASS.fullmatch(name.removesuffix("$")):
                yield match[0]


def _packages(scope: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield the variables that are one of Spark's packages in the JVM."""
    for node in ast.walk(scope):
        if isinstance(node, ast.Assign):
            for target, value in _pairs(node):
                if package := _dotted(value):
                    yield ast.unparse(target), package


def _dotted(node: ast.expr) -> str:
    """Return the part of a chain of attributes that begins with Spark's package."""
    _, found, rest = ast.unparse(node).partition(f".{_PACKAGE}.")
    return f"{_PACKAGE}.{rest}" if found and re.fullmatch(r"[\w.]+", rest) else ""


def _pairs(node: ast.Assign) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield each target of an assignment with its value."""
    for target in node.targets:
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            yield from zip(target.elts, node.value.elts, strict=False)
        else:
            yield target, node.value


def _texts(tree: ast.Module) -> dict[str, str]:
    """Return the constants of a module that are texts."""
    found: dict[str, str] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and (text := _text(node.value, found)) is not None:
            found |= {target.id: text for target in node.targets if isinstance(target, ast.Name)}
    return found


def _text(node: ast.expr, known: Mapping[str, str]) -> str | None:
    """Return the text that an expression is, if it consists of constants."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.Name(id=name):
            return known.get(name)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            parts: list[ast.expr] = [left, right]
        case ast.JoinedStr(values=values):
            parts = [part.value if isinstance(part, ast.FormattedValue) else part for part in values]
        case _:
            return None
    texts = [_text(part, known) for part in parts]
    return None if None in texts else "".join(text for text in texts if text is not None)


def _imported(nodes: Sequence[ast.AST], texts: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Return the constants that a module imports from others of the package."""
    found: dict[str, str] = {}
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            known = texts.get(node.module or "", {})
            found |= {name.asname or name.name: known[name.name] for name in node.names if name.name in known}
    return found


def _of_others(nodes: Sequence[ast.AST], known: set[str], *, knows_pyspark: bool) -> Iterator[str]:
    """Yield the attributes of other objects that are PySpark's, because of their names or because it is imported."""
    for node in nodes:
        match node:
            case ast.Attribute(value=ast.Name(id="self" | "cls")):
                pass
            case ast.Attribute(attr=name) if name in known and (knows_pyspark or name.startswith("_j")):
                yield name


def _defined(nodes: Sequence[ast.AST]) -> Iterator[str]:
    """Yield the names of functions, classes and attributes that a module defines."""
    for node in nodes:
        match node:
            case ast.ClassDef(name=name, body=body):
                yield name
                yield from _fields(body)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name, ctx=ast.Store()):
                yield name


def _fields(body: list[ast.stmt]) -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id


if __name__ == "__main__":
    for kind in (interfaces().classes, interfaces().attributes):
        for name, modules in sorted(kind.items()):
            print(name, *sorted(modules))
