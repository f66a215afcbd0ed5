"""The drawing of a debugger: plain data, JSON for a page, text and still HTML."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from streamstate.snapshots.calls.html import Html, joined, tag
from streamstate.state_inspect.cell_text import Cell, key_text, timestamp
from streamstate.widgets.chart import ACCENT
from streamstate.widgets.debugger.session import SessionState, WatchedValue
from streamstate.widgets.debugger.tree import Lane, Tree
from streamstate.widgets.debugger.worker import ActionProblem, RunningAction
from streamstate.widgets.number_text import span
from streamstate.widgets.still import frame, table

if TYPE_CHECKING:
    from streamstate.widgets.dashboard.operators import Operators
    from streamstate.widgets.diffs.drawing import DiffDrawing

_ACROSS, _DOWN = 22, 24
_SIDE = 160  # pixels for the names of branches
_INPUT = {
    "planned": "planned by the original and never committed",
    "new": "new, not the original's",
    "none": "none: the state was repartitioned",
}


@dataclass(frozen=True)
class ViewedEpoch:
    """The epoch that is looked at, with its facts in short texts."""

    branch: str
    epoch: int
    here: bool
    """Whether it is the session's current epoch."""
    go: str = ""
    """The label of the button that goes there; empty if the session cannot."""
    facts: tuple[str, ...] = ()


