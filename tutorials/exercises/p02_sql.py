"""The exercises of the notebook 02, on state as a database: who hid a blizzard, and a statement over two epochs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from streamstate.tutorials.exercises.construct import Exercise
from streamstate.tutorials.exercises.questions import Choice, Question, WrongAnswer
from streamstate.tutorials.exercises.statement import Statement, spans_of_epochs

_UNTIL = 24
"""The epoch for which the notebook waits."""

_ADDED = """
    SELECT sum(cancelled) FROM (
        SELECT _valid_from,
               count - count_2 - lag(count - count_2, 1, 0) OVER (PARTITION BY carrier, origin ORDER BY _valid_from)
                   AS cancelled
        FROM delays.history
    )
    WHERE _valid_from {after} $before AND _valid_from <= $last
    """

EXERCISES: Sequence[Question | Exercise] = (
    Question(
        id="averages",
        task="How many averages fell in the epoch of the blizzard?",
        kind=Choice({"none": "none", "few": "less than half", "most": "more than half"}),
        truth=None,
        because="Of 32 averages, 19 fell.",
        wrong=[
            WrongAnswer("none", "That would be so if a storm only made flights late."),
            WrongAnswer("few", "A storm delays flights. What else does it do to them?"),
        ],
        hints=["Which flights leave on a day on which an airport closes at five in the afternoon?"],
    ),
    Question(
        id="culprit",
        task="Who hid the blizzard?",
        kind=Choice(
            {
                "query": "the query: it lost departures",
                "data": "the data: the feed has no flights of those hours",
                "airline": "the airline: it was on time in spite of the storm",
                "average": "the average: it answers another question",
            }
        ),
        truth=None,
        because="All 316 flights are in the feed and in the state. The 43 that were cancelled have no delay, and an "
        "average leaves out what is missing.",
        wrong=[
            WrongAnswer("query", "The state counted 316 planned departures, about as many as in any three days."),
            WrongAnswer("data", "The flights of those hours are in the state of `weather`: the feed has them."),
            WrongAnswer("airline", "From five in the afternoon none of its flights left. What is on time about that?"),
        ],
        hints=[
            "Compare the columns planned and departed.",
            "A suspect is innocent if a flight that was cancelled is still there after it was done.",
        ],
    ),
    Statement(
        id="cancelled",
        task="How many departures were cancelled between two epochs?",
        arguments=["before", "last"],
        cases=spans_of_epochs(_UNTIL),
        store=Path("streamstate-data/detective/store"),
        query="delays",
        until=_UNTIL,
        solution=_ADDED.format(after=">"),
        wrong=[
            WrongAnswer(
                "SELECT sum(count - count_2) - (SELECT sum(count - count_2) FROM delays VERSION AS OF $before) "
                "FROM delays",
                "A relation without a version is read at the newest epoch. Which one should the span end with?",
            ),
            WrongAnswer(
                "SELECT sum(count - count_2) FROM delays VERSION AS OF $last",
                "That is everything since the first epoch. The state holds totals: take away what was there before.",
            ),
            WrongAnswer(
                _ADDED.format(after=">="),
                "Epoch `$before` is the last one that does not count. Your span begins with it.",
            ),
            WrongAnswer(
                "SELECT count(*) FROM delays.changes WHERE _epoch > $before AND _epoch <= $last",
                "That counts changes: one for each key and epoch, however many flights were in it.",
            ),
            WrongAnswer(
                "SELECT sum(count - count_2) FROM delays.changes WHERE _epoch > $before AND _epoch <= $last",
                "A row of the changelog holds the total of its key so far. Their sum counts early flights many times.",
            ),
        ],
        hints=[
            "`count` has the planned departures of a key, `count_2` those with a delay.",
            "Both are totals since the first epoch: what happened in a span is a difference of two epochs.",
            "`SELECT sum(count - count_2) FROM delays VERSION AS OF $last` is one half of it.",
        ],
    ),
)
