"""The exercise of the notebook 03, "Watching a stream": a query of one's own, graded by the state that it leaves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from streamstate.tutorials.exercises.construct import Exercise, StateExercise
from streamstate.tutorials.exercises.grading import does_not_grow, has_results
from streamstate.tutorials.exercises.own_query import DATA, OwnQuery
from streamstate.tutorials.exercises.questions import Choice, Question, WrongAnswer

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import Column, DataFrame

    from streamstate.state_inspect import History
    from streamstate.tutorials.staging import Arrivals

FOLDER = Path("streamstate-data/counted-once")
BEFORE, AFTER = 6, 6
"""How many files arrive before one arrives again, and after it."""
KEY = ("day", "carrier", "origin")


def day() -> Column:
    """The day of a departure in New York, as a window over ``scheduled``."""
    from pyspark.sql import functions as F

    return F.window("scheduled", "1 day", startTime="5 hours").alias("day")


def something_happens(arrivals: Arrivals) -> None:
    """Let something happen that the reader is to find out."""
    arrivals.again()


def run(build: Callable[[DataFrame], DataFrame | None]) -> History | None:
    """Run a query over two-day files of departures, of which the sixth arrives twice; one file is one epoch."""
    own = OwnQuery(FOLDER, files=BEFORE, name="counted_once")
    own.arrivals.again()
    own.arrive(AFTER)
    frame = build(own.departures())
    return None if frame is None else own.run(frame)


@cache
def _departures() -> pd.DataFrame:
    """The departures of each file that arrives, without the one that arrives again."""
    import pandas as pd

    from streamstate.tutorials.data import file_names

    files = file_names(DATA)[: BEFORE + AFTER]
    frames = [pd.read_parquet(DATA / "flights" / name).assign(file=number) for number, name in enumerate(files)]
    departures = pd.concat(frames)
    start = (departures["scheduled"] - pd.Timedelta(hours=5)).dt.strftime("%Y-%m-%d")
    return departures.assign(day=start)


def _expected(epoch: int) -> pd.Series:
    arrived = epoch + 1 if epoch < BEFORE else epoch  # the file that came again added nothing
    departures = _departures()
    return departures[departures["file"] < arrived].groupby(list(KEY)).size()


def _right(history: History) -> str:
    return has_results(history, _expected, key=KEY, value="departures", epochs=range(BEFORE + AFTER + 1))


def _counted(departures: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    return departures.groupBy(day(), "carrier", "origin").agg(F.count("*").alias("departures"))


_IDENTITY = ["scheduled", "carrier", "flight", "origin"]


def _solution(departures: DataFrame) -> DataFrame:
    return _counted(departures.withWatermark("scheduled", "1 day").dropDuplicatesWithinWatermark(_IDENTITY))


EXERCISES: Sequence[Question | Exercise] = (
    Question(
        id="shrinks",
        task="What does an epoch without input change?",
        kind=Choice({"nothing": "nothing", "grows": "the state grows", "shrinks": "the state shrinks"}),
        truth=None,
        because="Epoch 15 reads nothing: the watermark had moved on, and Spark ran a batch just to remove what had "
        "expired.",
        wrong=[
            WrongAnswer(
                "nothing", "Then why would Spark run it? Something was left to do once the watermark had moved."
            ),
            WrongAnswer("grows", "Without input, no key is new."),
        ],
        hints=["A watermark that was moved by an epoch counts from the next one."],
    ),
    Question(
        id="happened",
        task="What happened in epoch 16?",
        kind=Choice(
            {
                "late": "departures of earlier days arrived late",
                "twice": "the same departures arrived again",
                "busy": "a busy day",
                "code": "somebody changed the query",
            }
        ),
        truth=None,
        because="Every count is exactly twice what it was.",
        wrong=[
            WrongAnswer("late", "Late departures would add to some keys, not to every key as much as it already had."),
            WrongAnswer("busy", "A busy day is a new day: it has keys of its own."),
            WrongAnswer("code", "Other code starts with a restart, and the timeline shows none."),
        ],
        hints=["By how much did each count change?"],
    ),
    StateExercise(
        id="counted_once",
        task="Count each departure once, and do not leak",
        solution=_solution,
        capture=run,
        grades=[_right, does_not_grow],
        wrong=[
            WrongAnswer(lambda departures: _counted(departures.withWatermark("scheduled", "1 day")), "`departures` of"),
            WrongAnswer(
                lambda departures: _counted(
                    departures.withWatermark("scheduled", "1 day").dropDuplicatesWithinWatermark(["carrier", "flight"])
                ),
                "It should be",
            ),
            WrongAnswer(lambda departures: _counted(departures.dropDuplicates(_IDENTITY)), "It leaks:"),
        ],
        hints=[
            "Which columns make two rows the same departure? A carrier uses a flight number every day.",
            "Spark must remember the departures that it has seen. For how long?",
            "`withWatermark` first; then `dropDuplicatesWithinWatermark` forgets with it.",
        ],
    ),
)
