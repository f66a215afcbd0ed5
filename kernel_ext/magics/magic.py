"""A magic: a parser for its line and a function for what it does."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from IPython.core.magic import no_var_expand

from streamstate.magics.arguments import HelpShown, MagicParser
from streamstate.snapshots.errors import StreamStateError

if TYPE_CHECKING:
    from streamstate.magics.notebook import Notebook

__all__ = ["Magic", "as_function"]


@dataclass(frozen=True)
class Magic:
    """One spelling of a magic."""

    kind: Literal["line", "cell"]
    name: str
    parser: MagicParser
    run: Callable[[Notebook, argparse.Namespace, str], Any]
    """Called with the notebook, the line's arguments and the cell (empty for a line)."""
    sql: bool = False
    """The cell below is SQL over the store."""


def as_function(magic: Magic, notebook: Notebook) -> Callable[..., Any]:
    """The function to register with the shell; its docstring, which ``?`` shows, is the parser's help."""

    # IPython would fill variables into SQL too; the parser does it, word by word.
    @no_var_expand
    def function(line: str, cell: str = "") -> Any:
        __tracebackhide__ = True
        try:
            return magic.run(notebook, magic.parser.parse_line(line, notebook.expand), cell)
        except HelpShown:
            return None
        except StreamStateError as error:
            if notebook.settings.tracebacks:
                _show_traceback(error, notebook)
            raise

    function.__name__ = function.__qualname__ = magic.name
    function.__doc__ = magic.parser.format_help()
    return function


def _show_traceback(error: StreamStateError, notebook: Notebook) -> None:
    """Let IPython show the error as any other one."""

    def render() -> list[str]:
        shown = notebook.shell.InteractiveTB.structured_traceback(type(error), error, error.__traceback__)
        return list(shown)

    error.__dict__["_render_traceback_"] = render  # for this one error
