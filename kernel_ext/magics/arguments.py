"""What the magics' lines are parsed with: argparse, with errors and help that suit a notebook."""

from __future__ import annotations

import argparse
import difflib
import functools
import math
import re
import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NoReturn

from streamstate.snapshots.durations import duration
from streamstate.snapshots.errors import InvalidArgumentError

__all__ = [
    "Argument",
    "Completes",
    "HelpShown",
    "MagicParser",
    "VerbParser",
    "add_output",
    "add_store",
    "count",
    "epoch",
    "every",
    "identifier",
    "past_epoch",
    "port",
    "seconds",
]

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
]
"""What the value of an argument is completed with."""

_WIDTH = 100
_SQL = ("--where", "--until", "--edit")
"""Options whose values are SQL: braces and dollars in them are its own."""


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
    suggestions: tuple[str, ...] = ()
    """Values worth naming of one that takes others too."""


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

    def add(self, *flags: str, completes: Completes = "", suggestions: Sequence[str] = (), **options: Any) -> None:
        """``add_argument``, and what the value is completed with: a kind of name, or some of what it may be."""
        action = self.add_argument(*flags, **options)
        default = 1 if action.nargs in (None, "?") else 0
        count = action.nargs if isinstance(action.nargs, int) else default
        offered = tuple(str(choice) for choice in action.choices or ())
        self.arguments.append(Argument(tuple(action.option_strings), completes, offered, count, tuple(suggestions)))

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
                f"{self.prog}: a quote in this line is not closed: {_without_secrets(line)}\n"
                "Write a value that has quotes or spaces in it like this: --where \"carrier = 'UA'\""
            ) from None

    def error(self, message: str) -> NoReturn:
        """Raise what argparse found wrong, with what would be right."""
        raise InvalidArgumentError(f"{self.prog}: {self._said(message)}\n{self.prog} --help explains them.")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Refuse what is none of an argument's choices, naming them."""
        if action.choices is None or value in action.choices:
            return
        known = [str(one) for one in action.choices]
        raise argparse.ArgumentError(action, f"{str(value)!r} is none of {', '.join(known)}.{_meant(value, known)}")

    def _said(self, message: str) -> str:
        """What argparse says, in words that name the choices."""
        if found := re.fullmatch(r"argument ([^:]+): (.*)", message, re.DOTALL):
            return self._of_argument(found[1], found[2])
        if message.startswith("the following arguments are required: "):
            return self._missing(message.partition(": ")[2].split(", ")[0])
        if message.startswith("unrecognized arguments: "):
            return self._unrecognized(message.partition(": ")[2])
        return f"{message}."

    def _of_argument(self, name: str, problem: str) -> str:
        """A problem with one argument, with what it is for."""
        action = next((one for one in self._actions if name in ("/".join(one.option_strings), one.metavar)), None)
        if action is None or not problem.startswith(("expected", "ignored")):
            return f"{name}: {problem}" if problem.endswith((".", "?")) else f"{name}: {problem}."
        if problem.startswith("ignored"):
            return f"{name} takes no value: {action.help}."
        names = action.metavar if isinstance(action.metavar, tuple) else (action.metavar or str(action.dest).upper(),)
        return f"{name} {problem}: {name} {' '.join(names)}, {action.help}."

    def _missing(self, name: str) -> str:
        """What has to stand on the line and does not."""
        action = next((one for one in self._actions if one.metavar == name), None)
        return f"{name} is missing: {action.help}." if action is not None and action.help else f"{name} is missing."

    def _unrecognized(self, given: str) -> str:
        """Words that belong to nothing, and what was probably meant."""
        word = given.split(maxsplit=1)[0].partition("=")[0]  # a value may be a secret
        flags = [flag for argument in self.arguments for flag in argument.flags if flag.startswith("--")]
        if word.startswith("--"):
            return f"there is no option {word}.{_meant(word, flags)}\nOptions: {', '.join(flags)}."
        if self.verbs:
            found = f"what {word!r} means here is not clear.{_meant(word, self.verbs)} Verbs: {', '.join(self.verbs)}."
            return f"{found}\nA value with spaces in it needs quotes around it."
        return f"what {word!r} belongs to is not clear.\nA value with spaces in it needs quotes around it."


