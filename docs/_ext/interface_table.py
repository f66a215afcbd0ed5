"""The directive ``interface-table``: Python, magics and commands side by side, from the verbs and the commands."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from magics_reference import page_name, spelling
from sphinx.util.docutils import SphinxDirective

if TYPE_CHECKING:
    from docutils import nodes
    from sphinx.application import Sphinx

PYTHON = (
    *("Checkpoint", "checkpoints", "Checkpoints.capture", "Checkpoints.follow"),
    *("Checkpoint.doctor", "Checkpoint.epochs", "Checkpoint.operators", "Checkpoint.capture", "Checkpoint.follow"),
    *("Checkpoint.fork", "Fork.step", "Fork.promote", "Checkpoint.debug", "Checkpoint.replay", "Checkpoint.audit"),
    *("Checkpoint.check", "Checkpoint.propose_mapping", "Checkpoint.migrate", "Checkpoint.rescale", "bootstrap"),
    "pipeline_flow",
    *("open_store", "Store.queries", "Store.overview", "Store.sql", "cut"),
    *("History.epochs", "History.live", "History.at", "History.key_history", "History.diff", "History.why"),
    *("History.inputs", "History.late", "History.load", "History.why_policy", "History.advise", "History.describe"),
    *("History.retain", "History.compact", "History.export", "Snapshot.restore"),
    *("History.publish", "Store.contracts", "Store.usage", "open_share", "shared_frame", "SharedStore.suggest", "sql"),
    "sharing.serve",
    *("session", "start", "Running", "Running.status", "Running.wait", "Running.stop", "Running.restart"),
    *("Running.supervise", "Running.standby", "Running.hand_over", "Running.policy"),
    *("shared", "shared_column", "record", "recorded"),
    *("widgets.StateBrowser", "widgets.StateBrowser.save", "widgets.Timeline", "widgets.QueryDashboard"),
    "widgets.page.serve",
)
"""The names in Python, in the order of the table."""


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("interface-table", InterfaceTable)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


class InterfaceTable(SphinxDirective):
    """The table; its page is read again at each build."""

    def run(self) -> list[nodes.Node]:
        """Return the table's nodes."""
        self.env.note_reread()
        return self.parse_text_to_nodes("\n".join(_table()))


def magics() -> dict[str, list[tuple[str, str]]]:
    """Return the magics and verbs of each name in Python: how they are written, and their page."""
    from streamstate.extension import MAGICS

    found: dict[str, list[tuple[str, str]]] = {}
    for magic in MAGICS:
        page = f"/reference/magics/{page_name(magic)}"
        for name in magic.python:
            found.setdefault(name, []).append((spelling(magic), page))
        for parser in magic.parser.verbs.values():
            verb = parser.get_default("verb")
            found.setdefault(verb.python, []).append((parser.prog, page))
    return found


def commands() -> dict[str, list[tuple[str, str]]]:
    """Return the commands of each name in Python: how they are written, and their page."""
    from streamstate.command_line import COMMANDS

    found: dict[str, list[tuple[str, str]]] = {}
    for command in COMMANDS:
        for name in command.python:
            found.setdefault(name, []).append(
                (f"streamstate {command.name}", f"/reference/commands/streamstate-{command.name}")
            )
    return found


def _table() -> Iterator[str]:
    yield from (".. list-table::", "   :header-rows: 1", "", "   * - Python", "     - magic", "     - command")
    in_notebooks, in_terminals = magics(), commands()
    for name in PYTHON:
        yield f"   * - ``{name}``"
        yield f"     - {_links(in_notebooks.get(name, []))}"
        yield f"     - {_links(in_terminals.get(name, []))}"


def _links(found: list[tuple[str, str]]) -> str:
    return ", ".join(f":doc:`{text} <{page}>`" for text, page in found)
