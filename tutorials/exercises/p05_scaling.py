"""The exercises of the notebook 05, "Scale out and recovery are one problem": which state and which epochs are read."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import TYPE_CHECKING

from streamstate import Checkpoint
from streamstate.tutorials.exercises.construct import Construct, Exercise, StateExercise
from streamstate.tutorials.exercises.own_query import OwnQuery, Runs, same_state
from streamstate.tutorials.exercises.questions import Choice, Keys, Number, Question, WrongAnswer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hypothesis.strategies import SearchStrategy

    from streamstate.tutorials.exercises.attempts import Function
    from streamstate.tutorials.exercises.sampling import Case

MOMENTS = ("planned", "written", "committed")
"""Moments of a kill: after an epoch's offsets, its state, or its commit is written."""

PARTITIONS = 8
"""Into how many partitions the state of a learner's query is split."""


def partition_of(key: int, n: int) -> int:
    """Return the partition of a key, out of ``n``, by Spark's rule. Here, a key is just its hash."""
    return key % n


def runs_again(checkpoint: Path, moment: str) -> bool:
    """Check that the newest epoch runs again if the query was killed at one of the :data:`MOMENTS`.

    The checkpoint is copied, and the copy loses what was written after the moment.
    """
    epoch = Checkpoint(checkpoint).epochs()["epoch"].max()
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(shutil.copytree(checkpoint, Path(folder) / "killed"))
        if moment != "committed":
            (copy / "commits" / str(epoch)).unlink()
        if moment == "planned":
            for file in (copy / "state").rglob(f"{epoch + 1}[_.]*"):
                file.unlink()
        newest = Checkpoint(copy).epochs().iloc[-1]
        return bool(newest["epoch"] == epoch and newest["status"] == "begun")


def reads(p: int, m: int, n: int) -> AbstractSet[int]:
    """Return the old partitions, out of ``m``, that have keys of the new partition ``p``, out of ``n``."""
    return {partition_of(key, m) for key in range(m * n) if partition_of(key, n) == p}


def _run(function: Function, case: Case) -> AbstractSet[int] | None:
    found = function(*case)
    return None if found is None or found is ... else frozenset(found)


def _judge(case: Case, found: AbstractSet[int]) -> str:
    """Say which key would be lost, or which partition is read in vain."""
    p, m, n = case
    right = reads(p, m, n)
    if missing := right - found:
        key = next(key for key in range(m * n) if partition_of(key, n) == p and partition_of(key, m) in missing)
        return f"The key {key} would be lost: it is in old partition {partition_of(key, m)}, and belongs in {p}."
    if more := found - right:
        return f"No key of old partition {min(more)} belongs in {p}."
    return ""


def split(function: Function) -> Runs | None:
    """Run a learner's query over two files, split its state, and continue with a third; run it again without that."""
    own = OwnQuery(Path("streamstate-data/own-split"), files=2)
    frame = function(own.departures())
    if frame is None or frame is ...:
        return None
    own.run(frame, partitions=2)
    Checkpoint(own.checkpoint()).rescale(PARTITIONS)
    own.arrive(1)
    return Runs(own.run(frame), own.run(frame, "undisturbed", partitions=2), "Without the split")


def _is_split(runs: Runs) -> str:
    """Say that all state is in one partition; empty if it is not."""
    newest = runs.history.live()
    spreads = [newest.table(name).skew() for name in runs.history.tables()]
    used = {partition for spread in spreads for partition in spread.loc[spread["rows"] > 0, "partition"]}
    if len(used) > 1:
        return ""
    return f"State is in {len(used)} of {PARTITIONS} partitions. A key cannot be split: how many has your query?"


def _cases() -> SearchStrategy[Case]:
    from hypothesis import strategies as st

    counts = st.tuples(st.integers(1, 12), st.integers(1, 12))
    return counts.flatmap(lambda drawn: st.tuples(st.integers(0, drawn[1] - 1), *map(st.just, drawn)))


