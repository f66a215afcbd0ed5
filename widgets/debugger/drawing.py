"""What a debugger shows for one selection, as plain data: built in the kernel, drawn elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from streamstate.widgets.debugger.seen import Seen
from streamstate.widgets.debugger.tree import Tree
from streamstate.widgets.debugger.watched import Watched
from streamstate.widgets.debugger.worker import Doing, Trouble
from streamstate.widgets.timeline.spans import span
from streamstate.widgets.values import timestamp

if TYPE_CHECKING:
    from streamstate.debugger.report import StepReport
    from streamstate.widgets.dashboard.operators import Operators
    from streamstate.widgets.diffs.drawing import DiffDrawing

__all__ = ["Look", "View"]


@dataclass(frozen=True)
class Look:
    """The epoch that is looked at: of which branch, whether the session stands there, and how it could go there.

    Attributes:
        branch: the branch.
        epoch: its epoch.
        here: whether the session stands there.
        go: what going there is called; empty where it cannot be gone to.
        told: what is known of the epoch, in a few words each.
    """

    branch: str
    epoch: int
    here: bool
    go: str = ""
    told: tuple[str, ...] = ()


@dataclass(frozen=True)
class View:
    """Everything one drawing needs.

    Attributes:
        seen: where the session stands.
        tree: its branches.
        look: what is looked at.
        doing: what runs now.
        trouble: what went wrong.
        said: what came of the last action, where that was no step.
        watched: the watched expressions at the epoch ``watched_at``.
        diff: what the epoch that is looked at changed; None where that is not known, and ``no_diff`` says why.
        key: the key that was chosen among those, in words.
        operators: the query's operators.
    """

    seen: Seen
    tree: Tree
    look: Look
    doing: Doing | None = None
    trouble: Trouble | None = None
    said: str = ""
    watched: Sequence[Watched] = ()
    watched_at: int | None = None
    diff: DiffDrawing | None = None
    no_diff: str = ""
    key: Mapping[str, Any] | None = None
    operators: Operators | None = None

    @property
    def name(self) -> str:
        """The branch on which the session stands."""
        return self.seen.name

    def message(self) -> dict[str, Any]:
        """The view as JSON types: what goes to a page."""
        diff = None if self.diff is None else self.diff.message() | {"captured": [], "movers": None}
        return {
            "name": self.name,
            "epoch": self.seen.epoch,
            "facts": list(self.facts()),
            "doing": self.doing and asdict(self.doing),
            "trouble": self.trouble and asdict(self.trouble),
            "said": self.outcome(),
            "ran": [list(pair) for pair in self.ran()],
            "tree": self.tree.message(),
            "look": asdict(self.look),
            "watches": [one.message() for one in self.watched],
            "watched_at": self.watched_at,
            "diff": diff,
            "no_diff": self.no_diff,
            "key": None if self.key is None else key_text(self.key),
            "operators": self.operators and self.operators.message(),
            "first": self.seen.epoch <= self.tree.oldest,
        }

    def facts(self) -> Iterator[str]:
        """What is said of the session."""
        branch = self.seen.branch(self.name)
        yield f"stands at epoch {self.seen.epoch:,}"
        if branch is not None and branch.parent is not None:
            yield f"forked from {branch.parent} after epoch {branch.epoch:,}"
        elif branch is not None:
            yield "the original; a step begins a branch"

    def outcome(self) -> str:
        """What came of the last action, in a sentence."""
        report = self.seen.report
        told = "" if report is None or self.trouble is not None else report.reason
        return self.said or told

    def ran(self) -> Iterator[tuple[str, str]]:
        """What is known of the last epoch that was run."""
        run = None if self.seen.report is None else self.seen.report.last
        if run is None or run.epoch != self.seen.epoch:
            return
        yield "epoch", f"{run.epoch:,}"
        if run.input_rows is not None:
            yield "rows in", f"{run.input_rows:,}"
        if run.input != "original":
            yield "input", _INPUT[run.input]
        yield "took", span(run.seconds)
        if run.watermark is not None and run.watermark.timestamp() > 0:
            yield "watermark", timestamp(run.watermark)


_INPUT = {
    "planned": "planned by the original and never committed",
    "new": "new, not the original's",
    "none": "none: the state was spread anew",
}


def key_text(key: Mapping[str, Any]) -> str:
    """A key in words: ``carrier UA, origin EWR``."""
    from streamstate.widgets.values import cell

    return ", ".join(f"{name} {cell(value).text}" for name, value in key.items())


def error_of(report: StepReport | None) -> Trouble | None:
    """What the query's own code raised, where steps stopped at that."""
    if report is None or report.error is None:
        return None
    return Trouble.of(f"Epoch {report.epoch + 1:,} failed", report.error)
