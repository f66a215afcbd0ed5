"""The exercises of the notebook I8, "Aligned or not?": what a snapshot costs when a channel is full."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from streamstate.tutorials.exercises.answers import Table
from streamstate.tutorials.exercises.construct import Construct, Exercise, Invariant
from streamstate.tutorials.exercises.questions import Choice, Keys, Number, Ordering, Question, WrongAnswer
from streamstate.tutorials.exercises.sampling import no_case
from streamstate.tutorials.exercises.timed_runs import (
    LATENCY,
    LOADS,
    REPLAY,
    TIMEOUT,
    Parts,
    first_copy,
    judge_decision,
    judge_served,
    load_cases,
    mode_cases,
    parts_of,
    picture_decision,
    picture_served,
    run_policy,
    run_schedule,
    serve,
)
from streamstate.tutorials.simulation import Player
from streamstate.tutorials.simulation.mutants import (
    LogsTooEarly,
    NotBlocking,
    OvertakenLost,
    TimeoutLosesOvertaken,
)
from streamstate.tutorials.simulation.timed import MODES, SLOW, Clock, Load, Measured, Mode, Moment, Plan
from streamstate.tutorials.simulation.timed_scene import film

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from streamstate.tutorials.simulation.dataflow import Dataflow

__all__ = ["EXERCISES", "LOADS", "compare", "play", "serve"]

_MEASURES: dict[str, Callable[[Measured], float]] = {
    "latency": lambda run: run.latency(95),
    "snapshot": lambda run: run.duration,
    "logged": lambda run: run.logged,
    "replay": lambda run: run.worst_replay,
}


def play(mode: Mode = "aligned") -> Player[Moment]:
    """Return a player of a snapshot in small channels, with a slider for the slow relay."""
    films = {
        slow: film(Load(slow=slow, slowest=slow, capacity=8, until=400), Plan(mode, 60, 15), after=20)
        for slow in (1, 2, 5, 10)
    }
    return Player(
        films,
        title=MODES[mode].name.capitalize(),
        caption="▮ is a barrier, ✕ a channel that is blocked. Channels fill from the right.",
        parameter="ticks of the slow relay for a record",
    )


def compare(slow: int = 5) -> Table:
    """Return what three ways to take snapshots cost; a record takes the slow relay so many ticks."""
    rows = []
    for mode, run in _runs(slow).items():
        again, twice = run.crash(600)
        numbers = [run.latency(50), run.latency(95), round(run.duration), run.logged, run.worst_replay]
        rows.append([mode, *numbers, again, twice])
    heads = ["latency p50", "latency p95", "snapshot takes", "logged", "read again at worst"]
    return Table(["", *heads, "crash at 600: read again", "results given again"], rows)


def choose(load: Load) -> tuple[str, int, int]:
    """Take snapshots as rarely as the replay allows, and align for 30 ticks at most."""
    records_per_tick = 1 / load.a_every + 1 / load.slow
    return "timeout", int(0.8 * REPLAY / records_per_tick) - 40, TIMEOUT


def late() -> list[int]:
    """Return when the records of B arrive, so that the timeout ends just before the alignment would."""
    return list(range(91, 100))


@cache
def _runs(slow: int) -> dict[Mode, Measured]:
    load = Load(slow=slow, slowest=slow)
    return {mode: Clock(load, Plan(mode, 250, TIMEOUT)).run() for mode in ("aligned", "timeout", "unaligned")}


def _ranked(measure: str) -> list[str]:
    """Return the modes, the one with the least of a measure first."""
    costs = {str(mode): _MEASURES[measure](run) for mode, run in _runs(5).items()}
    return sorted(costs, key=lambda mode: costs[mode])


def _differing(slow: int) -> set[str]:
    """Return the measures that differ between the modes by more than a tenth."""
    found = {name: [measure(run) for run in _runs(slow).values()] for name, measure in _MEASURES.items()}
    return {name for name, values in found.items() if max(values) > 1.1 * min(values)}


def _wait() -> int:
    """Return how many ticks pass from the end of B's copy until the slow relay takes the barrier."""
    return first_copy(Clock(Load(), Plan("aligned", 250)), SLOW) - 250 - Load().copy


def _interval(load: Load) -> int:
    return choose(load)[1]


def _mutant(kind: type[Dataflow]) -> WrongAnswer:
    """Return the rule with a mistake, in the mode that it belongs to."""
    return WrongAnswer(
        lambda mode, run: parts_of(kind if issubclass(kind, MODES[mode]) else MODES[mode], mode, run),
        f"is that of {kind.name}, and {kind.fault}.",
    )


def _complete(_mode: Mode, _run: int, snapshot: Parts) -> bool:
    read, counted, log = snapshot
    return sorted(read) == sorted(counted + log)