class VerbParser(MagicParser):
    """A parser of lines that may have a verb; what may stand before that is a query's name.

    Args:
        prog: how the magic is spelled.
        description: what it does without a verb.
        verbs: name, summary and arguments of each.
        before: what stands between the magic and its verb in help: ``NAME`` or nothing.
        epilog: examples.
    """

    def __init__(
        self,
        prog: str,
        description: str,
        *,
        verbs: Sequence[tuple[str, str, Callable[[MagicParser], None]]],
        before: str = "",
        epilog: str = "",
    ) -> None:
        spelled = f"{prog} {before}".rstrip()
        listed = "".join(f"  {name:9} {summary}\n" for name, summary, _ in verbs)
        super().__init__(
            prog, description, epilog=f"Verbs ({spelled} VERB --help explains one):\n{listed}\n{epilog}".rstrip()
        )
        self.verb_places = (1, 0) if before else (0,)
        for name, summary, arguments in verbs:
            added = MagicParser(f"{spelled} {name}", f"{summary[0].upper()}{summary[1:]}.")
            arguments(added)
            self.verbs[name] = added

    def verb_at(self, words: Sequence[str]) -> int | None:
        """Where among the words the verb stands."""
        return next((at for at in self.verb_places if at < len(words) and words[at] in self.verbs), None)

    def parse_line(self, line: str, expand: Callable[[str], str] = str) -> argparse.Namespace:
        """The line's arguments; ``verb`` is None where it has none."""
        words = self.words(line, expand)
        at = self.verb_at(words)
        if at is None:
            return self.parse_args(words, argparse.Namespace(verb=None))
        known = argparse.Namespace(verb=words[at], name=words[0] if at else None)
        return self.verbs[words[at]].parse_args([*words[at + 1 :]], known)


def _meant(given: object, known: Iterable[str]) -> str:
    """The one that was probably meant."""
    near = difflib.get_close_matches(str(given), list(known), n=1)
    return f" Did you mean {near[0]}?" if near else ""


class _ShowHelp(argparse.Action):
    """Print the help and stop reading the line."""

    def __call__(self, parser: argparse.ArgumentParser, *_rest: object) -> None:
        print(parser.format_help())
        raise HelpShown


def _expanded(words: list[str], expand: Callable[[str], str]) -> list[str]:
    """The words with Python variables filled in, SQL left as it was written."""
    before = ["", *words]
    return [
        word if previous in _SQL or word.startswith(tuple(f"{flag}=" for flag in _SQL)) else expand(word)
        for previous, word in zip(before, words, strict=False)
    ]


def _without_secrets(line: str) -> str:
    """The line without what an error should not repeat."""
    return re.sub(r"(--storage-option[\s=]+)\S+", r"\1…", line)


def add_store(parser: MagicParser, help: str = "the store to read (default: the last store used)") -> None:  # noqa: A002 (argparse's word)
    """The options that say which store is meant, and how to reach it."""
    parser.add("--store", metavar="DIR", completes="store", help=help)
    parser.add(
        "--storage-option",
        dest="storage_options",
        metavar="KEY=VALUE",
        action="append",
        type=_option,
        help="how to reach a store in an object store, such as AWS_REGION=eu-central-1; may be repeated. Write secrets "
        "as {variable}, or leave them to the environment: what stands in a cell is saved with it",
    )


def add_output(parser: MagicParser, help: str = "keep the value in a variable") -> None:  # noqa: A002 (argparse's word)
    """The option that keeps what a line gives."""
    parser.add("-o", dest="output", metavar="VAR", type=identifier, completes="variable", help=help)


def _option(text: str) -> tuple[str, str]:
    """An argument that is an option of an object store."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        # What was given may be the secret itself: it is not repeated.
        raise argparse.ArgumentTypeError("this is not KEY=VALUE, such as AWS_REGION=eu-central-1")
    return key, value


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


def port(text: str) -> int:
    """An argument that is a port which anybody may listen at."""
    if not text.isascii() or not text.isdigit() or not 1024 <= int(text) <= 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port from 1024 to 65535")
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


def seconds(text: str) -> float:
    """An argument that is a length of time in seconds."""
    try:
        given = float(text)
    except ValueError:
        given = math.nan
    if not math.isfinite(given) or given < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds, such as 30 or 0.5")
    return given


def epoch(text: str) -> int:
    """An argument that is the number of an epoch."""
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not the number of an epoch; %snapshots NAME lists them")
    return int(text)


def past_epoch(text: str) -> int | str:
    """An argument that names an epoch by its number, or by how far back it is from the newest: ``live-10``."""
    from streamstate.state_inspect.moments import FromLive, epoch_named

    if isinstance(epoch_named(text), FromLive):
        return text
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(
            f"{text!r} is not the number of an epoch, nor live, nor live-10; %snapshots NAME lists them"
        )
    return int(text)
