"""The directives ``mutant-table`` and ``simulation-player``: what random runs catch, and a protocol to play with."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

if TYPE_CHECKING:
    from sphinx.application import Sphinx


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directives."""
    app.add_directive("mutant-table", MutantTable)
    app.add_directive("simulation-player", SimulationPlayer)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


class MutantTable(SphinxDirective):
    """The table of mutants, from the counts that ``python -m scripts.mutants`` writes beside the page."""

    def run(self) -> list[nodes.Node]:
        """Return the table's nodes."""
        path = Path(self.env.srcdir) / "explanation" / "mutants.json"
        self.env.note_dependency(str(path))
        return self.parse_text_to_nodes("\n".join(_table(json.loads(path.read_text(encoding="utf-8")))))


class SimulationPlayer(SphinxDirective):
    """A player in which the reader chooses what happens; it begins on the shortest way to a violation."""

    required_arguments = 1
    final_argument_whitespace = True
    has_content = True

    def run(self) -> list[nodes.Node]:
        """Return the player as HTML. The argument is its title, the content its caption."""
        from streamstate.tutorials.simulation import Player, Topology, explore
        from streamstate.tutorials.simulation.mutants import NotBlocking

        self.env.note_reread()
        scenario = NotBlocking(
            Topology.merge(2, 1), rounds=1, crashes=0, last_covers_all=False, storage_takes_time=False
        )
        graph = explore(scenario)
        trace = graph.shortest("received ≤ sent")
        if trace is None:
            raise self.error("The mutant of the page on simulations breaks no invariant.")
        player = Player(graph, title=self.arguments[0], caption=" ".join(self.content), example=trace.schedule)
        return [nodes.raw("", player._repr_html_(), format="html")]


def _table(mutants: list[dict[str, Any]]) -> Iterator[str]:
    yield from ("| protocol | mistake | caught | by |", "|---|---|---|---|")
    for mutant in mutants:
        counts = sorted(mutant["first"].items(), key=lambda item: -item[1])
        by = "; ".join(f"{name} ({count})" if len(counts) > 1 else name for name, count in counts)
        yield f"| {mutant['protocol']} | {mutant['fault']} | {mutant['caught']} of {mutant['runs']} | {by} |"
