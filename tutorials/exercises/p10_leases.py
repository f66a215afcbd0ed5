"""The exercises of the notebook 10, "When the process that runs a query dies": its lease says who owns a query."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import streamstate as ss
from streamstate.operations.drill import drill
from streamstate.tutorials import flights
from streamstate.tutorials.exercises.answers import Table
from streamstate.tutorials.exercises.construct import Construct, Exercise, StateExercise
from streamstate.tutorials.exercises.own_query import OwnQuery
from streamstate.tutorials.exercises.questions import Choice, Keys, Number, Question, WrongAnswer
from streamstate.tutorials.exercises.simulated_lease import LASTS, Owned, owners_after_two_claims, still_owner

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

    from streamstate.operations.drill import DrillReport
    from streamstate.tutorials.exercises.attempts import Function
    from streamstate.tutorials.exercises.sampling import Case

Looks: TypeAlias = Sequence[tuple[float, int, float]]
"""What a standby has seen: the time of each look, how often the lease was renewed, and when it was renewed last."""
MayClaim: TypeAlias = Callable[[Looks, float], bool | None]

DEAD = 18
"""For how many seconds a standby looks at the lease of an owner that is dead."""
SITUATIONS: dict[str, Callable[[], bool]] = {
    "cut": lambda: still_owner("rrr..r"),
    "paused": lambda: still_owner("rrr..........r"),
    "alone": lambda: still_owner("rrr..........r", ahead=None),
    "ahead": lambda: still_owner("rrrrrrrrrrrr", ahead=3600),
}
"""What may happen to an owner, and if it owns the query after that."""


@dataclass(frozen=True)
class Claim:
    """When a standby claims a lease.

    Args:
        after: how many seconds after the last renewal; None: never.
        too_early: whether the owner still held it.
        looks: what the standby had seen by then.
    """

    after: float | None
    too_early: bool
    looks: Looks = field(compare=False)

    def __repr__(self) -> str:
        if self.after is None:
            return "never"
        return f"{self.after:g} s after the last renewal{', while the owner runs' if self.too_early else ''}"


def may_claim(looks: Looks, lasts: float) -> bool:
    """Check that a standby may begin the next term, by its looks up to now."""
    now, count, _ = looks[-1]
    return now - next(time for time, seen, _ in looks if seen == count) >= lasts


def _claims(rule: MayClaim, case: Case) -> Claim | None:
    """Return when a standby claims the lease of an owner that dies in the end."""
    ahead, speed, every, owner = case
    query, renewed, count = Owned(), 0.0, 0
    looks: list[tuple[float, int, float]] = []
    for letter in owner + "." * int(DEAD / every):
        query.now += every
        if letter == "r" and query.owner.renew():
            renewed, count = query.now, count + 1
        looks.append((round(ahead + speed * query.now, 3), count, renewed))
        claims = rule(list(looks), LASTS)
        if claims is None:
            return None
        if claims:
            return Claim(query.now - renewed, query.owner.holds, looks)
    return Claim(None, False, looks)  # noqa: FBT003 - it claims never, so not too early


def _judge(_case: Case, claim: Any) -> str:
    if claim.after is None:
        return f"The owner has been dead for {DEAD} seconds, and the standby does not claim the lease."
    return f"Two owners: the standby claims the lease {claim}." if claim.too_early else ""


def _picture(_case: Case, claim: Any) -> Table | None:
    return Table(["time", "renewals", "renewed"], claim.looks[-8:]) if isinstance(claim, Claim) else None


def _cases() -> SearchStrategy[Case]:
    from hypothesis import strategies as st

    ahead, speed, every = st.sampled_from([0, 3600, -3600]), st.sampled_from([1, 1.4]), st.sampled_from([1, 0.5, 2])
    return st.tuples(ahead, speed, every, st.text("r.", min_size=1, max_size=12))


@dataclass(frozen=True)
class TakenOver:
    """A learner's query whose owner was killed, and that its standby took over."""

    report: DrillReport

    def captured(self) -> range:
        """Return its epochs."""
        return range(self.report.epochs)


def taken_over(function: Function) -> TakenOver | None:
    """Run a learner's query over four files in a process of its own, with a standby; kill it in the middle."""
    own = OwnQuery(Path("streamstate-data/own-standby"), files=4)
    folder = own.arriving.resolve()

    def build_query() -> Any:
        return function(flights.flights(ss.session(), folder))

    frame = build_query()
    if frame is None or frame is ...:
        return None
    return TakenOver(drill(build_query, standby=True, partitions=2))


def _loses_nothing(query: TakenOver) -> str:
    """Say what was lost, or came out differently; empty if nothing was."""
    return "" if query.report.ok else query.report.verdict


