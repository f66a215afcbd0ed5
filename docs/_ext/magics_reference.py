"""Writes the magics' reference from the parsers that read their lines, and the settings' from their traits.

A page for each spelling of a magic, in ``reference/magics``, made again at each build: what the parser takes is what
the page says. Nothing in that folder but ``index.md`` is kept in the repository.
"""

from __future__ import annotations

import argparse
import inspect
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from generated import literal, plain, title, write_pages

if TYPE_CHECKING:
    from sphinx.application import Sphinx

    from streamstate.magics.arguments import MagicParser
    from streamstate.magics.magic import Magic

FOLDER = Path("reference") / "magics"
_EXAMPLES = re.compile(r"^Examples?:\n", re.MULTILINE)


def setup(app: Sphinx) -> dict[str, bool]:
    """What Sphinx calls first."""
    app.connect("builder-inited", generate)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def generate(app: Sphinx) -> None:
    """Write the pages."""
    from streamstate.extension import MAGICS
    from streamstate.magics.notebook_context import StreamState

    pages = {page_name(magic): "\n".join(_page(magic, MAGICS)) for magic in MAGICS}
    pages["settings"] = "\n".join(_settings(StreamState))
    write_pages(Path(app.srcdir) / FOLDER, pages)


def page_name(magic: Magic) -> str:
    """The page of a magic: a line and a cell of one name have a page each."""
    return f"{magic.name}-{magic.kind}"


def spelling(magic: Magic) -> str:
    """How a magic is written."""
    return ("%%" if magic.kind == "cell" else "%") + magic.name


def _page(magic: Magic, magics: tuple[Magic, ...]) -> Iterator[str]:
    parser, program = magic.parser, page_name(magic)
    yield title(spelling(magic), "=")
    yield from described(parser, program)
    if parser.verbs:
        yield ".. rubric:: Verbs\n"
    for name, verb in parser.verbs.items():
        yield f"- `{name} <{verb.prog}_>`__: {plain(' '.join((verb.description or '').split()))}"
    yield ""
    yield from _epilog(parser, magics)
    for name, verb in parser.verbs.items():
        yield title(verb.prog, "-")
        yield from described(verb, f"{program} {name}")
        yield from _epilog(verb, magics)


def described(parser: argparse.ArgumentParser, program: str) -> Iterator[str]:
    """What a parser reads: what for, usage, arguments.

    Sphinx makes the options' anchors from ``program``, in which it can have no percent sign.
    """
    yield from _paragraphs(parser.description or "")
    yield literal(_usage(parser))
    yield f".. program:: {program}\n"
    # What has no dashes comes first. argparse has no other way to list its arguments.
    for action in sorted(parser._actions, key=lambda one: bool(one.option_strings)):  # noqa: SLF001
        if not isinstance(action, argparse._SubParsersAction) and action.dest != "help":  # noqa: SLF001
            yield _argument(parser, action)


def _usage(parser: argparse.ArgumentParser) -> str:
    """The usage, its lines where they stand below the word that --help begins them with."""
    first, *more = parser.format_usage().removeprefix("usage: ").splitlines()
    return "\n".join([first, *(line.removeprefix(" " * len("usage: ")) for line in more)])


def _argument(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    """One argument, with what it takes and says."""
    values = _values(action)
    # Sphinx separates the spellings of one option by commas; each is a separate target.
    spelled = ", ".join(f"{flag} {values}".strip() for flag in action.option_strings) or values
    formatter = parser._get_formatter()  # noqa: SLF001 (fills defaults into the help, as --help does)
    text = formatter._expand_help(action) if action.help else ""  # noqa: SLF001 (as above)
    listed = ", ".join(f"``{choice}``" for choice in action.choices or ())
    allowed = f" One of: {listed}." if listed and action.metavar else ""
    return f".. option:: {spelled}\n\n{textwrap.indent(_sentence(text) + allowed, '   ')}\n"


def _values(action: argparse.Action) -> str:
    if action.nargs == 0:
        return ""
    names = action.metavar or (f"{{{','.join(map(str, action.choices))}}}" if action.choices else action.dest.upper())
    listed = " ".join(names) if isinstance(names, tuple) else names
    return {"?": f"[{listed}]", "*": f"[{listed} ...]"}.get(str(action.nargs), listed)


def _sentence(text: str) -> str:
    """A help text as a sentence; one that begins with a list of values begins as they are written."""
    if not text:
        return ""
    values = text.split(maxsplit=1)[0].endswith(",")
    return plain(f"{text if values else text[0].upper() + text[1:]}{'' if text[-1] in '.!?' else '.'}")


def _epilog(parser: MagicParser, magics: tuple[Magic, ...]) -> Iterator[str]:
    """What stands below the arguments; another magic's help becomes a link to its page."""
    text = parser.epilog or ""
    for other in magics:
        if other.parser.format_help() in text:
            text = text.replace(other.parser.format_help(), "").rstrip().removesuffix(":") + ".\n"
            yield f"See also: :doc:`{page_name(other)}`.\n"
    before = _EXAMPLES.split(text)[0]
    if before.strip() and not parser.verbs:  # the page lists the verbs itself
        listed = any(line.startswith(" ") for line in before.splitlines())
        yield from [literal(before)] if listed else _paragraphs(before)
    yield from examples_in(text)


def examples_in(epilog: str) -> Iterator[str]:
    """The examples below a parser's arguments."""
    for example in _EXAMPLES.split(epilog)[1:]:
        yield ".. rubric:: Examples\n"
        yield literal(textwrap.dedent(example))


def _paragraphs(text: str) -> Iterator[str]:
    for paragraph in re.split(r"\n\s*\n", text.strip()):
        yield plain(" ".join(paragraph.split())) + "\n"


def _settings(settings: type) -> Iterator[str]:
    """The page of what ``%config`` sets."""
    name = settings.__name__
    yield title(f"%config {name}", "=")
    yield from _paragraphs(inspect.getdoc(settings) or "")
    yield literal(
        f"%config {name}              # all settings, with their values\n%config {name}.rows = 50    # one of them"
    )
    yield f".. program:: config {name}\n"
    for trait_name, trait in settings.class_own_traits(config=True).items():  # type: ignore[attr-defined]
        default = f" Default: ``{trait.default()!r}``."
        yield f".. option:: {name}.{trait_name}\n\n   {_sentence(trait.help)}{default}\n"
