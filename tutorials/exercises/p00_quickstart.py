"""The exercises of the notebook 00, "What is inside a running stream?": a question, and one line of SQL."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from streamstate.tutorials.exercises.construct import Exercise
from streamstate.tutorials.exercises.questions import Choice, Question, WrongAnswer
from streamstate.tutorials.exercises.statement import Statement

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

    from streamstate.tutorials.exercises.sampling import Case

_UNTIL = 3
"""The epoch for which the notebook waits."""


def _cases() -> SearchStrategy[Case]:
    from hypothesis import strategies as st

    return st.tuples(st.integers(0, _UNTIL))


EXERCISES: Sequence[Question | Exercise] = (
    Question(
        id="late",
        task="Why is Hawaiian's average so high?",
        kind=Choice(
            {
                "always": "its flights are always late",
                "worse": "they leave later and later",
                "once": "a single flight was very late",
                "twice": "the query counted flights twice",
            }
        ),
        truth=None,
        because="The average jumped in one epoch, by one of its three flights. Every other epoch brought it down.",
        wrong=[
            WrongAnswer("always", "Then the average would have been high from the first epoch."),
            WrongAnswer("worse", "Then it would have risen in every epoch."),
            WrongAnswer("twice", "A flight that counts twice weighs twice; it does not make an average this high."),
        ],
        hints=["The average is the same if each of its flights left two hours late, or if one left a day late."],
    ),
    Statement(
        id="departures",
        task="How many departures had the query counted at an epoch?",
        arguments=["epoch"],
        cases=_cases,
        store=Path("streamstate-data/store"),
        query="delays",
        until=_UNTIL,
        solution="SELECT sum(count) FROM delays VERSION AS OF $epoch",
        wrong=[
            WrongAnswer(
                "SELECT sum(count) FROM delays",
                "That is the newest epoch, whichever one is asked for. Run it again in a second, and it says more.",
            ),
            WrongAnswer(
                "SELECT count(*) FROM delays VERSION AS OF $epoch",
                "That is the number of rows. A row of the state is a key, and a key has counted many departures.",
            ),
            WrongAnswer(
                "SELECT sum(count) FROM delays.history WHERE _valid_from <= $epoch",
                "The history has every version of a key. Each holds the key's total so far, so do not add them up.",
            ),
            WrongAnswer(
                "SELECT sum(count_2) FROM delays VERSION AS OF $epoch",
                "`count_2` counts the delays. A flight that was cancelled was planned, and has none.",
            ),
        ],
        hints=[
            "`SELECT * FROM delays LIMIT 3` shows what a row is.",
            "Each row has the `count` of its key. Add them up.",
            "`FROM delays VERSION AS OF $epoch`",
        ],
    ),
)