def _ranking(name: str, task: str, because: str, *wrong: WrongAnswer, hint: str) -> Question:
    return Question(
        id=name,
        task=task,
        kind=Ordering(("aligned", "timeout", "unaligned")),
        truth=lambda: _ranked(name),
        because=because,
        wrong=wrong,
        hints=[hint],
    )


EXERCISES: Sequence[Question | Exercise] = (
    Question(
        id="wait",
        task="How long does B's barrier wait in front of the slow relay?",
        kind=Number(tolerance=3),
        truth=_wait,
        because="The channel is full, and the barrier is behind all of it: 20 records of 5 ticks each. What counts is "
        "what is in the channel, not how much arrives.",
        wrong=[
            WrongAnswer(5, "That is one record. What else is in front of the barrier?"),
            WrongAnswer(20, "That is how many records are in front of it. How long does the relay need for each?"),
            WrongAnswer(40, "That is how long the records took to arrive. How long do they take to leave?"),
            WrongAnswer(0, "A barrier does not overtake in this mode."),
        ],
        hints=["How many records are in front of the barrier?", "Each of them takes the relay 5 ticks."],
    ),
    _ranking(
        "latency",
        "Which mode has the lowest latency of A's records?",
        "Aligned, C takes nothing of A until B's barrier is there, though A has nothing to do with the slow relay. The "
        "timeout bounds that wait.",
        WrongAnswer(["aligned", "timeout", "unaligned"], "Nothing is logged, but who waits for B's barrier?"),
        WrongAnswer(["unaligned", "aligned", "timeout"], "Until its timeout, the third mode does what aligned does."),
        WrongAnswer(["timeout", "unaligned", "aligned"], "Before the timeout, C waits. When does C wait if unaligned?"),
        hint="From which channel does C take nothing, and for how long?",
    ),
    _ranking(
        "snapshot",
        "Which mode has the shortest snapshots?",
        "Unaligned, a barrier passes each task at once. Aligned, it takes as long as what is in front of it.",
        WrongAnswer(
            ["aligned", "timeout", "unaligned"], "Logs are written while records flow. What holds barriers up?"
        ),
        WrongAnswer(
            ["timeout", "unaligned", "aligned"], "It waits for its timeout first. What does unaligned wait for?"
        ),
        WrongAnswer(
            ["unaligned", "aligned", "timeout"], "After 30 ticks, barriers overtake. Would they be there sooner?"
        ),
        hint="A snapshot ends when the last task has taken the barriers of all its channels.",
    ),
    _ranking(
        "logged",
        "Which mode logs the fewest records?",
        "Aligned logs nothing: that is what the wait is for. What has left a channel before the timeout need not be "
        "logged.",
        WrongAnswer(["unaligned", "timeout", "aligned"], "What is in front of a barrier when it overtakes?"),
        WrongAnswer(["aligned", "unaligned", "timeout"], "How many records pass the relay before the timeout?"),
        WrongAnswer(["timeout", "aligned", "unaligned"], "One mode never lets a barrier overtake."),
        hint="What is in flight across the cut, in each mode?",
    ),
    _ranking(
        "replay",
        "Which mode has the fewest records to read again after a crash at the worst time?",
        "The worst time is just before a snapshot is complete: what came since the one before is read again, and a "
        "snapshot that takes longer is complete later.",
        WrongAnswer(
            ["aligned", "timeout", "unaligned"], "Logs are sent again, but nobody reads them again at a source."
        ),
        WrongAnswer(["timeout", "unaligned", "aligned"], "Which snapshot is complete first, if all start together?"),
        WrongAnswer(["unaligned", "aligned", "timeout"], "Which of the two is complete first?"),
        hint="Until a snapshot is complete, a crash goes back to the one before.",
    ),
    Question(
        id="restore",
        task="What becomes of logged records after a crash?",
        kind=Choice(
            {
                "channels": "they go back into their channels, before anything else",
                "sources": "the sources read them again",
                "state": "nothing: they count in some copy of a state",
                "results": "they are published with the next epoch, as they are",
            }
        ),
        truth=lambda: "channels",
        because="The sources' offsets are behind them, and no receiver's copy counts them. So the log has to bring "
        "them back, before the tasks go on.",
        wrong=[
            WrongAnswer("sources", "The sources' copies say that they have been read."),
            WrongAnswer("state", "The receiver copied its state before they came."),
            WrongAnswer("results", "The slow relay has not seen them yet."),
        ],
        hints=["Is a logged record in the copy of its sender, of its receiver, of both?"],
    ),
    Question(
        id="quick",
        task="Which measures differ if the relay is as fast as the others?",
        kind=Keys(tuple(_MEASURES)),
        truth=lambda: _differing(1),
        because="Channels that are empty have nothing to wait for, and nothing to log. The modes differ under "
        "backpressure only.",
        wrong=[
            WrongAnswer({"logged"}, "What is in a channel whose receiver keeps up?"),
            WrongAnswer({"latency", "snapshot"}, "For what would a barrier wait?"),
            WrongAnswer(set(_MEASURES), "Each of the four comes from a full channel. Is one full?"),
        ],
        hints=["Move the slider to 1. How many records are in front of the barriers?"],
    ),
    Question(
        id="interval",
        task="How many aligned snapshots are complete in 1,000 ticks, with one wanted every 50?",
        kind=Number(tolerance=1),
        truth=lambda: len(Clock(Load(), Plan("aligned", 50)).run().taken),
        because="The next snapshot begins when the one before is complete, and each takes a little more than 100 "
        "ticks. The interval is a wish, and C nearly always waits.",
        wrong=[
            WrongAnswer(lambda count: 18 <= count <= 20, "Can one begin while the one before is not complete?"),
            WrongAnswer(lambda count: count in (4, 5), "Is there a pause between two snapshots that are late?"),
            WrongAnswer(0, "Each ends, some 100 ticks after it began."),
        ],
        hints=["How long does one take?", "The next one begins when the one before is complete."],
    ),
    Construct(
        id="choose",
        task="Write `choose(load)`",
        solution=choose,
        arguments=["LOADS[…]"],
        cases=load_cases,
        run=run_policy,
        judge=judge_served,
        picture=picture_served,
        wrong=[
            WrongAnswer(
                lambda load: ("aligned", _interval(load)),
                "You always align. On which loads is a barrier behind many records that cost much?",
            ),
            WrongAnswer(
                lambda load: ("unaligned", _interval(load)),
                "You never align. Nobody waits, but on which loads are many records in the channels?",
            ),
            WrongAnswer(
                lambda load: (
                    "aligned" if load.capacity * load.slowest <= LATENCY else "unaligned",
                    _interval(load),
                ),
                "You decide once for the whole run, but the relay is not always at its slowest.",
            ),
            WrongAnswer(
                lambda load: ("timeout", 20, TIMEOUT),
                "So many snapshots: each logs, and makes every task stand still. How rarely may they be taken?",
            ),
            WrongAnswer(
                lambda load: ("timeout", 300, TIMEOUT),
                "How many records come between two of your snapshots? A crash reads them again.",
            ),
        ],
        hints=[
            "`serve(LOADS[5], …)` tries a choice. Which of the three promises break with a longer interval?",
            "A crash reads again what came in an interval and a snapshot. How long may both be, with some room left?",
            "A timeout aligns where that is quick, and bounds the wait where it is not. What may the wait be?",
        ],
    ),
    Construct(
        id="late",
        task="Write `late()`",
        solution=late,
        arguments=[],
        cases=no_case,
        run=lambda function, _: run_schedule(function()),
        judge=judge_decision,
        picture=picture_decision,
        wrong=[
            WrongAnswer(
                lambda: list(range(0, 50, 5)),
                "The relay has had all of them when the barrier comes. Which arrivals are in the barrier's way?",
            ),
            WrongAnswer(lambda: [97, 98, 99], "Too few are in the barrier's way. For how many does it wait 30 ticks?"),
            WrongAnswer(
                lambda: list(range(70, 100)),
                "So many are in the barrier's way that the timeout is right. It should end just before the wait does.",
            ),
        ],
        hints=[
            "Records that arrive shortly before tick 100 are in front of the relay when the barrier comes.",
            "At 5 ticks each, how many of them keep the barrier a little longer than 30 ticks?",
        ],
    ),
    Invariant(
        id="invariant",
        task="Write the invariant of a snapshot, in any mode",
        solution=_complete,
        arguments=["mode", "run"],
        cases=mode_cases,
        rule=lambda mode, run: parts_of(MODES[mode], mode, run),
        mutants=list(map(_mutant, (NotBlocking, OvertakenLost, LogsTooEarly, TimeoutLosesOvertaken))),
        wrong=[
            WrongAnswer(
                lambda mode, run, snapshot: sorted(snapshot[0]) == sorted(snapshot[1]),
                "You look at C's copy only. Where is a record that a barrier has overtaken?",
            ),
            WrongAnswer(
                lambda mode, run, snapshot: set(snapshot[0]) == {*snapshot[1], *snapshot[2]},
                "A set does not know that a record is both counted and logged.",
            ),
            WrongAnswer(
                lambda mode, run, snapshot: set(snapshot[0]) <= {*snapshot[1], *snapshot[2]},
                "Nothing is lost: right. Is anything there that should not be?",
            ),
        ],
        hints=[
            "`read, counted, logged = snapshot` takes the three apart.",
            "After a crash, a record that was read counts if it is counted or logged. How many times should that be?",
        ],
    ),
)
