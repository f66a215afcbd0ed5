"""The lease of streamstate in the simulation that judges the exercises of notebook 10."""

from __future__ import annotations

import pytest

from streamstate.tutorials.exercises.simulated_lease import Files, Owned, owners_after_two_claims, still_owner


@pytest.mark.parametrize(
    ("seconds", "ahead", "owner"),
    [
        ("rrr..r", 0, True),
        ("rrr...r", 0, False),
        ("rrr..........r", 0, False),
        ("rrr..........r", None, False),
        ("rrrrrrrr", 3600, True),
        ("rrrrrrrr", -3600, True),
    ],
    ids=["short cut", "long cut", "pause", "pause alone", "clock ahead", "clock behind"],
)
def test_an_owner_is_one_as_long_as_it_renews_in_time(seconds: str, ahead: float | None, owner: bool) -> None:
    """A renewal counts for four seconds of six, whoever watches, and whatever other clocks say."""
    assert still_owner(seconds, ahead=ahead) is owner


def test_a_standby_claims_after_six_seconds_of_silence() -> None:
    """Not before; its clock counts from its own first look."""
    query = Owned()
    standby = query.process(ahead=3600)
    claims = []
    for _ in range(8):
        query.now += 1
        claims.append(standby.try_acquire())
    assert claims == [False] * 6 + [True, False]


def test_two_claims_make_one_owner_because_a_file_is_created_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a store that lets a file be created twice, both would own the query."""
    assert owners_after_two_claims() == 1
    monkeypatch.setattr(Files, "create", _create_again)
    assert owners_after_two_claims() == 2


def _create_again(files: Files, path: str, text: str) -> None:
    while files.before_next:
        files.before_next.pop()()
    files.replace(path, text)
