"""Plots for the docs, from measured figures: ``python -m benchmarks.plot``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.soak_processes import LOOK_UPS

_DOCS = Path(__file__).parent.parent / "docs" / "explanation"
_COLOURS = ("#1f6fb2", "#b2571f", "#2f8f4e", "#8a3fa0")


def grown(figures: Path, picture: Path) -> None:
    """Draw an epoch's cost against the state's size."""
    rows = json.loads(figures.read_text(encoding="utf-8"))
    keys, milliseconds = [row["keys"] for row in rows], [row["seconds"] * 1000 for row in rows]
    with _drawn(picture, 1) as (axes,):
        axes.plot(keys, milliseconds, marker="o", color=_COLOURS[0], label="capturing one epoch")
        axes.axhline(milliseconds[0] * 1.5, color="#777777", linestyle="--", label="1.5 times the smallest state's")
        axes.set(xscale="log", xlabel="keys in the state", ylabel="milliseconds", ylim=(0, max(*milliseconds) * 1.7))
        axes.set_title("10,000 changes an epoch", loc="left")
        axes.legend(loc="lower right")


def asked_about(figures: Path, picture: Path) -> None:
    """Draw what questions about the past cost against the number of epochs that were captured."""
    questions = json.loads(figures.read_text(encoding="utf-8"))
    with _drawn(picture, 1) as (axes,):
        for colour, (question, seconds) in zip(_COLOURS, questions.items(), strict=True):
            axes.plot(
                [int(epochs) for epochs in seconds], list(seconds.values()), marker="o", color=colour, label=question
            )
        axes.set(xscale="log", xlabel="epochs in the store", ylabel="seconds, start of Python included")
        axes.set_ylim(0, axes.get_ylim()[1] * 1.4)
        axes.set_title("100,000 keys, 20,000 changes an epoch", loc="left")
        axes.legend(loc="upper left")


def soaked(figures: Path, picture: Path) -> None:
    """Draw look-ups, memory and files while a query is followed and asked."""
    rows = json.loads(figures.read_text(encoding="utf-8"))
    epochs = [row["epoch"] for row in rows]
    lines = (
        ("milliseconds", 1e-3, LOOK_UPS),
        ("MiB", 2**20, ("memory of the follower", "memory of the reader")),
        ("files", 1, ("files in the store",)),
    )
    with _drawn(picture, len(lines)) as panels:
        for axes, (unit, scale, names) in zip(panels, lines, strict=True):
            for colour, name in zip(_COLOURS, names, strict=False):
                axes.plot(epochs, [row[name] / scale for row in rows], color=colour, label=name)
            axes.set(ylabel=unit)
            axes.set_ylim(0, axes.get_ylim()[1] * 1.5)
            axes.legend(loc="upper left")
        panels[-1].set(xlabel="epochs captured")


@contextmanager
def _drawn(picture: Path, panels: int) -> Iterator[Any]:
    """Axes, one above the other; the picture is the same in light and dark, and whenever the figures are the same."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "streamstate"
    from matplotlib import pyplot as plt

    plot, axes = plt.subplots(panels, figsize=(6, 1.2 + 2.2 * panels), layout="constrained", sharex=True, squeeze=False)
    for panel in axes.flat:
        panel.grid(alpha=0.3)
    yield axes.flat
    plot.savefig(picture, format="svg", metadata={"Date": None}, facecolor="white")
    plt.close(plot)


_PLOTS = {"growth": grown, "long_history": asked_about, "soak": soaked}


def publish(name: str, figures: object) -> None:
    """Put figures and their plot into the docs."""
    (_DOCS / f"{name}.json").write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    _plot(name)


def _plot(name: str) -> None:
    figures = _DOCS / f"{name}.json"
    _PLOTS[name](figures, figures.with_suffix(".svg"))


if __name__ == "__main__":
    for found in _PLOTS:
        if (_DOCS / f"{found}.json").exists():
            _plot(found)
