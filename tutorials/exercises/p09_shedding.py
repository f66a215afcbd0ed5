"""The exercises of the notebook 09, "When more arrives than a query can process": estimates from what is kept."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import streamstate as ss
from streamstate.errors import UnknownVariableError
from streamstate.shedding import level_for, level_variable, weighted_count
from streamstate.tutorials.exercises.answers import Table
from streamstate.tutorials.exercises.construct import Construct, Exercise, StateExercise
from streamstate.tutorials.exercises.own_query import OWN, OwnQuery, Runs
from streamstate.tutorials.exercises.questions import Choice, Number, Question, WrongAnswer

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy
    from pyspark.sql import DataFrame

    from streamstate.state_inspect import History
    from streamstate.tutorials.exercises.attempts import Function
    from streamstate.tutorials.exercises.sampling import Case

Rows: TypeAlias = list[tuple[float, float]]
"""Values with their weights."""
Estimate: TypeAlias = Callable[[Rows], tuple[float, float] | None]

KEPT: Rows = [(6000, 1), (300, 4), (500, 4)]
"""The costs of three flights that were kept."""
_NEAR, _MOST = 3, 0.75
"""An estimate is near within so many errors, and so many must be, as a share."""


@dataclass(frozen=True)
class OverAllSamples:
    """A rule's averages over all samples of the same rows: its estimates, their variance, and its squared errors.

    ``samples`` has the probability, the rows, the estimate and the error of each.
    """

    estimate: float
    variance: float
    squared_error: float
    samples: Sequence[tuple[float, Rows, float, float]] = field(compare=False)

    def __repr__(self) -> str:
        return f"{self.estimate:g} ± {math.sqrt(self.squared_error):.4g} on average"


def estimate(kept: Rows) -> tuple[float, float]:
    """Return an estimate of the sum, and its standard error, as Horvitz and Thompson do."""
    total = sum(weight * value for value, weight in kept)
    return total, math.sqrt(sum(weight * (weight - 1) * value**2 for value, weight in kept))


def samples(rows: Rows) -> Iterator[tuple[float, Rows]]:
    """Return each sample of the rows, with its probability: a row is kept with the inverse of its weight."""
    for choices in product(*[(True, False) if weight > 1 else (True,) for _, weight in rows]):
        drawn = list(zip(rows, choices, strict=True))
        probability = math.prod(1 / weight if kept else 1 - 1 / weight for (_, weight), kept in drawn)
        yield probability, [row for row, kept in drawn if kept]


def over_all_samples(rule: Estimate, rows: Rows) -> OverAllSamples | None:
    """Apply a rule to each sample; None if it returns nothing."""
    total = sum(value for value, _ in rows)
    found = []
    for probability, kept in samples(rows):
        estimated = rule(kept)
        if estimated is None:
            return None
        guess, error = estimated
        found.append((probability, kept, guess, error))
    mean = sum(probability * guess for probability, _, guess, _ in found)
    variance = sum(probability * (guess - total) ** 2 for probability, _, guess, _ in found)
    squared_error = sum(probability * error**2 for probability, _, _, error in found)
    return OverAllSamples(round(mean, 6), round(variance, 6), round(squared_error, 6), found)


def _judge(case: Case, found: Any) -> str:
    total = sum(value for value, _ in case[0])
    if not math.isclose(found.estimate, total, abs_tol=1e-4):
        return f"The sum is {total:g}. Over all samples, you estimate {found.estimate:g} on average."
    if not math.isclose(found.squared_error, found.variance, rel_tol=1e-6, abs_tol=1e-4):
        off, said = math.sqrt(found.variance), math.sqrt(found.squared_error)
        return f"Your estimates are right on average, and typically off by {off:.4g}. Your errors say {said:.4g}."
    return ""


def _picture(_case: Case, found: Any) -> Table | None:
    columns = ["probability", "kept", "your estimate", "your error"]
    return Table(columns, found.samples) if isinstance(found, OverAllSamples) else None


def _cases() -> SearchStrategy[Case]:
    from hypothesis import strategies as st

    row = st.tuples(st.integers(1, 50), st.sampled_from([1, 2, 4, 10]))
    return st.tuples(st.lists(row, min_size=1, max_size=5))


def _with_mean_weight(kept: Rows) -> tuple[float, float]:
    weight = statistics.fmean(weight for _, weight in kept) if kept else 0
    return weight * sum(value for value, _ in kept), estimate(kept)[1]


def _spread(kept: Rows) -> tuple[float, float]:
    values = [weight * value for value, weight in kept]
    return sum(values), math.sqrt(len(values)) * statistics.pstdev(values) if values else 0.0


def half(function: Function) -> Runs | None:
    """Run a learner's query over two files, of which every row is kept; and again, with about every second one."""
    own = OwnQuery(Path("streamstate-data/own-estimate"), files=2)

    def build() -> Any:
        return function(own.departures())

    frame = build()
    if frame is None or frame is ...:
        return None
    history, level = own.run(frame, partitions=2), level_variable(OWN)
    try:
        ss.shared(own.store, level)
    except UnknownVariableError:
        return Runs(history, history, "Without shedding")
    shared, epochs = {level: level_for(kept=0.5)}, (0, history.live().epoch)
    ss.Checkpoint(own.checkpoint()).replay(build, to=own.folder / "half", epochs=epochs, store=own.store, shared=shared)
    return Runs(ss.open_store(own.store)["half"], history, "With every row")


