"""When a condition held: the first epoch, spans overall and per key, against brute force."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic import START, State, write

import streamstate as ss
from reading.test_histories import EXAMPLES, HISTORIES
from streamstate.snapshots.errors import (
    InvalidArgumentError,
    InvalidSQLError,
    UnknownColumnError,
    UnknownEpochError,
    UnknownTableError,
)

STATES: list[State | None] = [
    {"a": 1, "b": 5},
    {"a": 7, "b": 5},
    {"a": 8, "b": 9},
    {"a": 1, "b": 9},
    None,
    {"a": 1, "b": 9, "c": 6},
]


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> ss.History:
    """A query ``q`` with a gap at epoch 4."""
    folder = tmp_path_factory.mktemp("when")
    write(folder, STATES)
    return ss.open_store(folder)["q"]


def test_the_first_epoch(history: ss.History) -> None:
    """Of any row, of one key, or none."""
    assert history.first("value > 6") == 1
    assert history.first("value > 6", key="b") == 2
    assert history.first("value > 6", key="c") is None
    assert history.first("key = 'c' AND value BETWEEN 5 AND 6") == 5


def test_overall_spans(history: ss.History) -> None:
    """While any row met it, with the most at once; a gap ends a span, and what lasts has no end."""
    spans = history.when("value > 6")
    assert list(spans.columns) == ["held_from", "held_until", "committed_at", "keys"]
    assert spans["held_from"].tolist() == [1, 5]
    assert spans["held_until"].tolist() == [4, pd.NA]
    assert spans["keys"].tolist() == [2, 1]
    assert spans["committed_at"][0] - START == pd.Timedelta(minutes=1)


def test_spans_of_each_key(history: ss.History) -> None:
    """Versions of a key that follow each other are one span."""
    spans = history.when("value > 6", per_key=True)
    assert list(spans.columns) == ["key", "held_from", "held_until", "committed_at"]
    assert rows_of(spans, "key", "held_from", "held_until") == [("a", 1, 3), ("b", 2, 4), ("b", 5, None)]
    assert len(history.when("value > 6", per_key=True, key="a")) == 1
    assert len(history.when("value > 100")) == 0
    assert len(history.when("value > 100", per_key=True)) == 0


@pytest.mark.parametrize(
    ("ask", "error", "says"),
    [
        (lambda h: h.first("vale > 3"), UnknownColumnError, "Did you mean 'value'"),
        (lambda h: h.first("value >"), InvalidSQLError, "does not parse"),
        (lambda h: h.first("count(*) > 3"), InvalidSQLError, "about many rows"),
        (lambda h: h.when("value = (SELECT 1)"), InvalidSQLError, "not a condition"),
        (lambda h: h.when("row_number() OVER () = 1"), InvalidSQLError, "about many rows"),
        (lambda h: h.first("value > 3", kez="a"), UnknownColumnError, "Did you mean 'key'"),
        (lambda h: h.first("upper(key) + 1 > 3"), InvalidSQLError, "cannot be run"),
        (lambda h: h.first("value > 3", table="op7"), UnknownTableError, "op0"),
    ],
)
def test_bad_conditions(history: ss.History, ask: Callable[[Any], object], error: type[Exception], says: str) -> None:
    """Each says what would be right."""
    with pytest.raises(error, match=says):
        ask(history)


def test_a_store_without_epochs(tmp_path: Path) -> None:
    """Nothing has held where nothing is captured, and that is said."""
    write(tmp_path, [])
    with pytest.raises(UnknownEpochError):
        ss.open_store(tmp_path)["q"].first("value > 1")


@EXAMPLES
@given(HISTORIES, st.integers(0, 3), st.integers(0, 3), st.sampled_from([None, "a", "f"]))
def test_spans_are_those_of_brute_force(
    states: list[State | None], keyframe_every: int, limit: int, key: str | None
) -> None:
    """Walking through the epochs gives the same."""
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), states, keyframe_every=keyframe_every)
        history = ss.open_store(folder)["q"]
        met = [
            {name for name, value in (state or {}).items() if value >= limit and key in (None, name)}
            for state in states
        ]
        chosen: dict[str, Any] = {} if key is None else {"key": key}
        predicate = f"value >= {limit}"
        expected = next((epoch for epoch, names in enumerate(met) if names), None)
        assert history.first(predicate, **chosen) == expected
        overall = history.when(predicate, **chosen)
        assert rows_of(overall, "held_from", "held_until", "keys") == walked([len(names) for names in met])
        per_key = history.when(predicate, per_key=True, **chosen)
        for name in "abcdef":
            alone = [(start, end) for start, end, _ in walked([int(name in names) for names in met])]
            assert rows_of(per_key[per_key["key"] == name], "held_from", "held_until") == alone


def walked(numbers: list[int]) -> list[tuple[int, int | None, int]]:
    """From, until and the largest number of each stretch of numbers above 0."""
    spans: list[tuple[int, int | None, int]] = []
    start: int | None = None
    for epoch, number in enumerate([*numbers, 0]):
        if number and start is None:
            start = epoch
        if not number and start is not None:
            spans.append((start, epoch if epoch < len(numbers) else None, max(numbers[start:epoch])))
            start = None
    return spans


def rows_of(frame: pd.DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    """Some columns' rows, what is missing as None."""
    return [tuple(None if pd.isna(cell) else cell for cell in row) for row in frame[list(columns)].to_numpy(object)]


def test_a_key_that_does_not_fit_its_type(history: ss.History) -> None:
    """The message says what the key's types are."""
    with pytest.raises(InvalidArgumentError, match="key string"):
        history.first("value > 3", key=object())
