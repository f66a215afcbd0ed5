"""``%load_ext streamstate`` and ``%unload_ext streamstate``."""

from __future__ import annotations

import atexit
import re
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from streamstate import displays
from streamstate.magics.completion import make_matcher
from streamstate.magics.magic import as_function
from streamstate.magics.notebook import Notebook
from streamstate.magics.running import ACTIVE
from streamstate.magics.snapshots_line import SNAPSHOTS
from streamstate.magics.state import STATE
from streamstate.magics.statesql import STATESQL
from streamstate.magics.stream_cell import STREAM_CELL
from streamstate.magics.stream_line import STREAM_LINE

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

__all__ = ["MAGICS", "TRANSFORMERS", "Extension", "load", "loaded", "unload"]

MAGICS = (STREAM_CELL, STREAM_LINE, STATE, STATESQL, SNAPSHOTS)

_loaded: dict[int, Extension] = {}


def load(shell: InteractiveShell) -> None:
    """Register the magics with a shell; loading again changes nothing."""
    if loaded(shell) is None:
        _loaded[id(shell)] = Extension(shell)


def unload(shell: InteractiveShell) -> None:
    """Stop the queries that the magics started and every capture, and take the magics away.

    The Spark session stays as it is, and so do the user's variables.
    """
    extension = _loaded.pop(id(shell), None)
    if extension is not None:
        extension.close()


def loaded(shell: InteractiveShell) -> Extension | None:
    """What was registered with a shell; None where nothing is."""
    return _loaded.get(id(shell))


class Extension:
    """Everything that was registered with one shell, to be taken back together."""

    def __init__(self, shell: InteractiveShell) -> None:
        self.shell = shell
        self.notebook = Notebook(shell)
        self._matcher = make_matcher(self.notebook, MAGICS)
        registry: Any = shell  # IPython is not typed
        for magic in MAGICS:
            registry.register_magic_function(as_function(magic, self.notebook), magic.kind, magic.name)
        registry.configurables.append(self.notebook.settings)
        shell.Completer.custom_matchers.append(self._matcher)
        shell.input_transformers_cleanup.extend(TRANSFORMERS)
        displays.register(shell)
        atexit.register(self._close_quietly)

    def close(self) -> None:
        """Take everything back, and say what was stopped."""
        atexit.unregister(self._close_quietly)
        self._unregister()
        stopped = [one.name for one in self.notebook.running.values() if one.state in ACTIVE]
        trouble = self.notebook.close()
        _close_widgets()
        if stopped:
            print(f"Stopped: {', '.join(stopped)}. The Spark session stays.")
        for line in trouble:
            print(line)

    def _close_quietly(self) -> None:
        """At the end of the process there is nobody left to tell."""
        self.notebook.close()

    def _unregister(self) -> None:
        """Take back what was registered."""
        for magic in MAGICS:
            self.shell.magics_manager.magics[magic.kind].pop(magic.name, None)
        _remove(self.shell.configurables, self.notebook.settings)
        _remove(self.shell.Completer.custom_matchers, self._matcher)
        for transformer in TRANSFORMERS:
            _remove(self.shell.input_transformers_cleanup, transformer)
        displays.unregister(self.shell)


def keep_empty_cell(lines: list[str]) -> list[str]:
    """Give a cell magic of ours that stands alone an empty line to run.

    IPython refuses a cell magic without a cell before asking it, also where it asks for ``--help``.
    """
    ours = tuple(f"%%{magic.name}" for magic in MAGICS if magic.kind == "cell")
    if len(lines) == 1 and lines[0].split(maxsplit=1)[:1] in [[name] for name in ours]:
        return [*lines, "\n"]
    return lines


def ask_for_help(lines: list[str]) -> list[str]:
    """Make ``%stream wait?`` ask for the verb's help; IPython would look for an object called ``wait``.

    A magic's name alone, as in ``%state?``, is left to IPython, which shows the same help in its own way.
    """
    if len(lines) != 1 or (asked := _ASKED.fullmatch(lines[0].strip())) is None:
        return lines
    return [f"{asked['line']} --help\n", "\n"] if asked["line"].startswith("%%") else [f"{asked['line']} --help\n"]


_NAMES = "|".join(sorted({magic.name for magic in MAGICS}))
_ASKED = re.compile(rf"(?P<line>%{{1,2}}(?:{_NAMES})\s+[^?'\"]*[^?'\"\s])\s*\?{{1,2}}")

TRANSFORMERS = (keep_empty_cell, ask_for_help)


def _remove(items: list[Any], item: Any) -> None:
    """Remove one object, by identity."""
    items[:] = [one for one in items if one is not item]


def _close_widgets() -> None:
    """Close the widgets that are open; none are where the package was never loaded."""
    widgets = sys.modules.get("streamstate.widgets")
    close_all: Callable[[], None] | None = getattr(widgets, "close_all", None)
    if close_all is not None:
        close_all()
