"""The command ``streamstate``: captures, looks at and looks after stores, in a terminal or as a service."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import NoReturn

from streamstate import __version__
from streamstate.command_line.argument_types import no_option
from streamstate.command_line.capture import CAPTURE
from streamstate.command_line.check import CHECK
from streamstate.command_line.command import FAILED, FINE, INTERRUPTED, MORE_WORDS, STATUSES
from streamstate.command_line.compact import COMPACT
from streamstate.command_line.diff import DIFF
from streamstate.command_line.doctor import DOCTOR
from streamstate.command_line.epochs import EPOCHS
from streamstate.command_line.export import EXPORT
from streamstate.command_line.find import FIND
from streamstate.command_line.follow import FOLLOW
from streamstate.command_line.fork import FORK
from streamstate.command_line.inputs import INPUTS
from streamstate.command_line.key import KEY
from streamstate.command_line.late import LATE
from streamstate.command_line.load import LOAD
from streamstate.command_line.ls import LS
from streamstate.command_line.migrate import MIGRATE
from streamstate.command_line.restore import RESTORE
from streamstate.command_line.retain import RETAIN
from streamstate.command_line.serve import SERVE
from streamstate.command_line.share import SHARE
from streamstate.command_line.show import SHOW
from streamstate.command_line.sql import SQL
from streamstate.command_line.standby import STANDBY
from streamstate.command_line.why import WHY
from streamstate.command_line.why_policy import WHY_POLICY
from streamstate.errors import StreamStateError, wording
from streamstate.snapshots.calls.progress_callback import ProgressCallback, set_progress_display
from streamstate.snapshots.spark.connect import leave_connect
from streamstate.snapshots.spark.interrupted_calls import own_interrupt

COMMANDS = (
    *(FIND, DOCTOR, EPOCHS, CHECK, MIGRATE, FORK, CAPTURE, FOLLOW),
    *(LS, SHOW, SQL, DIFF, KEY, WHY, INPUTS, LATE, LOAD, WHY_POLICY),
    *(RETAIN, COMPACT, EXPORT, RESTORE, SERVE, SHARE, STANDBY),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command of the process or the one given, and return its exit status."""
    with wording("command"):
        given = _parsed(arguments)
    leave_connect()
    before = set_progress_display(_display)
    try:
        with own_interrupt(), wording("command"):
            status = int(given.run(given))
        sys.stdout.flush()
    except StreamStateError as error:
        print(f"streamstate: {error}", file=sys.stderr)
        return FAILED
    except BrokenPipeError:
        # Whoever read the output has seen enough, as `head` has. Python would complain when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FINE
    except KeyboardInterrupt as interrupt:
        print(f"\nInterrupted. {interrupt}".rstrip(), file=sys.stderr)
        return INTERRUPTED
    finally:
        set_progress_display(before)
    return status


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse the arguments. argparse ends a key at the first option; here its words may follow one."""
    given, rest = parser().parse_known_args(arguments)
    if rest and (any(word.startswith("-") for word in rest) or not isinstance(getattr(given, MORE_WORDS, None), list)):
        _unrecognized(given.parser, rest)
    if rest:
        getattr(given, MORE_WORDS).extend(rest)
    return given


def _unrecognized(command: argparse.ArgumentParser, words: Sequence[str]) -> NoReturn:
    """Exit with an error of the command, with its options."""
    wrong = next((word for word in words if word.startswith("--")), None)
    command.error(f"unexpected {' '.join(words)!r}" if wrong is None else no_option(wrong.partition("=")[0], command))


def _display(call: str, interrupted: str) -> AbstractContextManager[ProgressCallback]:
    """Display long calls on standard error, if that is a terminal."""
    from streamstate.widgets.progress import shown_in_terminal

    return shown_in_terminal(call, interrupted)


def parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    all_commands = argparse.ArgumentParser(
        prog="streamstate",
        description="Explore the state of Spark streaming queries. `streamstate COMMAND --help` has examples.",
        epilog=STATUSES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    all_commands.add_argument("--version", action="version", version=__version__)
    commands = all_commands.add_subparsers(required=True, metavar="COMMAND", dest="command")
    for command in COMMANDS:
        command.add_to(commands)
    return all_commands
