"""Types of arguments that the magics and the commands share: each parses a word, or says what would be right."""

from __future__ import annotations

import argparse
import difflib
import math
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from streamstate.errors import InvalidArgumentError, UnknownColumnError
from streamstate.snapshots.calls.checks import byte_size, duration

if TYPE_CHECKING:
    from streamstate.state_inspect import History, Snapshot, StateTable

KEY_HELP = "the key, a value for each key column; a window by its start: window=2026-03-01T12:00Z"
AT_HELP = "12, live-10, or a time with its zone such as 2026-03-01T12:00+01:00"
_LAST_PORT = 65_535


def option(text: str) -> tuple[str, str]:
    """An argument that is an option of an object store."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        # The text may be the secret itself, so the message does not repeat it.
        raise argparse.ArgumentTypeError("invalid option: expected KEY=VALUE, such as AWS_REGION=eu-central-1")
    return key, value


def identifier(text: str) -> str:
    """An argument that names a Python variable."""
    if not text.isidentifier():
        raise argparse.ArgumentTypeError(f"invalid name {text!r}: expected the name of a Python variable")
    return text


def count(text: str) -> int:
    """An argument that is a positive integer."""
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"invalid number {text!r}: expected an integer of at least 1")
    return int(text)


def state_limit(text: str) -> int | str:
    """An argument that is a size in bytes with its unit, or a number of rows."""
    if text.isascii() and text.isdigit() and int(text):
        return int(text)
    if byte_size(text):
        return text
    raise argparse.ArgumentTypeError(f"invalid limit {text!r}: expected a size such as 10GB, or a number of rows")


def port(text: str) -> int:
    """An argument that is a port."""
    if text.isascii() and text.isdigit() and int(text) <= _LAST_PORT:
        return int(text)
    raise argparse.ArgumentTypeError(
        f"invalid port {text!r}: expected a number from 0 to {_LAST_PORT}; 0 chooses a free one"
    )


def every(text: str) -> int | str:
    """An argument that is a number of epochs, or a span of time."""
    span = duration(text)
    whole = text.isascii() and text.isdigit()
    if (whole and int(text) >= 1) or span:
        return text if span else int(text)
    raise argparse.ArgumentTypeError(
        f"invalid pace {text!r}: expected a number of epochs, at least 1, or a span of time such as 10s or 2m"
    )


def seconds(text: str) -> float:
    """An argument that is a number of seconds."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number) or number < 0:
        raise argparse.ArgumentTypeError(f"invalid time {text!r}: expected a number of seconds, such as 30 or 0.5")
    return number


def epoch(text: str) -> int:
    """An argument that is the number of an epoch."""
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f"invalid epoch {text!r}: expected its number; %snapshots NAME lists them")
    return int(text)


def epochs(text: str) -> str:
    """An argument that is a range of epochs: ``A..B``, ``A..`` or ``..B``."""
    from streamstate.snapshots.calls.epoch_range import epoch_span

    try:
        epoch_span(text, ())
    except InvalidArgumentError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def past_epoch(text: str) -> int | str:
    """An argument that is an epoch: its number, or text for the library to judge, such as ``live-10``."""
    return int(text) if text.isascii() and text.isdigit() else text


def epoch_or_epochs(text: str) -> int | str:
    """An argument that is an epoch, as :func:`past_epoch` reads it, or a range of epochs."""
    return epochs(text) if ".." in text else past_epoch(text)


def epoch_or_time(text: str) -> int | str | datetime:
    """An argument that is an epoch or a time, whose zone is an offset or a name: ``2026-03-01 12:00 Europe/Rome``."""
    from streamstate.state_inspect.epoch_names import FromLive, moment

    written, _, zone = text.strip().rpartition(" ")
    named = written[:4].isdigit() and zone[:1].isalpha()
    try:
        found = datetime.fromisoformat(written).replace(tzinfo=ZoneInfo(zone)) if named else moment(text)
    except InvalidArgumentError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    except (ValueError, LookupError, OSError) as error:  # ZoneInfo looks for a file with the zone's name
        raise argparse.ArgumentTypeError(
            f"invalid time {text!r}: {error}. Expected a time such as 2026-03-01T12:00+01:00 or"
            " '2026-03-01 12:00 Europe/Rome'."
        ) from None
    return text if isinstance(found, FromLive) else found


def key_of(state: StateTable, words: Sequence[str], given: argparse.Namespace, **how: Any) -> dict[str, Any]:
    """Return the key that the words of a line name; the error about an unknown column lists the options too."""
    try:
        return state.table_key.read(words, **how)
    except UnknownColumnError as error:
        raise error.with_options(flag for flag in flags_of(given.parser) if flag != "--help") from None


def flags_of(parser: argparse.ArgumentParser) -> list[str]:
    """Return the options of a parser, without their short forms."""
    return [flag for flag in parser._option_string_actions if flag.startswith("--")]  # noqa: SLF001 (as --help)


def no_option(word: str, parser: argparse.ArgumentParser, more: Iterable[str] = ()) -> str:
    """Return a message about an option that does not exist, with the nearest option, or word of ``more``."""
    flags = flags_of(parser)
    return f"there is no option {word}.{did_you_mean(word, [*flags, *more])}\nOptions: {', '.join(flags)}."


def did_you_mean(given: object, known: Iterable[str]) -> str:
    """Return a question with the name nearest to the one given, after a space; empty if none is near."""
    near = difflib.get_close_matches(str(given), list(known), n=1)
    return f" Did you mean {near[0]}?" if near else ""


def snapshot_at(history: History, at: int | str | datetime) -> Snapshot:
    """Return the snapshot at an epoch or a time that :func:`epoch_or_time` has read."""
    return history.at(timestamp=at) if isinstance(at, datetime) else history.at(at)
