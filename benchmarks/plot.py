"""Plots for the docs, from measured figures: ``python -m benchmarks.plot docs/explanation/growth.{json,svg}``."""

from __future__ import annotations

import json
import sys
from pathlib import Path


def plotted(figures: Path, picture: Path) -> None:
    """Draw an epoch's cost against the state's size, in light and dark the same."""
    import matplotlib as mpl

    mpl.use("svg")
    # The same figures give the same file.
    mpl.rcParams["svg.hashsalt"] = "streamstate"
    from matplotlib import pyplot as plt

    rows = json.loads(figures.read_text(encoding="utf-8"))
    keys, milliseconds = [row["keys"] for row in rows], [row["seconds"] * 1000 for row in rows]
    plot, axes = plt.subplots(figsize=(6, 3.4), layout="constrained")
    axes.plot(keys, milliseconds, marker="o", color="#1f6fb2", label="capturing one epoch")
    axes.axhline(milliseconds[0] * 1.5, color="#777777", linestyle="--", label="1.5 times the smallest state's")
    axes.set(xscale="log", xlabel="keys in the state", ylabel="milliseconds", ylim=(0, max(*milliseconds) * 1.7))
    axes.set_title("10,000 changes an epoch", loc="left")
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right")
    plot.savefig(picture, format="svg", metadata={"Date": None}, facecolor="white")
    plt.close(plot)


if __name__ == "__main__":
    plotted(Path(sys.argv[1]), Path(sys.argv[2]))
