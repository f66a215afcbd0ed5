"""What the public objects show by themselves at the end of a notebook's cell: the view that fits.

The objects know nothing of notebooks; the extension registers these with the shell's own formatters, and takes them
back. In a terminal the objects keep their text.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from streamstate.widgets.view import View

__all__ = ["register", "unregister"]


def _store(store: Any) -> View[Any]:
    from streamstate.widgets import StoreOverview

    return StoreOverview(store)


def _history(history: Any) -> View[Any]:
    from streamstate.widgets import Timeline

    return Timeline(history)


def _snapshot(snapshot: Any) -> View[Any]:
    from streamstate.widgets import StateBrowser

    return StateBrowser(snapshot.history, epoch=snapshot.epoch)


def _table(table: Any) -> View[Any]:
    from streamstate.widgets import StateBrowser

    return StateBrowser(table.history, table.name, epoch=table.epoch)


def _diff(diff: Any) -> View[Any]:
    from streamstate.widgets import DiffView

    a, b = diff.sides or (diff.history, None)
    return DiffView(a, diff.a, diff.b, diff.table, other=b)


def _session(session: Any) -> View[Any]:
    from streamstate.widgets import Debugger

    return Debugger(session)


def _comparison(comparison: Any) -> View[Any]:
    from streamstate.widgets import ComparisonView

    return ComparisonView(comparison)


# By name: registering them must not load the engines that read state.
_VIEWS: dict[tuple[str, str], Callable[[Any], View[Any]]] = {
    ("streamstate.state_inspect.store", "Store"): _store,
    ("streamstate.state_inspect.history", "History"): _history,
    ("streamstate.state_inspect.snapshot", "Snapshot"): _snapshot,
    ("streamstate.state_inspect.state_table", "StateTable"): _table,
    ("streamstate.state_inspect.differences.diff", "Diff"): _diff,
    ("streamstate.state_inspect.branches.comparison", "Comparison"): _comparison,
    ("streamstate.debugger.replay", "Replay"): lambda replay: _comparison(replay.comparison),
    ("streamstate.debugger.session", "DebugSession"): _session,
}


def register(shell: InteractiveShell) -> None:
    """Let a notebook show views for stores, histories, snapshots, state tables, diffs and debugging sessions."""
    if not hasattr(shell, "kernel"):
        return
    for (module, name), view in _VIEWS.items():
        _formatter(shell).for_type_by_name(module, name, _displayed(view))


def unregister(shell: InteractiveShell) -> None:
    """Let them show their text again."""
    for module, name in _VIEWS:
        _formatter(shell).pop(f"{module}.{name}", None)


def _displayed(view: Callable[[Any], View[Any]]) -> Callable[[Any], None]:
    def display(shown: Any) -> None:
        from IPython.display import display

        display(view(shown))

    return display


def _formatter(shell: InteractiveShell) -> Any:
    registry: Any = shell  # IPython is typed in part
    return registry.display_formatter.ipython_display_formatter
