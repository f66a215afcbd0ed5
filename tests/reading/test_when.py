"""Spans in which a condition held: the first epoch, overall and per key, against brute force."""

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
from streamstate.errors import (
    InvalidArgumentError,
    InvalidSQLError,
    UnknownColumnError,
    UnknownEpochError,
    UnknownTableError,
)
from streamstate.reports import History

pytestmark = pytest.mark.usefixtures("read_either_way")

STATES: list[State | None] = [
    {"a": 1, "b": 5},
    {"a": 7, "b": 5},
    {"a": 8, "b": 9},
    {"a": 1, "b": 9},
    None,
    {"a": 1, "b": 9, "c": 6},
]


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> History:
    """A query ``q`` with a gap at epoch 4."""
    folder = tmp_path_factory.mktemp("when")
    write(folder, STATES)
    return ss.open_store(folder)["q"]


def test_the_first_epoch_of_a_condition(history: History) -> None:
    """For any row, for one key, or None."""
    assert history.first("value > 6") == 1
    assert history.first("value > 6", key="b") == 2
    assert history.first("value > 6", key="c") is None
    assert history.first("key = 'c' AND value BETWEEN 5 AND 6") == 5


def test_overall_spans(history: History) -> None:
    """A span has its maximum number of rows; a gap ends a span, and a span that is still open has no end."""
    spans = history.when("value > 6")
    assert list(spans.columns) == ["held_from", "held_until", "committed_at", "keys"]
    assert spans["held_from"].tolist() == [1, 5]
    assert spans["held_until"].tolist() == [4, pd.NA]
    assert spans["keys"].tolist() == [2, 1]
    assert spans["committed_at"][0] - START == pd.Timedelta(minutes=1)


def test_spans_of_each_key(history: History) -> None:
    """Consecutive versions of a key form one span."""
    spans = history.when("value > 6", per_key=True)
    assert list(spans.columns) == ["key", "held_from", "held_until", "committed_at"]
    assert rows_of(spans, "key", "held_from", "held_until") == [("a", 1, 3), ("b", 2, 4), ("b", 5, None)]
    assert len(history.when("value > 6", per_key=True, key="a")) == 1
    assert len(history.when("value > 100")) == 0
    assert len(history.when("value > 100", per_key=True)) == 0


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda h: h.first("vale > 3"), UnknownColumnError, "Did you mean 'value'"),
        (lambda h: h.first("value >"), InvalidSQLError, "does not parse"),
        (lambda h: h.first("count(*) > 3"), InvalidSQLError, "about many rows"),
        (lambda h: h.when("value = (SELECT 1)"), InvalidSQLError, "not allowed in a condition"),
        (lambda h: h.when("row_number() OVER () = 1"), InvalidSQLError, "about many rows"),
        (lambda h: h.first("value > 3", kez="a"), UnknownColumnError, "Did you mean 'key'"),
        (lambda h: h.first("upper(key) + 1 > 3"), InvalidSQLError, "condition failed"),
        (lambda h: h.first("value > 3", table="op7"), UnknownTableError, "op0"),
    ],
)
def test_invalid_conditions_are_rejected(
    history: History, call: Callable[[Any], object], error: type[Exception], message: str
) -> None:
    """The error says what would be valid."""
    with pytest.raises(error, match=message):
        call(history)


def test_a_condition_without_captured_epochs_raises(tmp_path: Path) -> None:
    """Without a captured epoch there is an error, not an empty answer."""
    write(tmp_path, [])
    with pytest.raises(UnknownEpochError):
        ss.open_store(tmp_path)["q"].first("value > 1")


@EXAMPLES
@given(HISTORIES, st.integers(0, 3), st.integers(0, 3), st.sampled_from([None, "a", "f"]))
def test_spans_match_brute_force(states: list[State | None], keyframe_every: int, limit: int, key: str | None) -> None:
    """They match a walk through the epochs."""
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
    """Start, end and maximum of each run of numbers above 0."""
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
    """The rows of these columns, with None for missing values."""
    return [tuple(None if pd.isna(cell) else cell for cell in row) for row in frame[list(columns)].to_numpy(object)]


def test_a_key_of_the_wrong_type_is_rejected(history: History) -> None:
    """The error names the key's types."""
    with pytest.raises(InvalidArgumentError, match="type string"):
        history.first("value > 3", key=object())
