"""What the magics' lines are parsed with: argparse, with errors and help that suit a notebook."""

from __future__ import annotations

import argparse
import difflib
import functools
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NoReturn

from streamstate.snapshots.durations import duration
from streamstate.snapshots.errors import InvalidArgumentError, choices

__all__ = ["Argument", "Completes", "HelpShown", "MagicParser", "count", "epoch", "every", "identifier"]

Completes = Literal["", "query", "relation", "running", "column", "key", "epoch", "path"]
"""What the value of an argument is completed with."""

_WIDTH = 100


class HelpShown(Exception):  # noqa: N818 (nothing went wrong)
    """The line asked for help, and it was printed: there is nothing more to do."""


@dataclass(frozen=True)
class Argument:
    """One argument of a magic, as completion sees it."""

    flags: tuple[str, ...]
    """How it is spelled; empty where its place tells what it is."""
    completes: Completes
    choices: tuple[str, ...]
    values: int
    """How many values it takes; for one known by its place, 0 means any number."""


class MagicParser(argparse.ArgumentParser):
    """A parser that raises where argparse would end the process, and that knows what completes its arguments.

    Args:
        prog: how the magic is spelled.
        description: what it does; the first line is shown in lists.
        epilog: examples, shown as they are.
    """

    def __init__(self, prog: str, description: str, *, epilog: str = "") -> None:
        super().__init__(
            prog=prog,
            description=description,
            epilog=epilog or None,
            add_help=False,
            allow_abbrev=False,
            formatter_class=functools.partial(argparse.RawDescriptionHelpFormatter, width=_WIDTH, max_help_position=28),
        )
        self.arguments: list[Argument] = []
        self.verbs: dict[str, MagicParser] = {}
        self.verb_places: tuple[int, ...] = (0,)
        """After how many words that are no options a verb may stand."""
        self.add("--help", "-h", action=_ShowHelp, nargs=0, help="show this and do nothing else")

    def add(self, *flags: str, completes: Completes = "", **options: Any) -> None:
        """``add_argument``, and what the value is completed with."""
        action = self.add_argument(*flags, **options)
        default = 1 if action.nargs in (None, "?") else 0
        count = action.nargs if isinstance(action.nargs, int) else default
        offered = tuple(str(choice) for choice in action.choices or ())
        self.arguments.append(Argument(tuple(action.option_strings), completes, offered, count))

    def parse_line(self, line: str, expand: Callable[[str], str] = str) -> argparse.Namespace:
        """The line's arguments.

        Args:
            line: what stands after the magic's name, quoted as in a shell.
            expand: applied to every argument but SQL, whose braces and dollars are its own.

        Raises:
            InvalidArgumentError: the line cannot be meant; the message names the choices.
            HelpShown: the line asked for help.
        """
        return self.parse_args(self.words(line, expand))

    def words(self, line: str, expand: Callable[[str], str] = str) -> list[str]:
        """The line's words, quotes taken off and variables filled in."""
        return _expanded(self._split(line), expand)

    def verb_at(self, words: Sequence[str]) -> int | None:
        """Where among a line's words its verb stands; None where there is none."""
        return 0 if words and words[0] in self.verbs else None

    def _split(self, line: str) -> list[str]:
        """The line in words, quotes taken off."""
        try:
            return shlex.split(line)
        except ValueError:
            raise InvalidArgumentError(
                f"{self.prog}: a quote in this line is not closed: {line}\n"
                "Write a value that has quotes or spaces in it like this: --where \"carrier = 'UA'\""
            ) from None

    def error(self, message: str) -> NoReturn:
        """Raise what argparse found wrong, with what would be right."""
        raise InvalidArgumentError(f"{self.prog}: {message}.{self._hint(message)}\n{self.prog} --help explains them.")

    def _hint(self, message: str) -> str:
        """The choices there are, and the one that was probably meant."""
        if not message.startswith("unrecognized arguments"):
            return f"\nUsage: {' '.join(self.format_usage().split()[1:])}"
        given = message.partition(": ")[2].split()
        flags = [flag for argument in self.arguments for flag in argument.flags if flag.startswith("--")]
        near = difflib.get_close_matches(given[0], flags, n=1)
        meant = f" Did you mean {near[0]}?" if near else ""
        return f"{meant}\nOptions: {choices(flags)}. A value with spaces in it needs quotes around it."


class _ShowHelp(argparse.Action):
    """Print the help and stop reading the line."""

    def __call__(self, parser: argparse.ArgumentParser, *_rest: object) -> None:
        print(parser.format_help())
        raise HelpShown


def _expanded(words: list[str], expand: Callable[[str], str]) -> list[str]:
    """The words with Python variables filled in, SQL left as it was written."""
    before = ["", *words]
    return [
        word if previous == "--where" or word.startswith("--where=") else expand(word)
        for previous, word in zip(before, words, strict=False)
    ]


def identifier(text: str) -> str:
    """An argument that names a Python variable."""
    if not text.isidentifier():
        raise argparse.ArgumentTypeError(f"{text!r} is not a name that a Python variable can have")
    return text


def count(text: str) -> int:
    """An argument that is a positive number."""
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 on")
    return int(text)


def every(text: str) -> int | str:
    """An argument that is a positive number of epochs, or a span of time."""
    span = duration(text)
    if span is None:
        try:
            return count(text)
        except argparse.ArgumentTypeError as error:
            raise argparse.ArgumentTypeError(f"{error}, nor a span of time such as 10s or 2m") from None
    if not span:
        raise argparse.ArgumentTypeError(f"{text!r} is no time at all")
    return text


def epoch(text: str) -> int:
    """An argument that is the number of an epoch."""
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not the number of an epoch; %snapshots NAME lists them")
    return int(text)


def past_epoch(text: str) -> int | str:
    """An argument that names an epoch by its number, or by how far back it is from the newest: ``live-10``."""
    from streamstate.state_inspect.moments import FromLive, epoch_named

    return text if isinstance(epoch_named(text), FromLive) else epoch(text)
