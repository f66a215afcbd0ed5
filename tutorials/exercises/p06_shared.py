"""The exercises of the notebook 06, "Variables that operators share": which epoch sees which value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import streamstate as ss
from streamstate.tutorials.exercises.answers import Table
from streamstate.tutorials.exercises.construct import Construct, Exercise, StateExercise
from streamstate.tutorials.exercises.own_query import OwnQuery, Runs, same_state
from streamstate.tutorials.exercises.questions import Choice, Question, WrongAnswer

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

    from streamstate.state_inspect import History
    from streamstate.tutorials.exercises.attempts import Function
    from streamstate.tutorials.exercises.sampling import Case

Log = Sequence[tuple[str, int]]
"""Events in order: ``set`` with a limit; ``begin``, ``commit`` and ``crash`` with the number of an epoch."""

FIRST_LIMIT = 60
CRASH: Log = [("begin", 5), ("crash", 5), ("set", 30), ("begin", 5), ("commit", 5)]
"""The events of the question ``crash``, before which the limit is 15."""


def seen(log: Log) -> Mapping[int, int]:
    """Return the limit that the tasks of each committed epoch compared with."""
    limit, bound, committed = FIRST_LIMIT, dict[int, int](), dict[int, int]()
    for what, number in log:
        if what == "set":
            limit = number
        elif what == "begin":
            bound.setdefault(number, limit)
        elif what == "commit":
            committed[number] = bound[number]
    return committed


def _newest(log: Log) -> Mapping[int, int]:
    return dict.fromkeys(seen(log), _limit(log))


def _at_commit(log: Log) -> Mapping[int, int]:
    return {number: _limit(log[:at]) for at, (what, number) in enumerate(log) if what == "commit"}


def _at_last_begin(log: Log) -> Mapping[int, int]:
    begun = {number: _limit(log[:at]) for at, (what, number) in enumerate(log) if what == "begin"}
    return {number: begun[number] for number in seen(log)}


def _late(log: Log) -> Mapping[int, int]:
    """Return for each epoch the limit of the one before."""
    limits = seen(log)
    return {number: limits.get(number - 1, FIRST_LIMIT) for number in limits}


def _begun(log: Log) -> Mapping[int, int]:
    """Return epochs that did not commit, too."""
    return seen([*log, *(("commit", number) for what, number in log if what == "begin")])


def _limit(log: Log) -> int:
    """Return the limit at the end of a log."""
    return [FIRST_LIMIT, *(number for what, number in log if what == "set")][-1]


def _log(steps: Sequence[str | int]) -> tuple[Log]:
    """Return the events of a query that takes some steps; steps that are impossible in their place are skipped."""
    log: list[tuple[str, int]] = []
    epoch, runs = 0, False
    for step in steps:
        if isinstance(step, int):
            log.append(("set", step))
        elif (step == "begin") is not runs:
            log.append((step, epoch))
            runs = step == "begin"
            epoch += step == "commit"
    return (log,)


def _cases() -> SearchStrategy[Case]:
    from hypothesis import strategies as st

    steps = st.sampled_from(["begin", "commit", "crash"]) | st.integers(1, 120)
    return st.lists(steps, max_size=14).map(_log)


@dataclass(frozen=True)
class Bound(Runs):
    """A query with a limit, the same epochs run again, and run with another limit from the beginning."""

    what_if: History


def bound(function: Function) -> Bound | None:
    """Run a learner's query over two files, with another limit from the second one on; run both epochs again."""
    own = OwnQuery(Path("streamstate-data/own-limit"), files=1)
    limit = ss.shared(own.store, "limit", "double", init=float(FIRST_LIMIT))

    def build() -> Any:
        return function(own.departures(), limit)

    frame = build()
    if frame is None or frame is ...:
        return None
    own.run(frame, partitions=2, shared=(limit,))
    limit.set(15.0)
    own.arrive(1)
    history = own.run(frame, shared=(limit,))
    checkpoint, epochs = ss.Checkpoint(own.checkpoint()), (0, history.live().epoch)
    checkpoint.replay(build, to=own.folder / "again", epochs=epochs, store=own.store)
    checkpoint.replay(build, to=own.folder / "what_if", epochs=epochs, store=own.store, shared={"limit": 15.0})
    store = ss.open_store(own.store)
    return Bound(history, store["again"], "Run again with the recorded versions", store["what_if"])


