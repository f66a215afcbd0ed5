"""Measurements, printed as JSON lines and as a table."""

from __future__ import annotations

import json
import math
import os
import platform
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from importlib.metadata import version


@dataclass(frozen=True)
class Size:
    """Keys in the state, keys that an epoch changes, epochs to measure."""

    keys: int
    changes: int
    epochs: int

    def __str__(self) -> str:
        """Return the size as a table shows it."""
        return f"{self.keys:,} keys, {self.changes:,} changes an epoch"


@dataclass(frozen=True)
class Measurement:
    """One figure, compared with another way to do the same or with a bound."""

    question: str
    ours: str
    ours_value: float
    other: str
    other_value: float
    runs: int
    setting: str
    unit: str = "s"
    """``s`` for seconds, ``B`` for bytes, ``%`` for shares, empty for counts."""
    wanted: float | None = None
    """The lowest ratio that meets the target."""

    @property
    def ratio(self) -> float:
        """The other figure divided by ours; more is better."""
        return self.other_value / self.ours_value if self.ours_value else math.inf

    @property
    def is_wrong(self) -> bool:
        """True if it counts something that must not be there."""
        return not self.unit and self.other_value == 0 < self.ours_value

    def as_json(self) -> str:
        """Return the measurement as one line of JSON."""
        return json.dumps({**asdict(self), "ratio": round(self.ratio, 3), **_machine()})


def bounded(
    question: str, ours: str, value: float, bound: float, *, runs: int, setting: str, unit: str = "s"
) -> Measurement:
    """Return a measurement that must not exceed a bound."""
    return Measurement(question, ours, value, "the bound", bound, runs, setting, unit, wanted=1)


def timed(what: Callable[[], object]) -> float:
    """Return the seconds that a call takes."""
    start = time.perf_counter()
    what()
    return time.perf_counter() - start


def report(measurements: Iterable[Measurement], out: str | None) -> list[Measurement]:
    """Print each measurement as it comes, then all as a Markdown table; keep the lines in a file if asked."""
    taken = []
    for measurement in measurements:
        print(measurement.as_json(), flush=True)
        taken.append(measurement)
        if out is not None:
            with open(out, "a", encoding="utf-8") as file:  # noqa: PTH123 (a path the user typed)
                file.write(f"{measurement.as_json()}\n")
    print(f"\n{table(taken)}\n\n{_described()}", file=sys.stdout)
    return taken


def table(measurements: Iterable[Measurement]) -> str:
    """Return the measurements as a Markdown table."""
    lines = ["| question | streamstate | against | ratio | wanted | setting |", "|---|---|---|---|---|---|"]
    for measurement in measurements:
        ours = _readable(measurement.ours_value, measurement.unit)
        against = _readable(measurement.other_value, measurement.unit)
        target = "" if measurement.wanted is None else f"≥ {measurement.wanted:.3g}"
        figures = f"{ours} ({measurement.ours}) | {against} ({measurement.other}) | {measurement.ratio:.3g} | {target}"
        lines.append(f"| {measurement.question} | {figures} | {measurement.setting} |")
    return "\n".join(lines)


def _readable(value: float, unit: str) -> str:
    if unit == "B":
        return f"{value / 2**30:.2f} GiB" if value >= 2**30 else f"{value / 2**20:.3g} MiB"
    if unit == "%":
        return f"{value:.3g} %"
    if not unit:
        return f"{value:,.0f}"
    return f"{value * 1000:.3g} ms" if value < 1 else f"{value:.2f} s"


def _machine() -> dict[str, object]:
    return {
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        **{name: version(name) for name in ("pyspark", "deltalake", "duckdb", "streamstate")},
    }


def _described() -> str:
    return "Medians; " + ", ".join(f"{name} {value}" for name, value in _machine().items()) + "."
