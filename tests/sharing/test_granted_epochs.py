"""The epochs that are granted now, by number and by time, against brute force: clocks may go back."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamstate.sharing.granted_epochs import GrantedEpochs
from streamstate.sharing.protocol import AskedError
from streamstate.snapshots.store.entries import Entries, Entry, as_rows
from streamstate.snapshots.store.layout import CAPTURED

START = datetime(2026, 1, 1, tzinfo=UTC)
SECONDS = st.integers(-5, 25)


def at(seconds: float) -> datetime:
    """A time so many seconds after the start."""
    return START + timedelta(seconds=seconds)


def answer(question: Callable[[], int]) -> int | None:
    """The epoch that a question gives; None if it is refused."""
    try:
        return question()
    except AskedError:
        return None


@given(
    steps=st.lists(st.tuples(st.integers(1, 3), st.sampled_from(["captured", "gap", "no time"]), SECONDS), max_size=12),
    since=st.integers(0, 12),
    keep=st.one_of(st.none(), st.integers(1, 20)),
    now=SECONDS,
    moments=st.lists(SECONDS, min_size=1, max_size=4),
)
def test_every_question_equals_brute_force(
    steps: list[tuple[int, str, int]], since: int, keep: int | None, now: int, moments: list[int]
) -> None:
    """Commit times in any order, gaps, unknown times, epochs that are not granted yet or no longer."""
    entries, times, epoch = list[Entry](), dict[int, int](), -1
    for step, kind, second in steps:
        epoch += step
        if kind == "gap":
            entries.append(Entry.gap(epoch))
            continue
        entries.append(Entry(epoch, CAPTURED, committed_at=at(second) if kind == "captured" else None))
        if kind == "captured" and epoch >= since and (keep is None or now < second + keep):
            times[epoch] = second
    found = GrantedEpochs.of(Entries(as_rows(entries)), since, keep, at(now))
    assert len(found) == len(times)
    assert answer(lambda: found.newest) == max(times, default=None)
    for number in range(epoch + 2):
        assert (number in found) == (number in times)
        if number in times:
            assert found.at(number) == at(times[number])
            assert found.before(number) == max((other for other in times if other < number), default=None)
        else:
            with pytest.raises(AskedError):
                found.at(number)
        assert found.between(number, number + 4) == [other for other in times if number <= other <= number + 4]
    for moment in moments:
        by_then = [other for other, second in times.items() if second <= moment]
        later = [other for other, second in times.items() if second >= moment]
        assert answer(lambda moment=moment: found.at_or_before(at(moment))) == max(by_then, default=None)  # type: ignore[misc]
        assert answer(lambda moment=moment: found.at_or_after(at(moment))) == min(later, default=None)  # type: ignore[misc]
        if moment >= now:
            expires = keep is not None and any(moment >= second + keep for second in times.values())
            assert found.all_granted(at(moment)) == (not expires)


def test_times_to_the_microsecond() -> None:
    """A commit is by its own time, and not by the microsecond before."""
    commit = START + timedelta(days=9000, microseconds=1)
    found = GrantedEpochs.of(Entries(as_rows([Entry(0, CAPTURED, committed_at=commit)])), 0, None, START)
    assert found.at(0) == commit
    assert found.at_or_before(commit) == found.at_or_after(commit) == 0
    with pytest.raises(AskedError):
        found.at_or_before(commit - timedelta(microseconds=1))
    with pytest.raises(AskedError):
        found.at_or_after(datetime.max.replace(tzinfo=UTC))