def _sheds(runs: Runs) -> str:
    """Say that no row can be dropped; empty if some can."""
    return "It sheds nothing: `ss.shed` is missing." if runs.history.name == runs.other.name else ""


def _is_near(runs: Runs) -> str:
    """Say which estimates are far from the values that come without shedding; empty if most are near."""
    estimated, right = (_estimates(history) for history in (runs.history, runs.other))
    if not estimated:
        return "Its result has no estimate. `weighted_count` and `weighted_sum` return some, from the weight `w`."
    near = [abs(guess - right[where][0]) <= _NEAR * error for where, (guess, error) in estimated.items()]
    if sum(near) >= _MOST * len(near):
        return ""
    return (
        f"Only {sum(near)} of {len(near)} estimates are within {_NEAR} errors of what comes without shedding. Is a row "
        "dropped or kept whatever becomes of the others?"
    )


def _estimates(history: History) -> dict[tuple[str, ...], tuple[float, float]]:
    """Return the estimates of a result with their errors, by key and column."""
    result = history.live().result()
    return {
        (*(str(row[name]) for name in result.key_columns), column): (value["estimate"], value["error"])
        for row in result.to_arrow().to_pylist()
        for column, value in row.items()
        if isinstance(value, dict) and value.keys() == {"estimate", "error"}
    }


def _counted(shed: Callable[[DataFrame], DataFrame]) -> Callable[[DataFrame], DataFrame]:
    return lambda departures: shed(departures).groupBy("carrier").agg(weighted_count().alias("departures"))


def _shed(departures: DataFrame) -> DataFrame:
    return ss.shed(departures, id=["scheduled", "carrier", "flight"], weight="w")


