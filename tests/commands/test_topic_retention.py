"""Epochs whose records a topic has deleted, from offsets alone. The tests of Kafka ask a broker."""

from __future__ import annotations

import pytest

from streamstate.operations.checkup.topic_retention import last_gone

ENDS = {
    -1: {"flights": {"0": 0, "1": 100}},
    0: {"flights": {"0": 10, "1": 100}},
    1: {"flights": {"0": 10, "1": 130}},
    2: {"flights": {"0": 20, "1": 130, "2": 7}},
    5: {"flights": {"0": 90, "1": 130, "2": 9}},
}


@pytest.mark.parametrize(
    ("first", "gone"),
    [
        ({"0": 0, "1": 0, "2": 0}, None),
        ({"0": 0, "1": 100, "2": 0}, None),
        ({"0": 1, "1": 0, "2": 0}, 0),
        ({"0": 10, "1": 0, "2": 0}, 0),
        ({"0": 0, "1": 101, "2": 0}, 1),
        ({"0": 11, "1": 0, "2": 0}, 2),
        ({"0": 500, "1": 500}, 2),
        ({}, None),
    ],
)
def test_an_epoch_is_gone_if_its_first_record_is(first: dict[str, int], gone: int | None) -> None:
    """What lies before the start of the query does not matter; after a gap and in a new partition it is not known."""
    assert last_gone("flights", first, ENDS) == gone
    assert last_gone("gates", first, ENDS) is None
