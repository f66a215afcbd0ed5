"""The parser of the magics' lines: argparse, with errors and help that suit a notebook."""

from __future__ import annotations

import argparse
import functools
import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from streamstate.command_line.argument_types import did_you_mean, identifier, no_option, option
from streamstate.errors import InvalidArgumentError

if TYPE_CHECKING:
    from streamstate.magics.notebook_context import NotebookContext

Completes = Literal[
    "",
    "query",
    "relation",
    "table",
    "running",
    "column",
    "key",
    "epoch",
    "moment",
    "time",
    "where",
    "store",
    "checkpoint",
    "path",
    "variable",
    "frame",
    "code",
    "shared",
]
"""What to complete the value of an argument with."""

_WIDTH = 100
_QUOTED = r"""\"(?:[^\"\\]|\\.)*(?:\"|$)|'[^']*(?:'|$)|\\."""
_SQL = ("--where", "--until", "--edit")
"""Options whose values are SQL, in which braces and dollars are not expanded."""


class HelpShown(Exception):  # noqa: N818 (nothing went wrong)
    """Help was printed; the line has nothing more to do."""


@dataclass(frozen=True)
class Argument:
    """One argument of a magic, as completion sees it."""

    flags: tuple[str, ...]
    """The spellings of an option; empty for a positional argument."""
    completes: Completes
    choices: tuple[str, ...]
    values: int | None
    """The number of values that it takes; None for any number."""
    suggestions: tuple[str, ...] = ()
    """Values to suggest if others are valid too."""


@dataclass(frozen=True)
class Verb:
    """A subcommand of a magic, such as ``wait`` in ``%stream wait``."""

    name: str
    summary: str
    arguments: Callable[[MagicParser], None]
    run: Callable[[NotebookContext, argparse.Namespace], Any]
    python: str
    """The name in Python that does the same, below ``streamstate``."""