EXERCISES: Sequence[Question | Exercise] = (
    Question(
        id="goes_on",
        task="In which situations may the first owner go on?",
        kind=Keys(SITUATIONS),
        truth=lambda: {name for name, situation in SITUATIONS.items() if situation()},
        because="A renewal counts for four seconds, by the owner's own clock: a cut of three seconds is short enough, "
        "a pause of ten is not, whoever watches. Clocks of different machines are never compared.",
        wrong=[
            WrongAnswer(
                {"cut", "alone", "ahead"},
                "The owner cannot know that nobody watches. What does it know when it wakes up?",
            ),
            WrongAnswer(
                {"cut", "alone"},
                "The standby asks its clock only how long it has waited. Does that depend on the time of day?",
            ),
            WrongAnswer({"cut"}, "The standby's clock is ahead, but not faster. How long has it seen no renewal?"),
            WrongAnswer({"ahead"}, "After three seconds without the store, the last renewal still counts."),
            WrongAnswer(set(SITUATIONS), "In one of them, two processes would own the query."),
        ],
        hints=["Ask first what the owner's own clock says, then what a standby has seen."],
    ),
    Question(
        id="two",
        task="Two standbys claim at the same moment",
        kind=Number(),
        truth=owners_after_two_claims,
        because="Both create the file of the same term. A file is created once, and the other standby gets an error.",
        wrong=[
            WrongAnswer(2, "Both create the file with the same number. How often can a file be created?"),
            WrongAnswer(0, "One of them was first, be it by a microsecond. Why should it give up?"),
        ],
        hints=["What does a claim write?"],
    ),
    Question(
        id="later",
        task="What becomes of code that changes a meaning?",
        kind=Choice(
            {
                "mixes": "the query goes on, and adds the new counts to the old ones",
                "anew": "the query goes on, and counts late flights from zero",
                "refused": "it is refused, and the old code goes on",
            }
        ),
        truth=None,
        because="The new code makes the column of the state from another expression. No type has changed, so Spark "
        "would add up what does not belong together.",
        wrong=[
            WrongAnswer("mixes", "Spark would do that, without a word. That is why the code is checked first."),
            WrongAnswer("anew", "A handover keeps the state as it is. Is there a right number for it to begin with?"),
        ],
        hints=["Which question does the number in the state answer? Which one would it answer a day later?"],
    ),
    Construct(
        id="may_claim",
        task="Write `may_claim(looks, lasts)`",
        solution=may_claim,
        arguments=["clock ahead, s", "its speed", "a look every, s", "owner"],
        cases=_cases,
        examples=[(0, 1, 1, "rrrrrrrr"), (0, 1, 0.5, "........"), (0, 1.4, 1, "....")],
        run=_claims,
        judge=_judge,
        picture=_picture,
        pure=False,
        wrong=[
            WrongAnswer(
                lambda looks, lasts: looks[-1][0] - looks[-1][2] >= lasts,
                "The time of the renewal is by the owner's clock. Yours may be an hour ahead, or behind.",
            ),
            WrongAnswer(
                lambda looks, lasts: len(looks) > 1 and looks[-1][1] == looks[-2][1],
                "No renewal between two looks: the owner may only be slow.",
            ),
            WrongAnswer(
                lambda looks, lasts: looks[-1][0] - looks[0][0] >= lasts,
                "You count from the first look. What has the owner done since?",
            ),
            WrongAnswer(
                lambda looks, lasts: sum(count == looks[-1][1] for _, count, _ in looks) > lasts,
                "You count looks. How many seconds lie between two of them?",
            ),
            WrongAnswer(
                lambda looks, lasts: may_claim(looks, lasts * 2 / 3),
                "So long the owner goes on, by its own clock. Yours may be faster.",
            ),
            WrongAnswer(lambda looks, lasts: False, "Nobody claims: that is safe, and nobody runs the query."),
        ],
        hints=[
            "What you know for certain is what you saw yourself, and when, by your own clock.",
            "How long ago did you see this number of renewals for the first time?",
            "`next(time for time, seen, _ in looks if seen == count)` is the first look that saw `count` renewals.",
        ],
    ),
    StateExercise(
        id="own",
        task="Kill a query of your own",
        solution=lambda departures: departures.groupBy("carrier").count(),
        capture=taken_over,
        grades=[_loses_nothing],
        wrong=[
            WrongAnswer(
                lambda departures: departures.where("rand() < 0.5").groupBy("carrier").count(), "not deterministic"
            ),
            WrongAnswer(
                partial(lambda _lock, departures: departures.groupBy("carrier").count(), threading.Lock()),
                "cannot be sent there",
            ),
            WrongAnswer(lambda departures: departures.select("carrier"), "keeps no state"),
        ],
        hints=[
            "The epoch in which the owner was killed runs again, in another process and at another time.",
            "Everything that the function uses must exist in another process: import inside it.",
        ],
    ),
)
