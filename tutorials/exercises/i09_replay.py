"""The exercises of the notebook I9, "Crash, replay, exactly once": what recovery from upstream needs."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from streamstate.tutorials.exercises.answers import Table
from streamstate.tutorials.exercises.construct import Construct, Exercise
from streamstate.tutorials.exercises.judged_runs import Judged, fault_of, picture_of, run_judged
from streamstate.tutorials.exercises.questions import Keys, Question, WrongAnswer
from streamstate.tutorials.kept_state import KINDS, RECORDS, crashed
from streamstate.tutorials.simulation import Player, explore, run
from streamstate.tutorials.simulation.upstream_backup import (
    Count,
    CountsRepeats,
    NumbersOn,
    Pair,
    TakesWhatArrives,
    TrimsOnReceipt,
    UpstreamBackup,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hypothesis.strategies import SearchStrategy

    from streamstate.tutorials.exercises.attempts import Function
    from streamstate.tutorials.exercises.sampling import Case

PROMISES = {
    "once": "a record counts once",
    "same": "sender and receiver agree",
    "all": "nothing is lost",
}
"""What recovery promises: a short name, and the invariant."""
_LIMIT = 300
"""Actions after which a run counts as endless."""


def play() -> Player[Pair]:
    """Return a player of the correct protocol, and of two that lack a line."""
    kinds = {
        "none": UpstreamBackup,
        "keep until stored": TrimsOnReceipt,
        "a fixed order": TakesWhatArrives,
    }
    return Player(
        {name: explore(kind(1)) for name, kind in kinds.items()},
        title="Recovery from upstream",
        caption="You choose what happens next. Each task may crash, once in all.",
        parameter="the line that is missing",
    )


def is_repeat(newest: int, number: int) -> bool:
    """Check that the counter has a record already."""
    return number <= newest


def may_take(a: int, b: int, source: str) -> bool:
    """Check that the merge may take a source's next record."""
    return (a == b) is (source == "a")


@cache
def _broken(kind: type[UpstreamBackup]) -> frozenset[str]:
    """Return the promises that 300 random runs break."""
    found = {name for seed in range(300) for name in run(kind(crashes=2), seed).broken}
    return frozenset(name for name, invariant in PROMISES.items() if invariant in found)


def _cases() -> SearchStrategy[Case]:
    from hypothesis import strategies as st

    return st.tuples(st.integers(1, 3), st.integers(0, 999))


class _Repeats(UpstreamBackup):
    """The counter skips what a function calls a repeat."""

    def __init__(self, records: int, rule: Function) -> None:
        super().__init__(records, crashes=2)
        self.rule = rule

    def is_repeat(self, counter: Count, number: int) -> bool:
        return bool(self.rule(counter.newest, number))


class _Order(UpstreamBackup):
    """The merge takes what a function allows."""

    def __init__(self, records: int, rule: Function) -> None:
        super().__init__(records, crashes=2)
        self.rule = rule

    def may_take(self, state: Pair, source: int) -> bool:
        return bool(self.rule(*state.merge.taken, "ab"[source]))


def _run_repeats(function: Function, case: Case) -> Judged | None:
    return None if function(0, 1) in (None, ...) else run_judged(_Repeats(case[0], function), case[1], limit=_LIMIT)


def _run_order(function: Function, case: Case) -> Judged | None:
    return None if function(0, 0, "a") in (None, ...) else run_judged(_Order(case[0], function), case[1], limit=_LIMIT)


def _mutant(name: str, kind: type[UpstreamBackup], because: str, *wrong: WrongAnswer, hint: str) -> Question:
    return Question(
        id=name,
        task=f"What breaks if {kind.fault}?",
        kind=Keys(PROMISES),
        truth=lambda: set(_broken(kind)),
        because=because,
        wrong=wrong,
        hints=[hint],
    )


