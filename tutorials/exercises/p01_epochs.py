"""The exercises of the notebook 01, on epochs and consistency: torn reads, and how to notice them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

from streamstate.tutorials.exercises.construct import Construct, Exercise, Invariant
from streamstate.tutorials.exercises.questions import Choice, Number, Question, WrongAnswer

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

    from streamstate.tutorials.exercises.sampling import Case

Counts = Mapping[str, int]


def _reads() -> SearchStrategy[Case]:
    """Reads of up to four tables, each with the newest epoch before it and after it."""
    from hypothesis import strategies as st

    def pairs(steps: list[int]) -> Case:
        looks = list(accumulate(steps, initial=2))
        return ([(looks[at], looks[at + 1]) for at in range(0, len(looks) - 1, 2)],)

    sizes = st.sampled_from([1, 3, 5, 7])
    return sizes.flatmap(lambda size: st.lists(st.sampled_from([0, 0, 0, 1]), min_size=size, max_size=size)).map(pairs)


def _departures() -> SearchStrategy[Case]:
    from hypothesis import strategies as st

    return st.tuples(st.lists(st.sampled_from(["B6", "DL", "UA"]), max_size=6))


def _torn_later(passed: Sequence[str]) -> Counts:
    return Counter([*passed, *passed[-1:]])


def _torn_earlier(passed: Sequence[str]) -> Counts:
    return Counter(passed[:-1])


def _misbooked(passed: Sequence[str]) -> Counts:
    if not passed:
        return {}
    return Counter([*sorted(passed)[1:], max(passed)])


def _one_more_carrier(passed: Sequence[str]) -> Counts:
    return {**Counter(passed), "HA": 1}


def _one_carrier_less(passed: Sequence[str]) -> Counts:
    return Counter(carrier for carrier in passed if carrier != max(passed))


EXERCISES: Sequence[Question | Exercise] = (
    Question(
        id="torn",
        task="Two reads, and a file in between: which is larger?",
        kind=Choice({"first": "the first", "second": "the second", "equal": "both are equal"}),
        truth=None,
        because="Both reads are right. They belong to different epochs.",
        wrong=[
            WrongAnswer("first", "What is read later has seen more input, not less."),
            WrongAnswer("equal", "They are equal at each epoch. Which one is the newest when the second is read?"),
        ],
        hints=["Both read the newest epoch. When?"],
    ),
    Construct(
        id="one_epoch",
        task="Do all reads certainly belong to one epoch?",
        arguments=["reads"],
        cases=_reads,
        examples=[([(2, 2), (3, 3)],), ([(2, 2), (2, 2)],)],
        solution=lambda reads: reads[0][0] == reads[-1][1],
        wrong=[
            WrongAnswer(
                lambda reads: all(before == after for before, after in reads),
                "Each read saw one epoch. Did all see the same one?",
            ),
            WrongAnswer(
                lambda reads: len({before for before, _ in reads}) == 1,
                "The epoch may change during the last read. What did that see, then?",
            ),
            WrongAnswer(
                lambda reads: len({after for _, after in reads}) == 1,
                "The epoch may have changed during the first read. What did that see, then?",
            ),
            WrongAnswer(
                lambda reads: reads[-1][1] - reads[0][0] <= 1,
                "One epoch in between is enough to tear a picture.",
            ),
        ],
        hints=[
            "When can you be certain that no epoch was committed between the first read and the last?",
            "Epochs only go up.",
            "Compare what was the newest before everything with what was the newest after everything.",
        ],
    ),
    Question(
        id="power",
        task="The power fails after the first commit: which epoch does a reader see?",
        kind=Number(),
        truth=None,
        because="The manifest decides, and its row for epoch 5 is not there yet.",
        wrong=[
            WrongAnswer(5, "Of epoch 5, one changelog is on disk and the other is not. Who says that it is complete?"),
            WrongAnswer(3, "Epoch 4 was complete before, and nothing takes it away."),
        ],
        hints=["Which of the three commits makes an epoch visible?"],
    ),
    Invariant(
        id="balanced",
        task="An invariant that catches books which do not agree",
        arguments=["passed"],
        cases=_departures,
        rule=Counter,
        mutants=[
            WrongAnswer(_torn_later, "reads the counts an epoch later."),
            WrongAnswer(_torn_earlier, "reads the counts an epoch earlier."),
            WrongAnswer(_misbooked, "counts a departure for another carrier: the sum is right."),
            WrongAnswer(_one_more_carrier, "has a carrier of which no departure was let through."),
            WrongAnswer(_one_carrier_less, "has lost a carrier."),
        ],
        solution=lambda passed, counted: counted == Counter(passed),
        wrong=[
            WrongAnswer(
                lambda passed, counted: sum(counted.values()) == len(passed),
                "Two errors may cancel each other out in a sum.",
            ),
            WrongAnswer(
                lambda passed, counted: all(counted.get(carrier) == passed.count(carrier) for carrier in passed),
                "You look at the carriers of one book. What if the other has more of them?",
            ),
            WrongAnswer(
                lambda passed, counted: all(passed.count(carrier) == count for carrier, count in counted.items()),
                "You look at the carriers that were counted. What if one was not?",
            ),
            WrongAnswer(
                lambda passed, counted: set(passed) == set(counted),
                "Both books have the same carriers. Do they say the same of each?",
            ),
        ],
        hints=["Compare carrier by carrier, not the sums.", "In both directions: each carrier of either book."],
    ),
)
