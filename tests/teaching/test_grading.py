"""Queries graded by the states of their captured epochs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest
from synthetic import write

import streamstate as ss
from streamstate.tutorials.exercises.grading import does_not_grow, has_results

if TYPE_CHECKING:
    from streamstate.state_inspect import History


def _history(path: Path, sizes: list[int], idle: tuple[int, ...] = ()) -> History:
    states: list[dict[str, int] | None] = [
        {f"k{key}": epoch for key in range(size)} for epoch, size in enumerate(sizes)
    ]
    write(path, states, facts=[{"input_rows": 0 if epoch in idle else 10} for epoch in range(len(sizes))])
    return ss.open_store(path)["q"]


@pytest.mark.parametrize(
    "sizes", [[3, 9, 9, 10, 9, 10, 10, 9, 10], [10] * 9, [1, 1, 1, 8, 8, 8, 9, 8, 10]], ids=["fills", "flat", "varies"]
)
def test_a_state_that_stays_is_no_leak(tmp_path: Path, sizes: list[int]) -> None:
    """It may fill at first, and vary a little."""
    assert does_not_grow(_history(tmp_path, sizes)) == ""


def test_a_state_that_grows_is_a_leak(tmp_path: Path) -> None:
    """The message names the table and both sizes."""
    fault = does_not_grow(_history(tmp_path, [1, 2, 3, 4, 5, 6, 7, 8, 9]))
    assert fault.startswith("It leaks: `op0` had at most 6 rows in the middle third of the epochs, and 9 in the last.")


def test_epochs_without_input_do_not_count(tmp_path: Path) -> None:
    """Spark runs them to remove what has expired; they would hide a leak."""
    assert does_not_grow(_history(tmp_path, [2, 4, 6, 8, 10, 12, 14, 16, 18, *[1] * 5], idle=tuple(range(9, 14)))) != ""


class _Epoch:
    """A snapshot whose result is a frame."""

    def __init__(self, rows: pd.DataFrame) -> None:
        self._rows = rows
        self.key_columns, self.value_columns = ["day"], ["n"]

    def result(self, table: str) -> _Epoch:
        return self

    def to_pandas(self) -> pd.DataFrame:
        return self._rows


class _Results:
    """As much of a history as a comparison of results reads."""

    def __init__(self, rows: pd.DataFrame) -> None:
        self.live: Callable[[], _Epoch] = lambda: _Epoch(rows)
        self.at: Callable[[int], _Epoch] = lambda epoch: _Epoch(rows)
        self.tables = lambda: ["op0"]


@pytest.mark.parametrize(
    ("rows", "value", "fault"),
    [
        ({"day": ["1", "2"], "n": [3, 4]}, "n", ""),
        ({"day": ["2"], "n": [4]}, "n", ""),
        ({"day": ["2"], "n": [8]}, "n", "At epoch 0, `n` of 2 is 8. It should be 4."),
        ({"day": ["2", "3"], "n": [4, 1]}, "n", "At epoch 0, `n` of 3 is 1. It should be 0."),
        ({"day": ["1"], "n": [3]}, "n", "At epoch 0, the result has no row for 2, which had departures that day."),
        ({"day": ["1"], "n": [3]}, "count", "The result needs the columns `day`, `count`."),
    ],
)
def test_results_are_compared_key_by_key(rows: dict[str, list[Any]], value: str, fault: str) -> None:
    """Older keys may have left the state; those of the newest day may not."""
    history: Any = _Results(pd.DataFrame(rows))
    right = pd.Series([3, 4], index=pd.MultiIndex.from_tuples([("1",), ("2",)]))
    assert has_results(history, lambda epoch: right, key=["day"], value=value, epochs=[0]) == fault