EXERCISES: Sequence[Question | Exercise] = (
    Question(
        id="old",
        task="From how many old partitions does a new one get its rows?",
        kind=Choice({"one": "from one", "both": "from both", "some": "some from one, others from both"}),
        truth=None,
        because="The hash modulo 8 says where a key is now, modulo 2 where it was. An even remainder stays even: 0, 2, "
        "4 and 6 come from partition 0, the others from 1.",
        wrong=[
            WrongAnswer(
                "both", "So it would be if rows were dealt like cards. A key's hash decides, before and after."
            ),
            WrongAnswer("some", "Take a hash that is 5 modulo 8. What can it be modulo 2?"),
        ],
        hints=["A partition is the remainder of a key's hash. Which hashes leave 5, divided by 8?"],
    ),
    Question(
        id="floor",
        task="How small can the fullest partition become?",
        kind=Number(),
        truth=None,
        because="A key's state is in one partition, however many there are. The heaviest key sets the limit.",
        wrong=[
            WrongAnswer(1, "Rows cannot be spread freely. What must stay together?"),
            WrongAnswer(118, "That is the mean of the sixteen carriers. They are not equally large."),
            WrongAnswer(
                236, "That is an eighth of all rows. Eight partitions are not filled evenly, and more are possible."
            ),
        ],
        hints=["What cannot be split?", "The table of the heaviest keys has the number."],
    ),
    Question(
        id="again",
        task="After which kills does epoch 1 run again?",
        kind=Keys(MOMENTS),
        truth=None,
        because="Only `commits/1` says that epoch 1 has happened. Without it, the epoch runs again, with the input "
        "that `offsets/1` has fixed, and what was written of its state does not count.",
        wrong=[
            WrongAnswer({"planned"}, "All state was written. But who says so to a new process?"),
            WrongAnswer(set(MOMENTS), "What is `commits/1` for?"),
            WrongAnswer(set(), "Then the input of epoch 1 would be missing from the state."),
        ],
        hints=["What does a new process look at, to find out where it is?"],
    ),
    Construct(
        id="reads",
        task="Write `reads(p, m, n)`",
        solution=reads,
        arguments=["p", "m", "n"],
        cases=_cases,
        run=_run,
        judge=_judge,
        wrong=[
            WrongAnswer(
                lambda p, m, n: set(range(m)), "You read everything. Nothing is lost, and much is read in vain."
            ),
            WrongAnswer(lambda p, m, n: {p % m}, "That is right if `n` is a multiple of `m`. And the other way round?"),
            WrongAnswer(
                lambda p, m, n: {q for q in range(m) if q % n == p},
                "That is right if `m` is a multiple of `n`. And the other way round?",
            ),
            WrongAnswer(
                lambda p, m, n: set(range(p * m // n, -(-(p + 1) * m // n))),
                "You split ranges of keys. A remainder puts neighbours into different partitions.",
            ),
        ],
        hints=[
            "Which keys belong in `p`? Where was each of them?",
            "Hashes have no end, but the pairs of both remainders repeat: after `m * n` keys at the latest.",
        ],
    ),
    StateExercise(
        id="own",
        task="Split a query of your own",
        solution=lambda departures: departures.groupBy("carrier", "origin").count(),
        capture=split,
        grades=[_is_split, same_state],
        wrong=[
            WrongAnswer(lambda departures: departures.groupBy("year").count(), "State is in 1 of 8 partitions."),
            WrongAnswer(lambda departures: departures.groupBy().count(), "Add a grouping key"),
            WrongAnswer(
                lambda departures: departures.where("rand() < 0.5").groupBy("carrier").count(), "Without the split, it"
            ),
            WrongAnswer(lambda departures: departures.select("carrier"), "keeps no state"),
        ],
        hints=[
            "Any query that keeps state: an aggregation, a deduplication, a join with itself.",
            "The state may depend on nothing but the input. What else does your query look at?",
        ],
    ),
)
