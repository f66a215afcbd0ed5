"""Check which way imports point, and draw the rooms: ``python -m scripts.house``.

An import may lead down the list of rooms, never up, and modules must not import each other in a circle. Imports
inside functions and under ``TYPE_CHECKING`` count, except those of :data:`NOUNS`. ``--check`` writes nothing, and also
fails if the drawing in the documentation is out of date.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from scripts.house_drawing import draw
from scripts.typecheck import ROOT, folders

DRAWING = ROOT / "docs" / "contributing" / "house.svg"

TOP = "streamstate"
ROOMS = (
    "kernel_ext",
    "command_line",
    "widgets",
    "sharing",
    "operations",
    "replay",
    "variables",
    "state_inspect",
    "snapshots",
)
TUTORIALS = "tutorials"
FOR_ALL = frozenset({f"{TOP}.errors", f"{TOP}.extras", f"{TOP}.lazy_names"})  # modules that every room may import
NOUNS = frozenset(
    f"{TOP}.{module}"
    for module in (
        *("operations.checkpoint", "replay.replay", "sharing.contract"),
        *("state_inspect.store", "state_inspect.history", "state_inspect.snapshot"),
    )
)
"""Modules with the classes that users begin with: methods load the functions that act on them, or their results.

``Snapshot.restore`` and ``Replay.fork`` give checkpoints, which are above them, and ``History.publish`` gives a
contract; the methods of ``Checkpoint`` return checkpoints too. These imports, inside functions and under
``TYPE_CHECKING``, may lead anywhere.
"""
NAMES_FOR_ALL = frozenset({"__version__"})  # names of the top package that every room may use


@dataclass(frozen=True, order=True)
class Import:
    """One module imports another, in a line of its source."""

    module: str
    imported: str
    line: int


def sources(packages: Mapping[str, Path]) -> dict[str, Path]:
    """Return the source of each module in the folders of the packages."""
    return {
        package if source.stem == "__init__" else f"{package}.{source.stem}": source
        for package, folder in packages.items()
        for source in folder.glob("*.py")
    }


@dataclass
class House:
    """The modules of the package with their sources, and what each imports from it."""

    sources: dict[str, Path]
    imports: list[Import] = field(default_factory=list)

    @classmethod
    def read(cls, packages: Mapping[str, Path]) -> House:
        """Read every source in the folders of the packages."""
        house = cls(sources(packages))
        for module, source in sorted(house.sources.items()):
            tree = ast.parse(source.read_text(encoding="utf-8"), str(source))
            if module in NOUNS:
                tree.body = [node for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom))]
            house.imports += sorted({found for found in house._found(module, tree) if found.imported != module})
        return house

    def _found(self, module: str, tree: ast.Module) -> Iterator[Import]:
        for node in ast.walk(tree):
            match node:
                case ast.ImportFrom(module=str(package), names=names, level=0):
                    for name in names:
                        yield from self._taken(module, package, name.name, node.lineno)
                case ast.Import(names=names):
                    for name in names:
                        if name.name in self.sources and name.name != TOP:
                            yield Import(module, name.name, node.lineno)
                # `import streamstate` alone says nothing yet: its attributes say what is used.
                case ast.Attribute(value=ast.Name(id=package), attr=name) if package == TOP:
                    yield from self._taken(module, TOP, name, node.lineno)

    def _taken(self, module: str, package: str, name: str, line: int) -> Iterator[Import]:
        """A name taken from a package is a module of it, or comes from the package's ``__init__``."""
        if f"{package}.{name}" in self.sources:
            yield Import(module, f"{package}.{name}", line)
        elif package in self.sources and not (package == TOP and name in NAMES_FOR_ALL):
            yield Import(module, package, line)

    def uphill(self) -> Iterator[Import]:
        """Imports that lead to a room above the module's own, or into the tutorials."""
        for found in self.imports:
            here, there = room_of(found.module), room_of(found.imported)
            if found.imported in FOR_ALL or here in (there, TUTORIALS):
                continue
            if there == TUTORIALS or ROOMS.index(there) < ROOMS.index(here):
                yield found

    def circles(self) -> list[list[str]]:
        """A shortest circle of each group of modules that all import each other, directly or through others."""
        graph: dict[str, set[str]] = {module: set() for module in self.sources}
        for found in self.imports:
            graph[found.module].add(found.imported)
        return sorted(_shortest_circle(graph, group) for group in _groups(graph) if len(group) > 1)

    def line(self, module: str, imported: str) -> str:
        """Where a module imports another, as an editor opens it."""
        line = min(found.line for found in self.imports if (found.module, found.imported) == (module, imported))
        source = self.sources[module]
        return f"{source.relative_to(ROOT) if source.is_relative_to(ROOT) else source}:{line}"

    def arrows(self) -> set[tuple[str, str]]:
        """Which room imports which, as far as it may."""
        allowed = set(self.imports) - set(self.uphill())
        pairs = {(room_of(found.module), room_of(found.imported)) for found in allowed if found.imported not in FOR_ALL}
        return {(here, there) for here, there in pairs if here != there}

    def problems(self) -> Iterator[str]:
        """A line for each import that leads uphill, and some for each circle."""
        for found in self.uphill():
            rooms = f"{room_of(found.module)} → {room_of(found.imported)}"
            yield f"{self.line(found.module, found.imported)}: {found.module} imports {found.imported} ({rooms})"
        for circle in self.circles():
            yield f"These {len(circle)} modules import each other in a circle:"
            for module, imported in zip(circle, [*circle[1:], circle[0]], strict=True):
                yield f"  {self.line(module, imported)}: {module} imports {imported}"


