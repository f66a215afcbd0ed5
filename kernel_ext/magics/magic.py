"""A magic: a parser for the line, and a function that runs it."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from IPython.core.magic import no_var_expand

from streamstate.errors import StreamStateError, wording
from streamstate.magics.arguments import HelpShown, MagicParser
from streamstate.magics.notebook_context import NotebookContext


@dataclass(frozen=True)
class Magic:
    """A line or cell magic."""

    kind: Literal["line", "cell"]
    name: str
    parser: MagicParser
    run: Callable[[NotebookContext, argparse.Namespace, str], Any]
    """Called with the notebook, the parsed line and the cell (empty for a line magic), unless the line has a verb."""
    python: tuple[str, ...]
    """The names in Python that do the same, below ``streamstate``."""
    sql: bool = False
    """Whether the cell is SQL over the store."""


def as_function(magic: Magic, notebook: NotebookContext) -> Callable[..., Any]:
    """The function to register with the shell; its docstring, which ``?`` shows, is the parser's help."""

    # IPython would expand variables in SQL as well; the parser expands them word by word.
    @no_var_expand
    def function(line: str, cell: str = "") -> Any:
        __tracebackhide__ = True
        try:
            with wording("magic"):
                args = magic.parser.parse_line(line, notebook.expand)
                return args.verb.run(notebook, args) if args.verb else magic.run(notebook, args, cell)
        except HelpShown:
            return None
        except StreamStateError as error:
            if notebook.settings.tracebacks:
                _show_traceback(error, notebook)
            raise

    function.__name__ = function.__qualname__ = magic.name
    function.__doc__ = magic.parser.format_help()
    return function


def _show_traceback(error: StreamStateError, notebook: NotebookContext) -> None:
    """Make IPython show this error with its traceback."""

    def render() -> list[str]:
        lines = notebook.shell.InteractiveTB.structured_traceback(type(error), error, error.__traceback__)
        return list(lines)

    error.__dict__["_render_traceback_"] = render
