"""Measurements: one JSON line each, and a table for people."""

from __future__ import annotations

import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from importlib.metadata import version


@dataclass(frozen=True)
class Measurement:
    """One figure of ours beside the other way of doing the same."""

    question: str
    ours: str
    ours_seconds: float
    other: str
    other_seconds: float
    runs: int
    setting: str

    @property
    def ratio(self) -> float:
        """How many times as long the other way takes."""
        return self.other_seconds / self.ours_seconds

    def as_json(self) -> str:
        """One line for machines."""
        return json.dumps({**asdict(self), "ratio": round(self.ratio, 3), **_machine()})


def alternate(ours: Callable[[], object], other: Callable[[], object], runs: int) -> tuple[float, float]:
    """Median seconds of both, taken turn by turn; the first turn of each warms up and does not count."""
    times: tuple[list[float], list[float]] = ([], [])
    for turn in range(runs + 1):
        for side, what in enumerate((ours, other)):
            seconds = timed(what)
            if turn:
                times[side].append(seconds)
    return statistics.median(times[0]), statistics.median(times[1])


def timed(what: Callable[[], object]) -> float:
    """Seconds that a call takes."""
    start = time.perf_counter()
    what()
    return time.perf_counter() - start


def report(measurements: Iterable[Measurement], out: str | None) -> None:
    """Print each measurement as it comes, then all as a Markdown table; keep the lines in a file if asked."""
    taken = []
    for one in measurements:
        print(one.as_json(), flush=True)
        taken.append(one)
    if out is not None:
        with open(out, "a", encoding="utf-8") as file:  # noqa: PTH123 (a path the user typed)
            file.writelines(f"{one.as_json()}\n" for one in taken)
    print(f"\n{table(taken)}\n\n{_described()}", file=sys.stdout)


def table(measurements: Iterable[Measurement]) -> str:
    """The measurements as a Markdown table."""
    lines = ["| question | streamstate | instead | ratio | setting |", "|---|---|---|---|---|"]
    for one in measurements:
        ours, other = _readable(one.ours_seconds), _readable(one.other_seconds)
        lines.append(
            f"| {one.question} | {ours} ({one.ours}) | {other} ({one.other}) | {one.ratio:.3g} | {one.setting} |"
        )
    return "\n".join(lines)


def _readable(seconds: float) -> str:
    return f"{seconds * 1000:.3g} ms" if seconds < 1 else f"{seconds:.2f} s"


def _machine() -> dict[str, object]:
    return {
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        **{name: version(name) for name in ("pyspark", "deltalake", "duckdb", "streamstate")},
    }


def _described() -> str:
    return "Medians; " + ", ".join(f"{name} {value}" for name, value in _machine().items()) + "."
