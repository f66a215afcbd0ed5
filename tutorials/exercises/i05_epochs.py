"""The exercises of the notebook I5, "What makes an epoch happen?": four writes, and a crash between any two of them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from itertools import permutations
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from streamstate.tutorials.exercises.construct import Construct, Exercise, Invariant
from streamstate.tutorials.exercises.questions import Choice, Keys, Number, Question, WrongAnswer
from streamstate.tutorials.simulation import Player, explore, run
from streamstate.tutorials.simulation.epoch_commit import (
    STEPS,
    AppendingSink,
    CommitsFirst,
    EpochCommit,
    Process,
    SkipsAhead,
    Step,
    TrustsNewestState,
    Written,
)
from streamstate.tutorials.simulation.runs import violations

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

Disk: TypeAlias = tuple[Written, ...]
End: TypeAlias = tuple[list[str], tuple[str, ...]]

_PAIRS = tuple(f"{one} before {other}" for one, other in permutations(STEPS, 2))


def play(*orders: Sequence[Step]) -> Player[Process]:
    """Return a player of two records and a crash, in which you choose what happens.

    Args:
        *orders: orders of the four writes, between which a slider chooses; by default, that of Spark and two others.
    """
    shown = orders or (STEPS, ("plan", "state", "commit", "results"), ("state", "results", "plan", "commit"))
    graphs = {", ".join(order): explore(EpochCommit(2, order=order)) for order in shown}
    return Player(
        graphs,
        title="Four writes and a crash",
        caption="You choose what happens next. Try to break a promise.",
        parameter="order",
    )


@cache
def right_orders() -> tuple[tuple[Step, ...], ...]:
    """Return the orders that keep all promises, whatever happens: every state that can be reached is looked at."""
    return tuple(order for order in permutations(STEPS) if not _breaks(EpochCommit(2, order=order, crashes=2)))


def lose_commit(checkpoint: Path, epoch: int) -> None:
    """Remove an epoch's commit, as though the power had failed just before it was written."""
    for name in (f"{epoch}", f".{epoch}.crc"):
        (checkpoint / "commits" / name).unlink(missing_ok=True)


def recover(disk: Disk) -> tuple[int, int, tuple[str, ...]]:
    """Return the epoch to run next, the position of its first record, and the state before it."""
    return _recovered(EpochCommit, disk)


def _recovered(protocol: type[EpochCommit], disk: Disk) -> tuple[int, int, tuple[str, ...]]:
    engine = protocol().recover(disk)
    return engine.epoch, engine.first, engine.state


def records_of(plan: tuple[int, int] | None, first: int, arrived: int) -> tuple[int, int]:
    """Return the records of an epoch that begins."""
    return plan or (first, arrived)


def _breaks(protocol: EpochCommit) -> bool:
    graph = explore(protocol, 50_000)
    pairs = zip(graph.states, graph.edges, strict=True)
    return any(True for state, edges in pairs for _ in violations(protocol, state, stuck=not edges))


def _pairs() -> set[str]:
    return {pair for pair in _PAIRS if all(_holds(pair, order) for order in right_orders())}


def _holds(pair: str, order: Sequence[str]) -> bool:
    one, other = pair.split(" before ")
    return order.index(one) < order.index(other)


def _resulting_epochs() -> int:
    """Return how often the sink gets an epoch's results if the engine crashes before its commit."""
    trace = run(EpochCommit(1, crashes=0), 0)
    assert [action.key for action in trace.actions][-2:] == [("write", "results"), ("write", "commit")]
    return 2


@cache
def _disks() -> tuple[Disk, ...]:
    """All that a crash can find on the disk, the emptiest first."""
    return tuple(dict.fromkeys(state.epochs for state in explore(EpochCommit(3, crashes=2)).states))


def _cases() -> SearchStrategy[tuple[Disk]]:
    from hypothesis import strategies as st

    return st.tuples(st.sampled_from(_disks()))


def _plans() -> SearchStrategy[tuple[tuple[int, int] | None, int, int]]:
    from hypothesis import strategies as st

    def with_plan(first: int, planned: int, more: int) -> SearchStrategy[tuple[tuple[int, int] | None, int, int]]:
        return st.tuples(
            st.sampled_from([None, (first, first + planned)]), st.just(first), st.just(first + planned + more)
        )

    return st.tuples(st.integers(0, 9), st.integers(1, 5), st.integers(0, 5)).flatmap(lambda three: with_plan(*three))


def _runs() -> SearchStrategy[tuple[tuple[str, ...], int]]:
    from hypothesis import strategies as st

    counts = st.integers(1, 2).map(lambda count: tuple(f"a{number}" for number in range(1, count + 1)))
    return st.tuples(counts, st.integers(0, 999))


