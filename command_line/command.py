"""The class of a command of ``streamstate``, and the exit statuses."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Callable
from dataclasses import dataclass

FINE, FAILED, USAGE, WARNINGS, INTERRUPTED = 0, 1, 2, 3, 130
MORE_WORDS = "words"
"""An argument that takes all words that follow, also after options."""

STATUSES = f"""\
Exit status:
  {FINE}    done
  {FAILED}    an error, explained on standard error; check: the code cannot continue, or means something else
  {USAGE}    invalid options or arguments
  {WARNINGS}    doctor: the query can be captured, but there are warnings
  {INTERRUPTED}  interrupted with Ctrl+C"""


@dataclass(frozen=True)
class Command:
    """One command."""

    name: str
    summary: str
    """What it does, in a few words for the list of commands."""
    description: str
    """What it does, in paragraphs."""
    examples: str
    """Command lines, one a line."""
    arguments: Callable[[argparse.ArgumentParser], None]
    """Adds its arguments to its parser."""
    run: Callable[[argparse.Namespace], int]
    """Runs it and returns its exit status. Raises a ``StreamStateError`` if it fails."""
    python: tuple[str, ...]
    """The names in Python that do the same, below ``streamstate``."""

    def add_to(self, commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
        """Register the command with the parser of all of them."""
        lines = "".join(f"  {line.strip()}\n" for line in self.examples.strip().splitlines())
        parser = commands.add_parser(
            self.name,
            help=self.summary,
            description="\n\n".join(textwrap.fill(text, 80) for text in self.description.split("\n\n")),
            epilog=f"Examples:\n{lines}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        self.arguments(parser)
        parser.set_defaults(run=self.run, parser=parser)
