"""Plots in the docs, drawn from measured figures by ``python -m benchmarks.plot``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_DOCS = Path(__file__).parent.parent / "docs" / "explanation"
_COLOURS = ("#1f6fb2", "#b2571f", "#2f8f4e", "#8a3fa0")


def grown(figures: Path, picture: Path) -> None:
    """Draw an epoch's cost against the state's size."""
    rows = json.loads(figures.read_text(encoding="utf-8"))
    keys, milliseconds = [row["keys"] for row in rows], [row["seconds"] * 1000 for row in rows]
    with _drawn(picture) as axes:
        axes.plot(keys, milliseconds, marker="o", color=_COLOURS[0], label="capturing one epoch")
        axes.axhline(milliseconds[0] * 1.5, color="#777777", linestyle="--", label="1.5 times the smallest state's")
        axes.set(xscale="log", xlabel="keys in the state", ylabel="milliseconds", ylim=(0, max(*milliseconds) * 1.7))
        axes.set_title("10,000 changes an epoch", loc="left")
        axes.legend(loc="lower right")


def asked_about(figures: Path, picture: Path) -> None:
    """Draw the cost of questions about the past against the number of captured epochs."""
    questions = json.loads(figures.read_text(encoding="utf-8"))
    with _drawn(picture) as axes:
        for colour, (question, seconds) in zip(_COLOURS, questions.items(), strict=True):
            axes.plot(
                [int(epochs) for epochs in seconds], list(seconds.values()), marker="o", color=colour, label=question
            )
        axes.set(xscale="log", xlabel="epochs in the store", ylabel="seconds, start of Python included")
        axes.set_ylim(0, axes.get_ylim()[1] * 1.4)
        axes.set_title("100,000 keys, 20,000 changes an epoch", loc="left")
        axes.legend(loc="upper left")


def errors_of_forecasts(figures: Path, picture: Path) -> None:
    """Draw the error of each forecast, in percent of the time ahead."""
    rows = json.loads(figures.read_text(encoding="utf-8"))[::-1]
    with _drawn(picture) as axes:
        axes.axvspan(-20, 20, color=_COLOURS[2], alpha=0.15, label="within 20 %")
        axes.barh([row["history"] for row in rows], [row["error"] for row in rows], color=_COLOURS[0], height=0.5)
        axes.axvline(0, color="#777777", linewidth=0.8)
        axes.set(xlabel="error, % of the time ahead (− early, + late)")
        axes.tick_params(axis="y", labelsize=7)
        axes.legend(loc="upper left")


@contextmanager
def _drawn(picture: Path) -> Iterator[Any]:
    """Yield axes, and save a picture that depends on nothing but the figures."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "streamstate"
    from matplotlib import pyplot as plt

    plot, axes = plt.subplots(figsize=(6, 3.4), layout="constrained")
    axes.grid(alpha=0.3)
    yield axes
    plot.savefig(picture, format="svg", metadata={"Date": None}, facecolor="white")
    plt.close(plot)


_PLOTS = {"growth": grown, "long_history": asked_about, "forecasts": errors_of_forecasts}


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