def _end_of(protocol: type[EpochCommit], records: tuple[str, ...], number: int) -> End:
    """Return the results of all epochs, and the state, when a random run has ended."""
    disk = run(protocol(len(records), crashes=2), number).states[-1].epochs
    return [record for epoch in disk for record in epoch.results or ()], _newest_state(disk)


def _newest_state(disk: Disk) -> tuple[str, ...]:
    return next((epoch.state for epoch in reversed(disk) if epoch.state is not None), ())


def _complete(records: tuple[str, ...], _run: int, end: End) -> bool:
    results, state = end
    return results == list(records) and state == records


def _counting(disk: Disk) -> tuple[int, int, tuple[str, ...]]:
    return (len(disk), *recover(disk)[1:])


EXERCISES: Sequence[Question | Exercise] = (
    Question(
        id="restart",
        task="What happens to epoch 3 after the crash?",
        kind=Choice(
            {
                "again": "epoch 3 runs again, with the same records",
                "fresh": "epoch 3 runs again, with all records that have arrived by now",
                "next": "epoch 4 runs: the work of epoch 3 is on the disk",
                "lost": "epoch 3 is left out, and its records are lost",
            }
        ),
        truth=lambda: "again",
        because="Without its commit, an epoch has not happened. Its plan has its records, so it can happen again.",
        wrong=[
            WrongAnswer("next", "The engine knows only the disk. What on it says that epoch 3 is complete?"),
            WrongAnswer("fresh", "Somebody may have read the first results of epoch 3. What if it has other ones now?"),
            WrongAnswer("lost", "Then a crash would lose data. The source can be read again."),
        ],
        hints=["What does the engine find on the disk, and what is missing?"],
    ),
    Question(
        id="twice",
        task="How many times does the sink get the results of epoch 3?",
        kind=Number(),
        truth=_resulting_epochs,
        because="Once before the crash, and once after it. 'Exactly once' does not mean that it is done once: its "
        "effect is there once, because the sink knows the epoch and replaces or skips it.",
        wrong=[
            WrongAnswer(1, "The results were written, and the commit that says so was not."),
            WrongAnswer(0, "They were written before the crash already."),
        ],
        hints=["Count the writes, not their effect."],
    ),
    Question(
        id="orders",
        task="How many of the 24 orders are right?",
        kind=Number(),
        truth=lambda: len(right_orders()),
        because="The commit comes last, and the plan before the results. The state may be anywhere before the commit.",
        wrong=[
            WrongAnswer(1, "Spark's order is right, and it is not the only one. Which two writes could change places?"),
            WrongAnswer(2, "Does the plan have to be there before the state? Nobody sees a state before the commit."),
            WrongAnswer(6, "That is all orders with the commit at the end. Who sees results before there is a plan?"),
            WrongAnswer(24, "Then what would a commit be for?"),
        ],
        hints=["Which write must be the last one?", "Who can see what was written, before the commit?"],
    ),
    Question(
        id="pairs",
        task="Which pairs must be in this order?",
        kind=Keys(_PAIRS),
        truth=_pairs,
        because="A promise (the plan) comes before what others can see; the receipt (the commit) after everything.",
        wrong=[
            WrongAnswer(
                {"plan before commit", "state before commit", "results before commit"},
                "The commit is last: right. But one of the other three can be seen from outside before it.",
            ),
            WrongAnswer(
                {pair for pair in _PAIRS if _holds(pair, STEPS)},
                "That is Spark's order, with all its pairs. Two of them could be the other way round.",
            ),
        ],
        hints=["Three of them say what comes last.", "Which write can be seen from outside, before the commit?"],
    ),
    Question(
        id="append",
        task="Which order saves a sink that only appends?",
        kind=Choice(
            {
                "last": "results after everything else",
                "first": "results before everything else",
                "commit": "results directly before the commit",
                "none": "none",
            }
        ),
        truth=lambda: "none" if all(map(_appends_fail, permutations(STEPS))) else "commit",
        because="Results and commit are two writes in two places, and a crash fits between any two writes. Either the "
        "sink knows what it has, or both are one transaction.",
        wrong=[
            WrongAnswer("last", "Then the epoch counts as done before its results are there. Crash in between."),
            WrongAnswer("commit", "That makes the gap small. It is still there."),
            WrongAnswer("first", "The more comes after them, the more often they are written twice."),
        ],
        hints=["Can the sink and the commit be written in one step?"],
    ),
    Question(
        id="group",
        task="How long is an epoch that keeps up, in seconds?",
        kind=Number(tolerance=0.02),
        truth=lambda: 0.5 / (1 - 1_000 * 0.0001),
        because="An epoch of t seconds has 1,000 t records: t = 0.5 + 0.1 t. The four writes are paid once for all of "
        "them. That is group commit: a longer epoch has more throughput, and later results.",
        wrong=[
            WrongAnswer(0.5, "That is the writes alone. Records arrive while they are written, too."),
            WrongAnswer(0.6, "That is an epoch with the records of a whole second. How many arrive in 0.6 s?"),
            WrongAnswer(0.1, "That is the work on the records of a second, without the writes."),
        ],
        hints=["In t seconds, 1,000 t records arrive.", "t = 0.5 + 1,000 t · 0.0001."],
    ),
    Construct(
        id="recover",
        task="Write `recover(disk)`",
        solution=recover,
        arguments=["disk"],
        cases=_cases,
        examples=[((),), ((Written((0, 1), ("a1",), ("a1",)),),)],
        wrong=[
            WrongAnswer(
                partial(_recovered, TrustsNewestState), "You take the newest state on the disk. Is its epoch committed?"
            ),
            WrongAnswer(
                partial(_recovered, SkipsAhead),
                "You count a plan as done. It says what an epoch will have, not that it has it.",
            ),
            WrongAnswer(_counting, "You count the epochs that have begun. Which of them have happened?"),
        ],
        hints=[
            "Look for the newest epoch that is committed; there may be none.",
            "Its plan says where it ended, and its state is the one to begin with.",
        ],
    ),
    Construct(
        id="records_of",
        task="Write `records_of(plan, first, arrived)`",
        solution=records_of,
        arguments=["plan", "first", "arrived"],
        cases=_plans,
        examples=[(None, 2, 5), ((2, 3), 2, 5)],
        wrong=[
            WrongAnswer(
                lambda plan, first, arrived: (first, arrived),
                "You take all that has arrived. Somebody may have seen what this epoch had the first time.",
            ),
            WrongAnswer(
                lambda plan, first, arrived: plan,
                "An epoch without a plan has to get its records, too.",
            ),
            WrongAnswer(
                lambda plan, first, arrived: plan or (first, first + 1),
                "Without a plan, an epoch may take more than one record: that is what makes it cheap.",
            ),
        ],
        hints=["What is a plan for?"],
    ),
    Invariant(
        id="invariant",
        task="Write the invariant of a finished run",
        solution=_complete,
        arguments=["records", "run"],
        cases=_runs,
        examples=[(("a1", "a2"), 0)],
        rule=lambda records, number: _end_of(EpochCommit, records, number),
        mutants=[
            WrongAnswer(lambda records, number: _end_of(AppendingSink, records, number), "appends results twice."),
            WrongAnswer(
                lambda records, number: _end_of(CommitsFirst, records, number), "commits an epoch before its results."
            ),
            WrongAnswer(
                lambda records, number: _end_of(TrustsNewestState, records, number),
                "starts with a state whose epoch is not committed.",
            ),
            WrongAnswer(
                lambda records, number: _end_of(SkipsAhead, records, number), "leaves out an epoch that has a plan."
            ),
        ],
        wrong=[
            WrongAnswer(
                lambda records, run, end: end[0] == list(records),
                "You look at the results. What about the state that the next epoch begins with?",
            ),
            WrongAnswer(
                lambda records, run, end: set(end[0]) == set(records) and end[1] == records,
                "A set does not know how many times something is there.",
            ),
            WrongAnswer(
                lambda records, run, end: end[1] == records,
                "You look at the state. What about the results?",
            ),
        ],
        hints=[
            "`results, state = end` takes the two apart.",
            "What should the list of results be? And the state?",
        ],
    ),
    Question(
        id="second_start",
        task="Which epochs does Spark's sink get at the second start?",
        kind=Keys(("0", "1", "2", "3")),
        truth=None,
        because="Epoch 2 has a plan and no commit: it runs again, with the file that it had. The new file is epoch 3.",
        wrong=[
            WrongAnswer({"3"}, "Its work was done, but the disk does not say so any more."),
            WrongAnswer({"2"}, "And the new file? Epoch 2 has a plan, which does not name it."),
            WrongAnswer({"0", "1", "2", "3"}, "Epochs 0 and 1 are committed."),
        ],
        hints=["It is your `recover`, and your `records_of`."],
    ),
)


def _appends_fail(order: Sequence[Step]) -> bool:
    return _breaks(EpochCommit(2, order=order, sink="appends", crashes=1))
