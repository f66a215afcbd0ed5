"""A learner's own query: it runs over files of departures in a folder of its own, and is compared with another run."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import streamstate as ss
from streamstate.tutorials import flights
from streamstate.tutorials.exercises.answers import shown
from streamstate.tutorials.staging import Arrivals, clear

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from streamstate.state_inspect import History

DATA = Path("streamstate-data/two-days")
OWN = "own"
"""The name of a learner's query."""


class OwnQuery:
    """A folder into which files of departures arrive, two days each, and in which queries over them run.

    Args:
        folder: the folder; what an earlier check left there is deleted.
        files: how many files arrive at first.
        name: the name of the learner's query.
    """

    def __init__(self, folder: Path, *, files: int = 0, name: str = OWN) -> None:
        clear(ss.session(), name, folder)
        self.folder, self.store, self.arriving, self._name = folder, folder / "store", folder / "arriving", name
        self.arrivals = Arrivals(flights.prepare(DATA, days_per_file=2, last=date(2013, 2, 28)), self.arriving)
        self.arrive(files)

    def arrive(self, files: int) -> None:
        """Let so many more files arrive."""
        for _ in range(files):
            self.arrivals.next()

    def departures(self) -> DataFrame:
        """Return the stream of departures, a file in an epoch."""
        return flights.flights(ss.session(), self.arriving)

    def run(self, frame: DataFrame, name: str | None = None, **options: Any) -> History:
        """Run a query over the files that have arrived and that it has not read; return its history.

        Args:
            frame: the streaming DataFrame.
            name: its name; by default that of the learner's query.
            options: more for :func:`streamstate.start`.
        """
        return run_to_end(frame, name or self._name, self.store, **options)

    def checkpoint(self, name: str | None = None) -> Path:
        """Return the path of a query's checkpoint."""
        return self.folder / "checkpoints" / (name or self._name)


def run_to_end(frame: DataFrame, name: str, store: Path, **options: Any) -> History:
    """Run a query over all input that there is, and capture each epoch."""
    running = ss.start(frame, name, store, trigger="available-now", **options)
    try:
        running.wait(timeout=600)
    finally:
        running.stop()
    return running.history


@dataclass(frozen=True)
class Runs:
    """Two runs that should lead to the same state.

    Args:
        history: the learner's query.
        other: the other run.
        otherwise: what is different there, as a phrase.
    """

    history: History
    other: History
    otherwise: str

    def captured(self) -> list[int]:
        """Return the epochs of the learner's query."""
        return self.history.captured()


def same_state(runs: Runs) -> str:
    """Say where the newest states of two runs differ; empty if they do nowhere."""
    for table in runs.history.tables():
        here, there = (_rows(history, table) for history in (runs.history, runs.other))
        for key in sorted({*here, *there}):
            mine, others = (rows.get(key, "no row") for rows in (here, there))
            if mine != others:
                return f"At the end, `{table}` has {mine} for {key}. {runs.otherwise}, it has {others}."
    return ""


def _rows(history: History, table: str) -> dict[str, str]:
    """Return the newest rows of a state table, as text: the values by the key."""
    state = history.live().table(table)
    return {_words(row, state.key_columns): _words(row, state.value_columns) for row in state.to_arrow().to_pylist()}


def _words(row: dict[str, Any], columns: list[str]) -> str:
    return ", ".join(f"{column} = {shown(row[column])}" for column in columns) or "all rows"
