"""``%load_ext streamstate`` and ``%unload_ext streamstate``."""

from __future__ import annotations

import atexit
import re
import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from streamstate.launch.running import ACTIVE
from streamstate.magics.completion import make_matcher
from streamstate.magics.magic import as_function
from streamstate.magics.notebook_context import NotebookContext
from streamstate.magics.shared import SHARED
from streamstate.magics.snapshots import SNAPSHOTS
from streamstate.magics.state import STATE
from streamstate.magics.statesql import STATESQL
from streamstate.magics.stream import STREAM_LINE
from streamstate.magics.stream_cell import STREAM_CELL
from streamstate.snapshots.checkpoint.bindings import SHARED as SHARED_VARIABLES

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

MAGICS = (STREAM_CELL, STREAM_LINE, STATE, STATESQL, SNAPSHOTS, SHARED)

_loaded: dict[int, Extension] = {}


def load(shell: InteractiveShell) -> None:
    """Register the magics with a shell; loading them again changes nothing."""
    if loaded(shell) is None:
        _loaded[id(shell)] = Extension(shell)


def unload(shell: InteractiveShell) -> None:
    """Stop every capture and the queries that the magics started, and remove the magics.

    The Spark session and the user's variables stay.
    """
    extension = _loaded.pop(id(shell), None)
    if extension is not None:
        extension.close()


def loaded(shell: InteractiveShell) -> Extension | None:
    """The extension of a shell; None if it is not loaded."""
    return _loaded.get(id(shell))


class Extension:
    """Everything that is registered with one shell."""

    def __init__(self, shell: InteractiveShell) -> None:
        self.shell = shell
        self.notebook = NotebookContext(shell)
        self._matcher = make_matcher(self.notebook, MAGICS)
        registry: Any = shell  # IPython is not typed
        for magic in MAGICS:
            registry.register_magic_function(as_function(magic, self.notebook), magic.kind, magic.name)
        registry.configurables.append(self.notebook.settings)
        shell.Completer.custom_matchers.append(self._matcher)
        shell.input_transformers_cleanup.extend(TRANSFORMERS)
        if hasattr(shell, "kernel"):
            for (module, name), view in _VIEWS.items():
                _view_formatter(shell).for_type_by_name(module, name, partial(_show, view))
        atexit.register(self.notebook.close)

    def close(self) -> None:
        """Unregister everything, and report what was stopped."""
        atexit.unregister(self.notebook.close)
        self._unregister()
        stopped = [running.name for running in self.notebook.running.values() if running.state in ACTIVE]
        problems = self.notebook.close()
        if "streamstate.widgets.live.hosts" in sys.modules:  # if not, no view was ever open
            sys.modules["streamstate.widgets.live.hosts"].hang_up()
        if stopped:
            print(f"Stopped: {', '.join(stopped)}. The Spark session stays.")
        for line in problems:
            print(line)

    def _unregister(self) -> None:
        for magic in MAGICS:
            self.shell.magics_manager.magics[magic.kind].pop(magic.name, None)
        _remove(self.shell.configurables, self.notebook.settings)
        _remove(self.shell.Completer.custom_matchers, self._matcher)
        for transformer in TRANSFORMERS:
            _remove(self.shell.input_transformers_cleanup, transformer)
        for module, name in _VIEWS:
            _view_formatter(self.shell).pop(f"{module}.{name}", None)


def keep_empty_cell(lines: list[str]) -> list[str]:
    """Give a cell magic of ours without a cell an empty line to run.

    IPython refuses a cell magic without a cell before calling it, even with ``--help``.
    """
    ours = tuple(f"%%{magic.name}" for magic in MAGICS if magic.kind == "cell")
    if len(lines) == 1 and lines[0].split(maxsplit=1)[:1] in [[name] for name in ours]:
        return [*lines, "\n"]
    return lines


def ask_for_help(lines: list[str]) -> list[str]:
    """Make ``%stream wait?`` show the verb's help; IPython would look for an object named ``wait``.

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
    items[:] = [kept for kept in items if kept is not item]


def _diff_view(views: Any, diff: Any) -> object:
    a, b = diff.sides or (diff.history, None)
    return views.DiffView(a, diff.a, diff.b, diff.table, other=b)


def _running_view(_views: Any, running: Any) -> object:
    from streamstate.launch.running_view import RunningView

    return RunningView(running)


def _history_view(views: Any, history: Any) -> object:
    is_variable = history.name.startswith(f"{SHARED_VARIABLES}.")
    return views.VariableView(history) if is_variable else views.Timeline(history)


# The views that public objects show at the end of a notebook's cell; in a terminal they are shown as text. The objects
# do not know about notebooks, and are named here, so that the engines that read state are not loaded for them. Each
# function is called with the package of the views and the object.
_VIEWS: dict[tuple[str, str], Callable[[Any, Any], object]] = {
    ("streamstate.state_inspect.store", "Store"): lambda views, store: views.StoreOverview(store),
    ("streamstate.state_inspect.history", "History"): _history_view,
    ("streamstate.state_inspect.snapshot", "Snapshot"): lambda views, snapshot: views.StateBrowser(
        snapshot.history, epoch=snapshot.epoch
    ),
    ("streamstate.state_inspect.state_table", "StateTable"): lambda views, table: views.StateBrowser(
        table.history, table.name, epoch=table.epoch
    ),
    ("streamstate.state_inspect.differences.diff", "Diff"): _diff_view,
    ("streamstate.state_inspect.branches.comparison", "Comparison"): lambda views, found: views.ComparisonView(found),
    ("streamstate.replay.replay", "Replay"): lambda views, replay: views.ComparisonView(replay.comparison),
    ("streamstate.variables.shared_variable", "SharedVariable"): lambda views, variable: views.VariableView(variable),
    ("streamstate.launch.running", "Running"): _running_view,
    ("streamstate.replay.debugging.session", "DebugSession"): lambda views, session: views.Debugger(session),
}


def _show(view: Callable[[Any, Any], object], shown: Any) -> None:
    from IPython.display import display

    from streamstate import widgets

    display(view(widgets, shown))


def _view_formatter(shell: InteractiveShell) -> Any:
    registry: Any = shell  # IPython is typed in part
    return registry.display_formatter.ipython_display_formatter