def room_of(module: str) -> str:
    """The room that a module is in; everything at the top of the package is in ``kernel_ext``."""
    name = module.split(".")[1] if "." in module else ""
    return name if name in (*ROOMS, TUTORIALS) else "kernel_ext"


def _groups(graph: Mapping[str, set[str]]) -> Iterator[set[str]]:
    """The strongly connected components, by Tarjan's algorithm."""
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []

    def visit(module: str) -> Iterator[set[str]]:
        number[module] = lowest[module] = len(number)
        stack.append(module)
        for imported in sorted(graph[module]):
            if imported not in number:
                yield from visit(imported)
                lowest[module] = min(lowest[module], lowest[imported])
            elif imported in stack:
                lowest[module] = min(lowest[module], number[imported])
        if lowest[module] == number[module]:
            at = stack.index(module)
            yield set(stack[at:])
            del stack[at:]

    for module in sorted(graph):
        if module not in number:
            yield from visit(module)


def _shortest_circle(graph: Mapping[str, set[str]], group: set[str]) -> list[str]:
    """A shortest way from a module of the group back to itself, beginning at the first in the alphabet."""
    return min((_way_back(graph, group, module) for module in sorted(group)), key=len)


def _way_back(graph: Mapping[str, set[str]], group: set[str], start: str) -> list[str]:
    ways = [[start]]
    seen = {start}
    for way in ways:  # grows while it is walked through: breadth first
        for imported in sorted(graph[way[-1]] & group):
            if imported == start:
                return way
            if imported not in seen:
                seen.add(imported)
                ways.append([*way, imported])
    message = f"{start} is not on a circle"
    raise AssertionError(message)


def drawing(house: House) -> str:
    """The rooms from the top down with their sub-packages, and which room imports which."""
    packages = {module for module, source in house.sources.items() if source.stem == "__init__"}
    inside: dict[str, list[str]] = {room: [] for room in ROOMS}
    for package in sorted(packages):
        room = room_of(package)
        if room in inside and package not in (TOP, f"{TOP}.{room}"):
            inside[room].append(package.removeprefix(f"{TOP}.").removeprefix(f"{room}."))
    return draw(inside, {arrow for arrow in house.arrows() if TUTORIALS not in arrow})


def main(arguments: list[str]) -> int:
    """Report what points the wrong way, and write the drawing or check it."""
    parser = argparse.ArgumentParser(prog="python -m scripts.house", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail when the drawing is out of date")
    check = parser.parse_args(arguments).check
    house = House.read(folders())
    problems = list(house.problems())
    text = drawing(house)
    if not check:
        DRAWING.write_text(text, encoding="utf-8")
    elif not DRAWING.exists() or DRAWING.read_text(encoding="utf-8") != text:
        problems.append(f"{DRAWING.relative_to(ROOT)} is out of date: run `python -m scripts.house` and commit it.")
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