class MagicParser(argparse.ArgumentParser):
    """A parser that raises an error instead of ending the process, and knows how to complete its arguments.

    Args:
        prog: the magic as it is written, such as ``%state``.
        description: what it does (without a verb); lists show the first line.
        verbs: its verbs.
        before: what may precede a verb, such as ``NAME``.
        epilog: examples, shown as they are.
    """

    def __init__(
        self, prog: str, description: str, *, verbs: Sequence[Verb] = (), before: str = "", epilog: str = ""
    ) -> None:
        spelled = f"{prog} {before}".rstrip()
        listed = "".join(f"  {verb.name:9} {verb.summary}\n" for verb in verbs)
        listed = f"Verbs ({spelled} VERB --help explains a verb):\n{listed}\n" if verbs else ""
        super().__init__(
            prog=prog,
            description=description,
            epilog=f"{listed}{epilog}".rstrip() or None,
            add_help=False,
            allow_abbrev=False,
            formatter_class=functools.partial(argparse.RawDescriptionHelpFormatter, width=_WIDTH, max_help_position=28),
        )
        self.arguments: list[Argument] = []
        self.verbs: dict[str, MagicParser] = {}
        self.verb_places = (1, 0) if before else (0,)
        """The positions of a verb among the positional arguments."""
        self.add("--help", "-h", action=_ShowHelp, nargs=0, help="show this help")
        for verb in verbs:
            self.verbs[verb.name] = MagicParser(
                f"{spelled} {verb.name}", f"{verb.summary[0].upper()}{verb.summary[1:]}."
            )
            verb.arguments(self.verbs[verb.name])
            self.verbs[verb.name].set_defaults(verb=verb)

    def add(self, *flags: str, completes: Completes = "", suggestions: Sequence[str] = (), **options: Any) -> None:
        """Add an argument, and what to complete its value with."""
        action = self.add_argument(*flags, **options)
        several = None if action.nargs in ("*", "+") else 1
        count = action.nargs if isinstance(action.nargs, int) else several
        choices = tuple(str(choice) for choice in action.choices or ())
        self.arguments.append(Argument(tuple(action.option_strings), completes, choices, count, tuple(suggestions)))

    def parse_line(self, line: str, expand: Callable[[str], str] = str) -> argparse.Namespace:
        """The parsed line; ``verb`` is None if it has none.

        Args:
            line: the text after the magic's name, quoted as in a shell.
            expand: applied to every argument except SQL.
        """
        words = self.words(line, expand)
        at = self.verb_at(words)
        if at is None:
            return self.parse_args(words, argparse.Namespace(verb=None))
        verb, name = self.verbs[words[at]], argparse.Namespace(name=words[0] if at else None)
        # Words of a key may follow options. Help comes first: it needs no other argument.
        if {"--help", "-h"} & {*words}:
            return verb.parse_args(words[at + 1 :], name)
        return verb.parse_intermixed_args(words[at + 1 :], name)

    def words(self, line: str, expand: Callable[[str], str] = str) -> list[str]:
        """The line's words, unquoted and with variables expanded."""
        try:
            return _expanded(shlex.split(line), expand)
        except ValueError:
            raise InvalidArgumentError(
                f"{self.prog}: a quote is not closed: {_without_secrets(line)}\n"
                "Quote a value with spaces or quotes like this: --where \"carrier = 'UA'\""
            ) from None

    def verb_at(self, words: Sequence[str]) -> int | None:
        """The position of the verb among a line's words; None if there is none."""
        return next((at for at in self.verb_places if at < len(words) and words[at] in self.verbs), None)

    def error(self, message: str) -> NoReturn:
        """Raise what argparse found wrong, with what would be right."""
        raise InvalidArgumentError(f"{self.prog}: {self._explained(message)}\nSee {self.prog} --help.")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Refuse a value that is not one of the choices, and name them."""
        if action.choices is None or value in action.choices:
            return
        choices = [str(choice) for choice in action.choices]
        raise argparse.ArgumentError(
            action, f"invalid value {str(value)!r}: expected {', '.join(choices)}.{did_you_mean(value, choices)}"
        )

    def _explained(self, message: str) -> str:
        """A message of argparse, with the choices."""
        if found := re.fullmatch(r"argument ([^:]+): (.*)", message, re.DOTALL):
            return self._of_argument(found[1], found[2])
        if message.startswith("the following arguments are required: "):
            return self._missing(message.partition(": ")[2].split(", ")[0])
        if message.startswith("unrecognized arguments: "):
            return self._unrecognized(message.partition(": ")[2])
        return f"{message}."

    def _of_argument(self, name: str, problem: str) -> str:
        """Return a problem with one argument, and the argument's purpose."""
        action = self._action(name)
        if action is None or not problem.startswith(("expected", "ignored")):
            return f"{name}: {problem}" if problem.endswith((".", "?")) else f"{name}: {problem}."
        if problem.startswith("ignored"):
            return f"{name} takes no value: {action.help}."
        names = action.metavar if isinstance(action.metavar, tuple) else (action.metavar or str(action.dest).upper(),)
        return f"{name} {problem}: {name} {' '.join(names)}, {action.help}."

    def _missing(self, name: str) -> str:
        """A required argument that is missing."""
        action = self._action(name)
        assert action is not None  # argparse names one of ours
        value = f" {action.metavar}" if action.option_strings else ""
        return f"{name}{value} is missing: {action.help}."

    def _action(self, name: str) -> argparse.Action | None:
        """Return the argument that argparse calls by a name."""
        named = (known for known in self._actions if name in ("/".join(known.option_strings), known.metavar))
        return next(named, None)

    def _unrecognized(self, given: str) -> str:
        """Return a message for unknown words, with the nearest known one."""
        word = given.split(maxsplit=1)[0].partition("=")[0]  # a value may be a secret
        if word.startswith("--"):
            verbs = f" Verbs: {', '.join(self.verbs)}." if self.verbs else ""
            return f"{no_option(word, self, self.verbs)}{verbs}"
        if word in self.verbs:
            return f"options follow the verb: {self.verbs[word].prog} …."
        verbs = f"{did_you_mean(word, self.verbs)} Verbs: {', '.join(self.verbs)}." if self.verbs else ""
        return f"unexpected {word!r}.{verbs}\nA value with spaces needs quotes."


class _ShowHelp(argparse.Action):
    """Print the help and stop parsing."""

    def __call__(self, parser: argparse.ArgumentParser, *_rest: object) -> None:
        print(parser.format_help())
        raise HelpShown


def _expanded(words: list[str], expand: Callable[[str], str]) -> list[str]:
    """The words with Python variables expanded, except SQL."""
    before = ["", *words]
    return [
        word if previous in _SQL or word.startswith(tuple(f"{flag}=" for flag in _SQL)) else expand(word)
        for previous, word in zip(before, words, strict=False)
    ]


def _without_secrets(line: str) -> str:
    """The line without options of stores and sinks, which an error must not repeat; a quoted value may lack its end."""
    return re.sub(rf"(--(?:storage|sink)-option[\s=]+)(?:{_QUOTED}|\S)+", r"\1…", line)


def add_store(parser: MagicParser, help: str = "the store to read (default: the last store used)") -> None:  # noqa: A002 (argparse's word)
    """The options that name a store and say how to reach it."""
    parser.add("--store", metavar="DIR", completes="store", help=help)
    parser.add(
        "--storage-option",
        dest="storage_options",
        metavar="KEY=VALUE",
        action="append",
        type=option,
        help="an option of the object store, such as AWS_REGION=eu-central-1; may be repeated. Write secrets as "
        "{variable}, or set them in the environment: the text of a cell is saved with the notebook",
    )


def add_output(parser: MagicParser, help: str = "keep the value in a variable") -> None:  # noqa: A002 (argparse's word)
    """The option that keeps the value in a variable."""
    parser.add("-o", dest="output", metavar="VAR", type=identifier, completes="variable", help=help)