EXERCISES: Sequence[Question | Exercise] = (
    Question(
        id="off",
        task="How far is the total off?",
        kind=Choice(
            {
                "dropped": "by about as much as was dropped",
                "some": "by some percent",
                "little": "by less than one percent",
            }
        ),
        truth=None,
        because="The flights that were kept stand for those that were dropped. And the expensive ones were all kept: "
        "chance has a part in the cheap ones only.",
        wrong=[
            WrongAnswer("dropped", "That would be so if a flight that was kept stood for itself alone."),
            WrongAnswer("some", "Which flights may have been dropped? How much of the cost do these make?"),
        ],
        hints=["What does a weight of 2.5 say?", "Flights that were more than an hour late were never dropped."],
    ),
    Question(
        id="strict",
        task="What does a policy do that cannot hold?",
        kind=Choice(
            {
                "drops": "drops more than a tenth after all",
                "waits": "lets flights wait, and says that the promise is broken",
                "adds": "adds partitions to the query",
                "stops": "stops the query",
            }
        ),
        truth=None,
        because="A bound on what may be dropped is never exceeded. The flights wait in their folder, and the status "
        "says what would help.",
        wrong=[
            WrongAnswer("drops", "`may_drop` is what you allow. What good is a bound that gives way when it matters?"),
            WrongAnswer("adds", "Only a policy that names `partitions` allows that."),
            WrongAnswer("stops", "A late result is better than none."),
        ],
        hints=["There are two promises, the latency and the bound. Which one is a wish, and which one a permission?"],
    ),
    Question(
        id="by_hand",
        task="An estimate by hand",
        kind=Number(),
        truth=lambda: estimate(KEPT)[0],
        table=lambda: Table(
            ["cost", "weight", "stands for"], [[value, weight, weight * value] for value, weight in KEPT]
        ),
        because="Each flight counts as often as its weight says, so the estimate is the sum of what they stand for.",
        wrong=[
            WrongAnswer(6800, "This is the cost of the flights that were kept. How many do the cheap ones stand for?"),
            WrongAnswer(20400, "The mean weight is 3. But the expensive flight stands for itself alone."),
            WrongAnswer(27200, "The expensive flight was always kept. There is no other that it stands for."),
        ],
        hints=["A flight with the weight 4 is one of four that were there."],
    ),
    Construct(
        id="estimate",
        task="Write `estimate(kept)`",
        solution=estimate,
        arguments=["rows"],
        cases=_cases,
        examples=[([(40, 1), (8, 4)],), ([(5, 2), (5, 2)],), ([(30, 1), (10, 1)],)],
        run=lambda rule, case: over_all_samples(rule, case[0]),
        judge=_judge,
        picture=_picture,
        wrong=[
            WrongAnswer(
                lambda kept: (sum(value for value, _ in kept), estimate(kept)[1]),
                "A row that was kept by chance stands for others that were not.",
            ),
            WrongAnswer(_with_mean_weight, "The mean weight makes too much of rows that are always kept."),
            WrongAnswer(
                lambda kept: (estimate(kept)[0], math.hypot(*[weight * value for value, weight in kept])),
                "A row of weight 1 is in every sample. How much can it add to the error?",
            ),
            WrongAnswer(
                lambda kept: (estimate(kept)[0], estimate(kept)[1] ** 2),
                "This is the variance. In which unit is it, and in which one the error?",
            ),
            WrongAnswer(
                _spread,
                "This is how much the rows differ. If all are equal and half of them are dropped, is the sum certain?",
            ),
        ],
        hints=[
            "The estimate is the sum of what the rows stand for.",
            "The part of a row with value x and weight w is w·x with probability 1/w, else 0. What is its variance?",
            "It is (w − 1)·x². You see the row once in w times only, so each row that you see adds w·(w − 1)·x².",
            "The error is the root of the variance.",
        ],
    ),
    StateExercise(
        id="own",
        task="Estimates of your own",
        solution=_counted(_shed),
        capture=half,
        grades=[_sheds, _is_near],
        wrong=[
            WrongAnswer(lambda departures: departures.groupBy("carrier").count(), "It sheds nothing"),
            WrongAnswer(lambda departures: _shed(departures).groupBy("carrier").count(), "has no estimate"),
            WrongAnswer(
                _counted(lambda departures: ss.shed(departures, id="carrier", weight="w")), "estimates are within"
            ),
        ],
        hints=[
            '`ss.shed` comes first, with an `id` that is different for each row, and `weight="w"`.',
            "`weighted_count()` and `weighted_sum(column)` take the weight into account.",
        ],
    ),
)
