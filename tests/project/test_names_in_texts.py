"""README, guides, reference, tutorials and messages name only what exists: in Python, in magics and in commands."""

from __future__ import annotations

import argparse
import ast
import inspect
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import streamstate as ss
from streamstate import reports
from streamstate.command_line import parser
from streamstate.extension import MAGICS
from streamstate.magics.arguments import MagicParser

ROOT = Path(__file__).parents[2]
ROOMS = (
    "kernel_ext",
    "command_line",
    "widgets",
    "sharing",
    "operations",
    "replay",
    "state_inspect",
    "snapshots",
    "variables",
)
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "tutorials").glob("*.ipynb"))]
USERS = [page for page in PAGES if "contributing" not in page.parts]
SOURCES = sorted(file for room in ROOMS for file in (ROOT / room).rglob("*.py"))

FENCE = re.compile(r"^( *)```+(\{?[\w-]*\}?)[^\n]*\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"(?<!`)`([^`]+)`(?!`)")
MAGIC = re.compile(r"(?<![\w%])(%%?)(stream|statesql|state|snapshots|shared)\b(?! *:)([^\n%\"`|]*)")
COMMAND = re.compile(r"(?:^|[\s/$])streamstate (?!as\b)([a-z]+)((?: [^\n|>`\"]*)?)", re.MULTILINE)
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*[a-z]")
NOUNS = (ss.Checkpoint, reports.Store, reports.History, reports.Snapshot, reports.Running, reports.Capture)
CLASSES = [ss.Checkpoint, *(getattr(reports, name) for name in reports.__all__)]


@dataclass(frozen=True)
class Text:
    """Code in a page: blocks, and the code between backticks in prose."""

    name: str
    blocks: tuple[str, ...]
    spans: tuple[str, ...]

    @property
    def lines(self) -> str:
        """All code; a command that continues on the next line is one line."""
        return re.sub(r"\\\n\s*", " ", "\n".join([*self.blocks, *self.spans]))


@cache
def text_of(path: Path) -> Text:
    """Read a page or a notebook."""
    if path.suffix == ".md":
        return parsed(path.name, path.read_text(encoding="utf-8"))
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    prose = parsed(path.name, "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"))
    code = tuple("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    return Text(path.name, (*prose.blocks, *code), prose.spans)


def parsed(name: str, markdown: str) -> Text:
    """Find the code in Markdown."""
    spans = (" ".join(span.split()) for span in SPAN.findall(FENCE.sub("", markdown)))
    return Text(name, tuple(block for _, _, block in FENCE.findall(markdown)), tuple(spans))


def magic_problems(code: str, *, prose: bool = False) -> Iterator[str]:
    """Verbs and options of magics in code that do not exist; in prose, other words may follow a name."""
    parsers = {(magic.kind, magic.name): magic.parser for magic in MAGICS}
    for percent, name, rest in MAGIC.findall(code):
        known = parsers.get(("cell" if percent == "%%" else "line", name))
        if known is None:
            yield f"{percent}{name}"
            continue
        words = [word.strip(".,;:()'") for word in rest.split()]
        verb = [] if prose and len(known.verb_places) > 1 else unknown_verb(known, words)
        at = known.verb_at(words)
        flags = {
            flag for argument in (known if at is None else known.verbs[words[at]]).arguments for flag in argument.flags
        }
        unknown = [word for word in OPTION.findall(" ".join(words)) if word not in flags]
        yield from (f"{percent}{name} {rest.strip()}: {what}" for what in [*verb, *unknown])


def unknown_verb(known: MagicParser, words: list[str]) -> list[str]:
    """The word in the place of a verb, if it looks like one and is none."""
    place = max(known.verb_places)
    given = words[place : place + 1] if known.verbs and known.verb_at(words) is None else []
    return [word for word in given if re.fullmatch("[a-z]+", word)]


@cache
def commands() -> dict[str, argparse.ArgumentParser]:
    """The parsers of the commands."""
    actions = parser()._actions
    return dict(next(action for action in actions if isinstance(action, argparse._SubParsersAction)).choices)


def flags_of(command: argparse.ArgumentParser) -> set[str]:
    """The options of a command, and of its verbs if it has some."""
    nested = [action for action in command._actions if isinstance(action, argparse._SubParsersAction)]
    return {*command._option_string_actions}.union(*(flags_of(verb) for one in nested for verb in one.choices.values()))


def command_problems(code: str, *, prose: bool = False) -> Iterator[str]:
    """Commands, and options of commands, in code that do not exist; in prose, a verb may follow the project's name."""
    for name, rest in COMMAND.findall(code):
        flags = flags_of(commands()[name]) if name in commands() else set()
        unknown = [word for word in OPTION.findall(rest) if word not in flags] if flags else [name] * (not prose)
        yield from (f"streamstate {name}{rest}: {what}" for what in unknown)


def call_problems(block: str) -> Iterator[str]:
    """Names of the package, and keyword arguments of its calls, in a block of Python that do not exist."""
    try:
        tree = ast.parse("\n".join(line for line in block.splitlines() if not line.lstrip().startswith(("%", "!"))))
    except SyntaxError:
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            found = [*callables(node.func)]
            given = {keyword.arg for keyword in node.keywords if keyword.arg}
            if found and not any(accepts(call, given) for call in found):
                yield f"{ast.unparse(node.func)}({', '.join(sorted(given))}=…)"


def callables(function: ast.Attribute) -> Iterator[Callable[..., Any]]:
    """The calls of the package that a name in code may mean: by its module, or methods of that name of a noun."""
    if isinstance(function.value, ast.Name) and function.value.id == "ss":
        yield getattr(ss, function.attr, dict)
        return
    if any(hasattr(noun, function.attr) for noun in NOUNS):
        methods = (getattr(kind, function.attr, None) for kind in CLASSES)
        yield from (method for method in methods if inspect.isfunction(method))


def accepts(call: Callable[..., Any], names: set[str]) -> bool:
    """Whether a call takes all these keyword arguments."""
    parameters = inspect.signature(call).parameters
    return names <= {*parameters} or any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())


def unknown_names(text: str) -> list[str]:
    """Names after ``ss.``, and methods after the name of a class, that do not exist."""
    top = {name for name in re.findall(r"(?<![\w.])ss\.(\w+)", text) if not exists(name)}
    kinds = {kind.__name__: kind for kind in CLASSES}
    methods = {
        f"{kind}.{member}"
        for kind, member in re.findall(rf"(?<![\w./])({'|'.join(kinds)})\.([a-z]\w*)", text)
        if not (hasattr(kinds[kind], member) or member in attributes(kinds[kind]))
    }
    members = re.findall(r"\bCheckpoint\([^()]*\)\.([a-z]\w*)", text)
    methods |= {f"Checkpoint.{member}" for member in members if not hasattr(ss.Checkpoint, member)}
    return sorted(f"ss.{name}" for name in top) + sorted(methods)


def exists(name: str) -> bool:
    """Whether the package has a public name, or a module of that name."""
    return name in ss.__all__ or name in ("reports", "errors", "widgets", "tutorials", "state_inspect", "__version__")


@cache
def attributes(kind: type) -> set[str]:
    """The attributes that a class declares or assigns in its methods."""
    declared = {name for base in kind.__mro__ for name in getattr(base, "__annotations__", {})}
    return declared | {*re.findall(r"self\.([a-z]\w*)\b.* = ", inspect.getsource(kind))}


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_page_names_what_exists(page: Path) -> None:
    """Its magics, verbs, commands, options, functions, methods and keyword arguments do."""
    text = text_of(page)
    problems = [*magic_problems(text.lines), *command_problems(text.lines), *unknown_names(text.lines)]
    assert problems + [problem for block in text.blocks for problem in call_problems(block)] == []


def test_options_in_prose_exist() -> None:
    """An option alone between backticks is one of a magic or a command."""
    parsers = [known for magic in MAGICS for known in (magic.parser, *magic.parser.verbs.values())]
    known = {flag for magic in parsers for argument in magic.arguments for flag in argument.flags}
    known |= {flag for command in commands().values() for flag in flags_of(command)}
    spans = {(text_of(page).name, span) for page in USERS for span in text_of(page).spans if span.startswith("--")}
    assert spans
    assert [(name, span) for name, span in sorted(spans) if not {*OPTION.findall(span)} <= known] == []


@pytest.mark.parametrize("room", ROOMS)
def test_docstrings_and_messages_name_what_exists(room: str) -> None:
    """A message that advises a call, a magic or a command advises one that exists."""
    problems: dict[str, list[str]] = {}
    for path in (source for source in SOURCES if source.is_relative_to(ROOT / room)):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, (ast.JoinedStr, ast.Constant)) and (words := literal(node)):
                found = [
                    *magic_problems(words, prose=True),
                    *command_problems(words, prose=True),
                    *unknown_names(words),
                ]
                problems |= {str(path.relative_to(ROOT)): found} if found else {}
    assert problems == {}


def literal(node: ast.JoinedStr | ast.Constant) -> str:
    """The text of a string; what an f-string inserts is an ellipsis."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    return "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)