EXERCISES: Sequence[Question | Exercise] = (
    _mutant(
        "repeats",
        CountsRepeats,
        "The merge sends again what the counter's stored state may lack, and it does not know what the counter has.",
        WrongAnswer({"once"}, "It counts a record twice. And which record is its third, compared with the merge's?"),
        WrongAnswer(set(), "Let the merge crash after the counter has counted."),
        WrongAnswer({"all"}, "Too much is counted. Is anything missing?"),
        hint="A restored merge takes, and sends, the same records again.",
    ),
    _mutant(
        "numbers",
        NumbersOn,
        "A number is the name by which a repeat is known. With a new one, the same record is news.",
        WrongAnswer(set(), "How does the counter know that a record is a repeat?"),
        WrongAnswer({"once"}, "And if both compare their lists of records?"),
        WrongAnswer({"all"}, "Numbers that are too high are never skipped. What happens then?"),
        hint="What does the counter compare?",
    ),
    _mutant(
        "trims",
        TrimsOnReceipt,
        "What was received is in the counter's memory, and a crash takes it. Nobody else has it any more.",
        WrongAnswer({"all"}, "Something is lost. What does the counter have in its place?"),
        WrongAnswer({"once"}, "Let the counter crash after it has counted, and before its state is stored."),
        WrongAnswer(set(), "Is what was received also stored?"),
        hint="Who can send a record again to a counter that has crashed?",
    ),
    _mutant(
        "order",
        TakesWhatArrives,
        "The merge takes other records under the same numbers. The counter skips by number: it skips the wrong ones.",
        WrongAnswer(set(), "The counts are the same in any order. The numbers are not."),
        WrongAnswer({"same"}, "They disagree. What becomes of a record that is skipped by mistake?"),
        WrongAnswer({"same", "once"}, "If one record is counted twice under two numbers, which has no number left?"),
        hint="The merge took a1, then b1. It crashes, and takes b1 first. Which number has a1 now?",
    ),
    Construct(
        id="dedup",
        task="Write `is_repeat(newest, number)`",
        solution=is_repeat,
        arguments=["records", "run"],
        cases=_cases,
        run=_run_repeats,
        judge=fault_of,
        picture=picture_of,
        wrong=[
            WrongAnswer(lambda newest, number: False, "You count all that comes. What comes again after a crash?"),
            WrongAnswer(lambda newest, number: number < newest, "What of the newest record itself?"),
            WrongAnswer(lambda newest, number: True, "You skip everything, also what is new."),
            WrongAnswer(lambda newest, number: number == newest, "More than one record may come again."),
        ],
        hints=["Records come in the order of their numbers.", "`newest` is the highest number that was counted."],
    ),
    Construct(
        id="may_take",
        task="Write `may_take(a, b, source)`",
        solution=may_take,
        arguments=["records", "run"],
        cases=_cases,
        run=_run_order,
        judge=fault_of,
        picture=picture_of,
        wrong=[
            WrongAnswer(
                lambda a, b, source: True, "You take what arrives. After a crash, something else arrives first."
            ),
            WrongAnswer(lambda a, b, source: source == "a", "Who takes the records of b?"),
            WrongAnswer(
                lambda a, b, source: a >= b if source == "a" else b >= a,
                "When both have given the same number, you leave it to chance which comes next.",
            ),
        ],
        hints=["In each situation, one source only may be next.", "Let them take turns."],
    ),
    Question(
        id="kept",
        task="Which counters count each record once?",
        kind=Keys(KINDS),
        truth=lambda: {kind for kind in KINDS if crashed(kind).counted == RECORDS},
        because="State and position have to be of the same moment: stored together, or compared by number.",
        wrong=[
            WrongAnswer({"managed"}, "What does a server that has the number do with a record that comes again?"),
            WrongAnswer(
                {"external", "numbered", "managed"},
                "The server has lost nothing. Which records does it get again, and how could it know?",
            ),
            WrongAnswer({"numbered"}, "If state and position go back together, is a record that comes again a repeat?"),
            WrongAnswer(set(KINDS), "The first one has lost its memory. Are all of its records read again?"),
        ],
        table=lambda: Table(
            ["", "kept in", "left by the crash", "read again from", "counted"],
            [[kind, *crashed(kind)] for kind in KINDS],
        ),
        hints=["The position is 4. Which records has the state seen after the crash, and which ones come again?"],
    ),
)
