"""The notation of epochs: text such as ``40..60``, ranges and sequences; other values raise one error."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from streamstate.errors import InvalidArgumentError
from streamstate.snapshots.calls.epoch_range import epoch_list, epoch_span, parse_epochs

AVAILABLE = range(10, 31)


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("12", [12]),
        ("12..14", [range(12, 15)]),
        ("28..", [range(28, 31)]),
        ("..12", [range(10, 13)]),
        ("3,5,10..12", [3, 5, range(10, 13)]),
        (" 3 , 20.. ", [3, range(20, 31)]),
        ("40..", [range(40, 41)]),
        ("..5", [range(5, 6)]),
    ],
)
def test_text_is_parsed_to_epochs_and_ranges(text: str, parsed: list[Any]) -> None:
    """Both ends are included. An open end is the first or last available epoch, unless the given end is beyond it."""
    assert parse_epochs(text, AVAILABLE) == parsed


def test_an_open_range_without_available_epochs() -> None:
    """The range contains the given end only, which the caller reports as missing."""
    assert parse_epochs("7..,..9", ()) == [range(7, 8), range(9, 10)]


@pytest.mark.parametrize("text", ["", "a", "1,,2", "1:", ":3", "1-3", "-1", "..", "5..3", "1..2..3", "1.5", "²"])
def test_malformed_text_is_rejected(text: str) -> None:
    """The error shows the notation."""
    with pytest.raises(InvalidArgumentError, match=r"Invalid epochs .*'40\.\.60' \(both ends included\).*3,5,10\.\.20"):
        epoch_list(text, AVAILABLE) if text else parse_epochs(text, AVAILABLE)


def test_a_list_of_epochs_is_sorted_and_unique() -> None:
    """It can be given as text, range, sequence of integers and ranges, or NumPy array."""
    assert epoch_list([5, range(1, 4), 3], AVAILABLE) == [1, 2, 3, 5]
    assert epoch_list(range(3, 0, -1), AVAILABLE) == [1, 2, 3]
    assert epoch_list("29..,10", AVAILABLE) == [10, 29, 30]
    assert epoch_list(np.array([4, 2]), AVAILABLE) == [2, 4]


@pytest.mark.parametrize("epochs", [[], 5, [True], ["1"], [1.0], range(0), None])
def test_an_invalid_list_of_epochs_is_rejected(epochs: Any) -> None:
    """Empty lists, single numbers, and elements that are not integers are invalid."""
    with pytest.raises(InvalidArgumentError, match="Invalid epochs"):
        epoch_list(epochs, AVAILABLE)


def test_a_span_is_a_range_of_consecutive_epochs() -> None:
    """It can be given as text, as a range, or as the pair of its first and last epoch."""
    spans: list[Any] = ["12..14", range(12, 15), (12, 14), [12, 14]]
    assert {epoch_span(span, AVAILABLE) for span in spans} == {(12, 14)}
    assert epoch_span("12..", AVAILABLE) == (12, 30)
    assert epoch_span("12", AVAILABLE) == (12, 12)


@pytest.mark.parametrize(
    "epochs", ["3,5", (14, 12), (-1, 3), (True, 3), (1.0, 3), range(0), range(1, 9, 2), (1, 2, 3), 5, None]
)
def test_an_invalid_span_is_rejected(epochs: Any) -> None:
    """The error shows the notation, including the pair of the first and last epoch."""
    with pytest.raises(InvalidArgumentError, match=r"Invalid epochs .* or the pair \(40, 60\)"):
        epoch_span(epochs, AVAILABLE)
