"""The exercises of the notebook 04, on replay: find the line that cannot be replayed, and write one that can."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from streamstate.tutorials.exercises.construct import Construct, Exercise
from streamstate.tutorials.exercises.questions import Choice, Number, Question, WrongAnswer

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

    from streamstate.tutorials.exercises.sampling import Case

DAY = timedelta(days=1)


class Departure(datetime):
    """A departure's time, short to read."""

    def __repr__(self) -> str:
        return f"{self:%d %b %H:%M}"


def _january(minute: int) -> Departure:
    return Departure(2013, 1, 1, tzinfo=UTC) + timedelta(minutes=minute)


def _cases() -> SearchStrategy[Case]:
    from hypothesis import strategies as st

    times = st.integers(0, 6 * 24 * 60 - 1).map(_january)
    return st.tuples(st.lists(times, min_size=1, max_size=5, unique=True))


def _midnight() -> datetime:
    return datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


EXERCISES: Sequence[Question | Exercise] = (
    Question(
        id="line",
        task="Which line does a replay not repeat?",
        kind=Choice(
            {
                "a": "the sample of the aircraft",
                "b": "the time of the epoch",
                "c": "the order of the rows",
                "d": "the time at which an aircraft is away",
            }
        ),
        truth=None,
        because="It reads the machine's clock, which is later in a replay. Spark's `current_timestamp()` in line b is "
        "the epoch's time, which Spark writes into its log before the epoch runs.",
        wrong=[
            WrongAnswer("a", "A hash only looks like chance: the same aircraft has the same hash in every run."),
            WrongAnswer("b", "Whose clock does `current_timestamp()` read, and is what it read written down?"),
            WrongAnswer("c", "The order may differ. What does the processor do with the legs before it uses them?"),
        ],
        hints=[
            "For each line: from what is its value computed, and is that the same in a replay?",
            "Two lines have to do with time. Spark plans an epoch before it runs it: what is in the plan?",
        ],
    ),
    Question(
        id="diverge",
        task="How many of the audit's two replays diverge?",
        kind=Number(),
        truth=None,
        because="Whatever the number of partitions, the clock has moved on. Where the order of rows is the reason, the "
        "replay with as many partitions as the original often agrees with it, and only the other one differs.",
        wrong=[
            WrongAnswer(0, "Then the query would be deterministic. Why were no aircraft forgotten?"),
            WrongAnswer(1, "That would point to the order of rows. Does this line depend on partitions?"),
        ],
        hints=["What does the number of partitions change: the rows of an aircraft, or the order in which they come?"],
    ),
    Question(
        id="merge",
        task="Are the two sums equal?",
        kind=Choice({"same": "the same", "differ": "they differ"}),
        truth=lambda: "same" if (0.1 + 0.2) + 0.3 == 0.1 + (0.2 + 0.3) else "differ",
        because="Each addition is rounded, so that the order decides about the last digit. A merge of two channels "
        "decides about the order.",
        wrong=[WrongAnswer("same", "In mathematics they are. A double has 53 bits, and rounds after each step.")],
        hints=["`0.1 + 0.2` is not 0.3 for a computer."],
    ),
    Construct(
        id="away_at",
        task="When is an aircraft away? A rule that can be replayed",
        arguments=["departures"],
        cases=_cases,
        solution=lambda departures: max(departures) + DAY,
        wrong=[
            WrongAnswer(
                lambda departures: departures[-1] + DAY,
                "The last row is not the last flight: rows of a key come in no fixed order, in another one next time.",
            ),
            WrongAnswer(
                lambda departures: min(departures) + DAY,
                "That is a day after its first flight of this epoch. It has flown since.",
            ),
            WrongAnswer(max, "It is away at the moment at which it departs, then."),
            WrongAnswer(
                lambda departures: _midnight() + DAY,
                "It still reads a clock, if only the calendar. A replay tomorrow leads to another state.",
            ),
            WrongAnswer(
                lambda departures: _january(6 * 24 * 60),
                "It is the same for every aircraft. What it should depend on is in its departures.",
            ),
        ],
        hints=[
            "Everything that the rule needs comes with the rows.",
            "A day after which of the departures? They are in no fixed order.",
            "`AWAY_AFTER` is a day.",
        ],
    ),
)
