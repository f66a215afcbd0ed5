"""The player of a protocol: in a notebook, in exported HTML and on a page, without a kernel."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any, Generic

from streamstate.snapshots.calls.html import Html, tag
from streamstate.tutorials.simulation.film import in_script, packed, reel
from streamstate.tutorials.simulation.graph import Graph
from streamstate.tutorials.simulation.protocol import Key, S
from streamstate.tutorials.simulation.runs import Trace
from streamstate.tutorials.simulation.scene import Scene


@dataclass(frozen=True)
class Question:
    """A question that must be answered before the player shows what comes next.

    Args:
        text: the question.
        choices: the answers to choose from.
    """

    text: str
    choices: Sequence[str]


class Player(Generic[S]):
    """Shows a trace, or a graph in which the reader chooses what happens.

    Where scripts are off, it is the picture at one tick with its caption.

    Args:
        shown: a trace; a graph; or several, by the value of a parameter that the reader sets with a slider.
        title: its title; by default, the name of the protocol.
        caption: a text below the title.
        at: the tick that is shown first.
        example: for graphs, the schedule to begin with. It must be in every graph.
        parameter: the name of the parameter, if there are several.
        question: hides what comes after ``at`` until the reader has answered.

    Raises:
        ValueError: ``at`` is not a tick of what is shown, or nothing is shown.

    Example:
        >>> from streamstate.tutorials.simulation import AlignedBarriers, Topology, run
        >>> player = Player(run(AlignedBarriers(Topology.merge()), seed=1), at=4)
        >>> player.save("barriers.html")
        PosixPath('barriers.html')
    """

    def __init__(
        self,
        shown: Graph[S] | Trace[S] | Mapping[Any, Graph[S] | Trace[S]],
        *,
        title: str | None = None,
        caption: str = "",
        at: int = 0,
        example: Iterable[Key] = (),
        parameter: str = "",
        question: Question | None = None,
    ) -> None:
        several = shown if isinstance(shown, Mapping) else {"": shown}
        if not several:
            raise ValueError("There is nothing to show: expected at least one graph or trace.")
        schedule = tuple(example)
        self._reels = [reel(each, schedule) for each in several.values()]
        steps = len(self._reels[0].path)
        if not 0 <= at <= steps:
            raise ValueError(f"Invalid tick {at}: expected 0 to {steps}.")
        self.title = title or next(iter(several.values())).protocol.name
        self.caption = caption
        self.at = at
        asked = {"text": question.text, "choices": list(question.choices)} if question else None
        sliding = {"name": parameter, "values": list(map(str, several))} if isinstance(shown, Mapping) else None
        self._data = packed(self._reels) | {"at": at, "chosen": 0, "parameter": sliding, "question": asked}

    def __repr__(self) -> str:
        happened, scene = self._present()
        return f"Player of {self.title}: step {self.at} of {len(self._reels[0].path)}. {happened} {scene.words}"

    def _present(self) -> tuple[str, Scene]:
        """Return what happened last, and the picture."""
        first = self._reels[0]
        frame, happened = 0, "The first state."
        for choice in first.path[: self.at]:
            _, happened, frame = first.edges[frame][choice]
        return happened, first.scenes[frame]

    def _repr_html_(self) -> str:
        """Return the still, and the script that makes it a player."""
        happened, scene = self._present()
        still = base64.b64encode(svg(scene, self._data["height"]).encode()).decode()
        style = _resource("scene.css") + _resource("player.css")
        script = _resource("player.js").replace("export function", "function")
        # Not by an id: two views of a notebook show the same output. VS Code runs scripts at the end of the output.
        begin = f"play(document.currentScript.parentElement, {in_script(self._data)});"
        image = Html(
            f'<img alt="{escape(scene.words)}" style="max-width: {scene.width:g}px" '
            f'src="data:image/svg+xml;base64,{still}">'
        )
        note = "This is a picture; where scripts are allowed, such as in a trusted notebook, you can play it."
        return tag(
            "figure",
            tag("style", Html(style)),
            tag("figcaption", tag("strong", self.title), f" {self.caption}" if self.caption else ""),
            tag("div", image, class_="stage"),
            tag("p", f"Step {self.at}: {happened} {note}", class_="note"),
            Html(f"<script data-no-kernel>(() => {{\n{script}\n{begin}\n}})();</script>"),
            class_="streamstate-player",
            role="group",
            aria_label=self.title,
        )

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, Any]:
        """Return both forms that a notebook keeps."""
        return {"text/plain": repr(self), "text/html": self._repr_html_()}

    def save(self, path: str | Path) -> Path:
        """Write a page that has the player and nothing else, and return its path.

        Args:
            path: the file to write; one that exists is replaced.
        """
        target = Path(path)
        page = (
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f"<title>{escape(self.title)}</title><style>:root {{ color-scheme: light dark; }}</style></head>"
            f"<body><main>{self._repr_html_()}</main></body></html>\n"
        )
        target.write_text(page, encoding="utf-8")
        return target


def svg(scene: Scene, height: float | None = None) -> str:
    """Return a scene as a file of its own.

    Args:
        scene: the scene.
        height: its height, if it has to be that of others.
    """
    tall = scene.height if height is None else height
    parts = []
    for name, kind, x, y, width, high, text, path, _ in scene.items:
        del name
        left, middle = (7, 14) if kind.startswith("box") else (width / 2, high / 2)
        shapes = [
            tag("rect", rx="4", width=f"{width:g}", height=f"{high:g}") if width else None,
            tag("path", d=path) if path else None,
            tag("text", text, x=f"{left:g}", y=f"{middle:g}") if text else None,
        ]
        parts.append(tag("g", shapes, class_=kind, transform=f"translate({x:g} {y:g})"))
    return tag(
        "svg",
        tag("style", Html(f":root {{ color-scheme: light dark; }}{_resource('scene.css')}")),
        parts,
        xmlns="http://www.w3.org/2000/svg",
        class_="streamstate-scene",
        viewBox=f"0 0 {scene.width:g} {tall:g}",
        width=f"{scene.width:g}",
        height=f"{tall:g}",
    )


@cache
def _resource(name: str) -> str:
    return files("streamstate.tutorials.simulation").joinpath(name).read_text("utf-8")