@dataclass(frozen=True)
class DebuggerDrawing:
    """Everything that a drawing needs."""

    state: SessionState
    tree: Tree
    look: ViewedEpoch
    doing: RunningAction | None = None
    trouble: ActionProblem | None = None
    action_outcome: str = ""
    """The outcome of the last action, if it was not a step."""
    watched: Sequence[WatchedValue] = ()
    watched_at: int | None = None
    diff: DiffDrawing | None = None
    no_diff: str = ""
    """The reason why the changes of the viewed epoch are unknown."""
    key: Mapping[str, Any] | None = None
    operators: Operators | None = None

    @property
    def name(self) -> str:
        """The session's current branch."""
        return self.state.name

    def message(self) -> dict[str, Any]:
        """Return the drawing as JSON types."""
        diff = None if self.diff is None else self.diff.message() | {"captured": [], "movers": None, "why_not": None}
        return {
            "name": self.name,
            "epoch": self.state.epoch,
            "facts": list(self.facts()),
            "doing": self.doing and asdict(self.doing),
            "trouble": self.trouble and asdict(self.trouble),
            "outcome": self.outcome(),
            "ran": [list(pair) for pair in self.ran()],
            "tree": self.tree.message(),
            "look": asdict(self.look),
            "watches": [asdict(value) for value in self.watched],
            "watched_at": self.watched_at,
            "diff": diff,
            "no_diff": self.no_diff,
            "key": None if self.key is None else key_text(self.key),
            "operators": self.operators and asdict(self.operators),
            "first": self.state.epoch <= self.tree.oldest,
        }

    def text(self) -> str:
        """Return the drawing as a line of text: ``what_if: at epoch 14 · forked from delays after epoch 12``."""
        return f"{self.name}: " + " · ".join(self._parts())

    def html(self) -> Html:
        """The drawing as a picture of the branches and a table of what the last step changed, without scripts."""
        changed = tag("p", self.no_diff) if self.diff is None else self.diff.inner_html()
        return frame(self.name, self._parts(), self.picture(), self._watches(), changed)

    def facts(self) -> Iterator[str]:
        """Return the facts about the session in the head."""
        branch = self.state.branch(self.name)
        yield f"at epoch {self.state.epoch:,}"
        if branch is not None and branch.parent is not None:
            yield f"forked from {branch.parent} after epoch {branch.epoch:,}"
        elif branch is not None:
            yield "the original; the next step starts a branch"

    def outcome(self) -> str:
        """Return the outcome of the last action, in a sentence."""
        report = self.state.report
        reason = "" if report is None or self.trouble is not None else report.reason
        return self.action_outcome or reason

    def ran(self) -> Iterator[tuple[str, str]]:
        """Return the facts about the last epoch that ran."""
        run = None if self.state.report is None else self.state.report.last
        if run is None or run.epoch != self.state.epoch:
            return
        yield "epoch", f"{run.epoch:,}"
        if run.input_rows is not None:
            yield "rows in", f"{run.input_rows:,}"
        if run.input != "original":
            yield "input", _INPUT[run.input]
        yield "took", span(run.seconds)
        if run.watermark is not None and run.watermark.timestamp() > 0:
            yield "watermark", timestamp(run.watermark)

    def picture(self) -> Html:
        """Return the branches as inline SVG, in the colour of the text around it."""
        tree = self.tree
        wide = _SIDE + (tree.last - tree.first + 2) * _ACROSS
        high = (len(tree.lanes) + 1) * _DOWN
        described = "; ".join(lane.description for lane in tree.lanes)
        label = f"Branches, epochs {tree.first:,} to {tree.last:,}: {described}"
        every = 1 if tree.last - tree.first < 12 else 5
        numbers = [
            _text(str(epoch), _x(tree, epoch), high - 8, "middle", opacity=0.7)
            for epoch in range(tree.first, tree.last + 1)
            if epoch % every == 0
        ]
        picture = tag(
            "svg",
            [self._lane(at, lane) for at, lane in enumerate(tree.lanes)],
            numbers,
            viewBox=f"0 0 {wide} {high}",
            width=wide,
            height=high,
            role="img",
            aria_label=label,
            style="max-width:100%;height:auto;font:12px system-ui,sans-serif",
        )
        cut = f"{tree.left_out:,} more branches are not drawn."
        return joined(picture, tag("p", tag("small", cut)) if tree.left_out else None)

    def _parts(self) -> Iterator[str]:
        yield from self.facts()
        if self.doing is not None:
            yield f"{self.doing.what}…"
        elif self.trouble is not None:
            yield f"{self.trouble.what}: {self.trouble.short}"
        elif self.outcome():
            yield self.outcome()
        yield from (f"{value.expression} = {value.now.text}" for value in self.watched)

    def _lane(self, at: int, lane: Lane) -> Html:
        tree, y = self.tree, _y(at)
        own = lane.name == self.name
        name = lane.name if len(lane.name) <= 20 else lane.name[:19] + "…"
        parts = [_text(name, _SIDE - 8, y + 4, "end", font_weight=600 if own else None)]
        places = [_x(tree, dot.epoch) for dot in lane.dots]
        if places:
            parts.append(_line(places[0], y, places[-1], y))
        if lane.parent is not None and lane.dots and lane.dots[0].kind == "start":
            parts.append(_line(places[0], _y(lane.parent), places[0], y))
        for dot, x in zip(lane.dots, places, strict=True):
            here = own and dot.epoch == self.state.epoch
            if here:
                parts.append(tag("circle", cx=x, cy=y, r=8, fill="none", stroke=ACCENT, stroke_width=2))
            title = tag("title", f"{lane.name}, epoch {dot.epoch}{', here' if here else ''}")
            fill = "currentColor" if dot.kind == "epoch" or here else "none"
            parts.append(tag("circle", title, cx=x, cy=y, r=4, fill=fill, stroke="currentColor"))
        return joined(parts)

    def _watches(self) -> Html | None:
        if not self.watched:
            return None
        rows = ((value.expression, value.now, Cell(value.change, "number")) for value in self.watched)
        caption = "Watched" if self.watched_at is None else f"Watched, at epoch {self.watched_at}"
        return table(caption, ["watched", "value", "change"], rows)


def _x(tree: Tree, epoch: int) -> int:
    return _SIDE + (epoch - tree.first) * _ACROSS + _ACROSS // 2


def _y(at: int) -> int:
    return at * _DOWN + _DOWN // 2


def _text(text: str, x: int, y: int, anchor: str, **style: float | None) -> Html:
    return tag("text", text, x=x, y=y, text_anchor=anchor, fill="currentColor", **style)


def _line(x: int, y: int, to_x: int, to_y: int) -> Html:
    return tag("line", x1=x, y1=y, x2=to_x, y2=to_y, stroke="currentColor", opacity=0.5, stroke_width=2)
