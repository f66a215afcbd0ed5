"""A policy: its values, its text, and its contradictions with a query."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

import streamstate as ss
from streamstate.errors import InvalidArgumentError
from streamstate.operations.policies.decision import Levers

FREE = Levers(can_shed=True, can_limit=True, can_rescale=True, partitions=4, cores=16)


@pytest.mark.parametrize(
    ("latency", "seconds"), [("5s", 5), ("500ms", 0.5), ("1m", 60), (timedelta(seconds=3), 3), (2, 2)]
)
def test_a_latency_is_kept_in_seconds(latency: Any, seconds: float) -> None:
    """It is a text, a timedelta or seconds."""
    assert ss.Policy(latency=latency).seconds == seconds


@pytest.mark.parametrize(
    ("limit", "size"), [("10GB", 10**10), ("512MiB", 512 * 2**20), ("1.5 TB", 15 * 10**11), (7, 7), ("64kB", 64_000)]
)
def test_a_size_is_kept_in_bytes(limit: Any, size: int) -> None:
    """Units of 1000 and of 1024 are told apart."""
    assert ss.Policy(latency="5s", state_limit=limit).size_limit == size


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"latency": "soon"}, "Invalid latency='soon': expected seconds above zero, or a duration such as 500ms"),
        ({"latency": "0s"}, "Invalid latency='0s': expected a duration longer than zero"),
        ({"latency": -1}, "Invalid latency=-1"),
        ({"latency": True}, "Invalid latency=True"),
        ({"latency": float("nan")}, "Invalid latency=nan"),
        ({"may_drop": 1}, "Invalid may_drop=1: expected a share from 0 to below 1"),
        ({"may_drop": -0.1}, "Invalid may_drop=-0.1"),
        ({"may_drop": float("nan")}, "Invalid may_drop=nan"),
        ({"may_drop": "20%"}, "Invalid may_drop='20%'"),
        ({"partitions": (16, 4)}, r"the fewest come first: did you mean \(4, 16\)\?"),
        ({"partitions": (4, 8, 16)}, "expected the fewest and the most"),
        ({"partitions": 0}, "Invalid partitions=0: expected an integer of at least 1"),
        ({"state_limit": "big"}, "Invalid state_limit='big': expected bytes, or a size such as '10GB'"),
        ({"state_limit": 0}, "Invalid state_limit=0"),
        ({"keep": "delay > 60"}, "The policy has keep but may_drop=0"),
        ({"keep": " ", "may_drop": 0.1}, "Invalid keep=' '"),
        (
            {"utility": ((60, 1), (0, 2)), "may_drop": 0.1},
            "at most five pairs of a lower bound of the value",
        ),
        ({"utility": "delay", "may_drop": 0.1}, "Invalid utility='delay'"),
    ],
)
def test_a_value_that_cannot_be_meant_is_refused(arguments: dict[str, Any], message: str) -> None:
    """The message says what would be right."""
    with pytest.raises(InvalidArgumentError, match=message):
        ss.Policy(**{"latency": "5s", **arguments})


def test_the_text_in_the_store_gives_the_same_policy() -> None:
    """So do changed values; unknown ones are named."""
    policy = ss.Policy(
        latency="5s", keep="delay > 60", may_drop=0.2, weight="w", partitions=(4, 16), state_limit="10GB",
        utility=((0, 1), (60, 10)),
    )  # fmt: skip
    assert ss.Policy.of(policy.text()) == policy
    assert hash(ss.Policy.of(policy.text())) == hash(policy)
    assert ss.Policy.of(ss.Policy(latency=1).text()) == ss.Policy(latency="1s")
    assert policy.changed(partitions=8).partition_range == (8, 8)
    assert repr(policy.changed(utility=None)) == (
        "Policy(latency='5s', keep='delay > 60', may_drop=0.2, weight='w', partitions=(4, 16), state_limit='10GB')"
    )
    with pytest.raises(InvalidArgumentError, match="no latancy: it has latency, keep"):
        policy.changed(latancy="2s")


def test_html_escapes_what_people_wrote() -> None:
    """A condition is not markup."""
    html = ss.Policy(latency="5s", keep="a < '<b>'", may_drop=0.1)._repr_html_()
    assert "<b>" not in html
    assert "a &lt; " in html


@pytest.mark.parametrize(
    ("policy", "levers", "message"),
    [
        (ss.Policy(latency="5s"), Levers(trigger=10), "latency='5s' cannot be kept with a trigger of 10s"),
        (ss.Policy(latency="5s"), Levers(trigger=3), "a trigger of at most 2.5s, or a latency of at least 6s"),
        (ss.Policy(latency="5s", may_drop=0.2), Levers(), "may_drop=0.2, but the query sheds nothing"),
        (ss.Policy(latency="5s", weight="w"), Levers(), "weight='w', but the query sheds nothing"),
        (ss.Policy(latency="5s", partitions=(4, 8)), Levers(partitions=2), "has 2 and cannot be repartitioned"),
    ],
)
def test_a_contradiction_with_the_query_is_said_in_words(policy: ss.Policy, levers: Levers, message: str) -> None:
    """The same policy fits a query with other levers."""
    assert message in " ".join(policy.contradictions(levers))
    assert policy.contradictions(FREE) == []


def test_what_is_possible_but_of_little_use_is_a_note() -> None:
    """A policy that may drop nothing and move no partitions cannot hold in an overload."""
    assert "rows wait in them" in ss.Policy(latency="5s").notes(Levers())[0]
    assert ss.Policy(latency="5s", may_drop=0.2, partitions=(4, 16)).notes(FREE) == []
    assert "Only 4 tasks run" in ss.Policy(latency="5s", partitions=(4, 16)).notes(Levers(can_rescale=True, cores=4))[0]