def _decides(runs: Bound) -> str:
    """Say that the limit does not matter; empty if it does."""
    return "" if same_state(replace(runs, other=runs.what_if)) else "With 15 from the beginning, the state is the same."


EXERCISES: Sequence[Question | Exercise] = (
    Question(
        id="first",
        task="Which epoch is the first that sees a new limit?",
        kind=Choice(
            {
                "running": "the newest one: its tasks see the limit as soon as it is set",
                "next": "a next epoch, which begins at once, without a file",
                "file": "the epoch of the next file",
            }
        ),
        truth=None,
        because="An epoch is bound to its versions when it is planned. The variables are a source of the query, and a "
        "new version is a reason to plan one.",
        wrong=[
            WrongAnswer("running", "The newest epoch is committed. Its state cannot depend on what is set afterwards."),
            WrongAnswer(
                "file", "So it would be without variables. How many rows did the first epoch with the limit read?"
            ),
        ],
        hints=["What makes Spark begin an epoch?"],
    ),
    Question(
        id="crash",
        task="Which limit do the tasks of an epoch see that begins again after a crash?",
        kind=Choice({"15": "15, as in the first attempt", "30": "30, the newest", "both": "some 15, others 30"}),
        truth=lambda: str(seen([("set", 15), *CRASH])[5]),
        because="The versions of epoch 5 are in `offsets/5`, which was written before any task began. The second "
        "attempt reads the plan, and 30 waits for epoch 6.",
        wrong=[
            WrongAnswer("30", "Then two attempts of one epoch would give two states. Which one would a replay give?"),
            WrongAnswer("both", "All tasks of an attempt read one plan. So do those of the next attempt."),
        ],
        table=lambda: Table(["", "number"], CRASH),
        hints=["Where does Spark find out, after a crash, what the epoch was to read?"],
    ),
    Construct(
        id="seen",
        task="Write `seen(log)`",
        solution=seen,
        arguments=["log"],
        cases=_cases,
        wrong=[
            WrongAnswer(_newest, "You read the variable as it is now. When did the epoch run?"),
            WrongAnswer(_at_commit, "A limit that is set while an epoch runs came too late for its tasks."),
            WrongAnswer(_at_last_begin, "The epoch crashed, and began again. What does its offset log say?"),
            WrongAnswer(_late, "What is set before an epoch begins, it sees. You are one epoch late."),
            WrongAnswer(_begun, "An epoch that did not commit has left nothing in the state."),
        ],
        hints=[
            "Go through the log, and remember the newest limit.",
            "When does an epoch become bound to a limit, and when does that no longer change?",
            "`dict.setdefault` keeps what is there.",
        ],
    ),
    StateExercise(
        id="own",
        task="Steer a query of your own",
        solution=lambda departures, limit: (
            departures.where(departures["dep_delay"] > ss.shared_column(limit)).groupBy("carrier").count()
        ),
        capture=bound,
        grades=[same_state, _decides],
        wrong=[
            WrongAnswer(lambda departures, limit: departures.groupBy("carrier").count(), "With 15 from the beginning"),
            WrongAnswer(
                lambda departures, limit: departures.where(f"dep_delay > {limit.get()}").groupBy("carrier").count(),
                "Run again with the recorded versions",
            ),
            WrongAnswer(lambda departures, limit: departures.select("carrier"), "keeps no state"),
        ],
        hints=[
            "A task reads the limit, for example in a filter. What is read while the query is built is a constant.",
            "`ss.shared_column(limit)` is a column; in a function for `mapInPandas`, `limit.get()` is a number.",
        ],
    ),
)
