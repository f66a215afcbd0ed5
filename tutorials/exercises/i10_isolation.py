"""The exercises of the notebook I10, "Sharing state": one writer, two readers, and four ways to read."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, TypeAlias

from streamstate.tutorials.exercises.attempts import Function
from streamstate.tutorials.exercises.construct import Construct, Exercise
from streamstate.tutorials.exercises.judged_runs import Judged, opened
from streamstate.tutorials.exercises.questions import Choice, Keys, Number, Question, WrongAnswer
from streamstate.tutorials.exercises.sampling import Case
from streamstate.tutorials.simulation import Action, Player, explore, replay
from streamstate.tutorials.simulation.isolation import LEVELS, PROGRAM, TOTAL, Level, Reader, Shared, SharedState
from streamstate.tutorials.simulation.protocol import Key

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

PROMISES = {
    "final": "no read of what is undone",
    "repeat": "reads repeat",
    "sum": "the sum holds",
    "time": "time goes forward",
}
"""What a reader hopes for: a short name, and the invariant."""
Triple: TypeAlias = tuple[str, int, int]
"""A read: the key, the value, and the attempt that wrote it."""


class InTurn(SharedState):
    """The second reader begins when the first one has read everything: fewer states, and every anomaly."""

    def _readers(self, state: Shared) -> Iterator[Action]:
        first_is_done = len(state.readers[0].reads) == len(PROGRAM)
        return (action for action in super()._readers(state) if action.key[1] == 0 or first_is_done)


@dataclass(frozen=True)
class Performed(Judged):
    """What a schedule does: the promises that it breaks; its fault is the reason why it cannot be followed."""

    broken: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return "cannot be followed" if self.fault else f"breaks {', '.join(self.broken) or 'nothing'}"


def play() -> Player[Shared]:
    """Return a player of an epoch and two readers, one after the other, at four levels."""
    return Player(
        {level: explore(InTurn(level, epochs=1)) for level in LEVELS},
        title="A writer and two readers",
        caption="You choose who moves next. Try to break a promise at each level.",
        parameter="level",
    )


def perform(level: Level, schedule: Iterable[Key | str]) -> Player[Shared] | str:
    """Return a player of a schedule; or, if it cannot be followed, the reason."""
    done = _performed(level, schedule)
    return done.fault if done.trace is None else opened(done.trace)


def anomalies(reads: Sequence[Triple], undone: Collection[int]) -> set[str]:
    """Return the promises that a reader's reads break."""
    found = set()
    if any(attempt in undone for _, _, attempt in reads):
        found.add("final")
    if len({value for key, value, _ in reads if key == "x"}) > 1:
        found.add("repeat")
    if len(reads) >= 2 and reads[0][1] + reads[1][1] != TOTAL:
        found.add("sum")
    return found


def schedule(level: Level, promise: str) -> list[Key]:
    """Return a schedule that breaks one promise, and no other."""
    read, epoch = ("read", 0), [("write",), ("write",), ("commit",)]
    begin: list[Key] = [("begin", 0, 0)]
    if promise == "time":
        return [*epoch, ("begin", 0, 1), read, read, read, ("begin", 1, 0)]
    if promise == "final":
        return [*begin, ("write",), read, ("fail",)]
    change = [("write",)] if level == "live" else epoch
    if promise == "repeat":
        return [*begin, read, read, *change, read]
    return [*begin, *change, read, read] if level == "live" else [*begin, read, *change, read]


@cache
def _broken(level: Level, failures: int = 1) -> frozenset[str]:
    graph = explore(SharedState(level, epochs=1, failures=failures))
    return frozenset(name for name, invariant in PROMISES.items() if graph.shortest(invariant) is not None)


def _largest_sum() -> int:
    """Return the largest x + y that a reader of commits gets."""
    states = explore(SharedState("committed"), 20_000).states
    readers = (reader.reads for state in states for reader in state.readers)
    return max(reads[0].value + reads[1].value for reads in readers if len(reads) >= 2)


@cache
def _seen() -> tuple[tuple[tuple[Triple, ...], tuple[int, ...]], ...]:
    """All that a reader can have read, and what was undone; the shortest first."""
    states = [state for level in LEVELS for state in explore(InTurn(level), 20_000).states]
    seen = {(_triples(reader), state.undone) for state in states for reader in state.readers}
    return tuple(sorted(seen, key=lambda each: (len(each[0]), each)))


def _triples(reader: Reader) -> tuple[Triple, ...]:
    return tuple((key, value, attempt) for key, value, attempt in reader.reads)


def _reads() -> SearchStrategy[Case]:
    from hypothesis import strategies as st

    return st.sampled_from(_seen())


_ASKED: tuple[tuple[Level, str], ...] = (
    ("live", "final"),
    ("live", "sum"),
    ("live", "repeat"),
    ("committed", "sum"),
    ("committed", "repeat"),
    ("replica", "time"),
)


def _asked() -> SearchStrategy[Case]:
    from hypothesis import strategies as st

    return st.sampled_from(_ASKED)


def _performed(level: Level, keys: object) -> Performed:
    names = {invariant: name for name, invariant in PROMISES.items()}
    if not isinstance(keys, Iterable):
        return Performed("Return a list of steps.")
    try:
        trace = replay(SharedState(level), [(key,) if isinstance(key, str) else tuple(key) for key in keys])
    except (ValueError, TypeError) as error:
        return Performed(f"It cannot be followed. {error}")
    return Performed("", trace, tuple(sorted(names[each] for each in trace.broken)))


def _run(function: Function, case: Case) -> Performed | None:
    keys = function(*case)
    return None if keys is None or keys is ... else _performed(case[0], keys)


def _judge(case: Case, done: Performed) -> str:
    promise = case[1]
    if done.fault:
        return done.fault
    others = [f"'{PROMISES[name]}'" for name in done.broken if name != promise]
    if promise in done.broken and others:
        return f"It breaks '{PROMISES[promise]}', and also {', '.join(others)}. Which step can you leave out?"
    if others:
        return f"It breaks another promise: {', '.join(others)}."
    return "" if done.broken else "Each promise holds to its end."


def _picture(_: Case, done: Performed | None) -> Player[Shared] | None:
    return None if done is None or done.trace is None else opened(done.trace)


def _in_order(*_: str) -> list[Key]:
    return [("begin", 0, 0), ("read", 0), ("read", 0), ("read", 0)]


def _without_begin(level: Level, promise: str) -> list[Key]:
    return [key for key in schedule(level, promise) if key[0] != "begin"]


def _read_on(level: Level, promise: str) -> list[Key]:
    if (level, promise) != ("live", "final"):
        return schedule(level, promise)
    return [("begin", 0, 0), ("write",), ("read", 0), ("read", 0), ("fail",)]


def _always_live(level: Level, promise: str) -> list[Key]:
    return schedule(level if promise == "time" else "live", promise)


def _last_x(reads: Sequence[Triple], undone: Collection[int]) -> set[str]:
    found = anomalies(reads, undone) - {"sum"}
    values = {key: value for key, value, _ in reads}
    return found | {"sum"} if len(values) == 2 and sum(values.values()) != TOTAL else found


def _by_attempt(reads: Sequence[Triple], undone: Collection[int]) -> set[str]:
    found = anomalies(reads, undone) - {"repeat"}
    return found | {"repeat"} if len({attempt for key, _, attempt in reads if key == "x"}) > 1 else found


def _incomplete(reads: Sequence[Triple], undone: Collection[int]) -> set[str]:
    values = dict.fromkeys("xy", 0) | {key: value for key, value, _ in reversed(reads)}
    return anomalies(reads, undone) | ({"sum"} if sum(values.values()) != TOTAL else set())


def _first_only(reads: Sequence[Triple], undone: Collection[int]) -> set[str]:
    found = anomalies(reads, undone)
    return {next(name for name in PROMISES if name in found)} if found else set()


EXERCISES: Sequence[Question | Exercise] = (
    Question(
        id="live",
        task="Which promises can a live read break?",
        kind=Keys(PROMISES),
        truth=lambda: set(_broken("live")),
        because="Memory has half of an epoch, and epochs that will be undone. It only goes forward because there is "
        "one memory, which both readers read.",
        wrong=[
            WrongAnswer({"final"}, "That is one. And if nothing fails, but the writer goes on between two reads?"),
            WrongAnswer({"repeat", "sum"}, "The writer may fail after you have read what it wrote."),
            WrongAnswer(
                set(PROMISES),
                "Three of them. A value that is undone was in no commit, and there is one memory: whoever begins later "
                "is given no older one.",
            ),
        ],
        hints=["What does a reader see between the two writes of an epoch?", "What if the epoch is undone then?"],
    ),
    Question(
        id="committed",
        task="Which promises can a read of the newest commit break?",
        kind=Keys(PROMISES),
        truth=lambda: set(_broken("committed")),
        because="Each read alone is right: it is of a commit. Two of them may be of two commits.",
        wrong=[
            WrongAnswer(set(), "Each read is of a commit. Are all reads of the same one?"),
            WrongAnswer({"repeat"}, "If x can differ between two reads, what of x from one commit and y from another?"),
            WrongAnswer({"final", "repeat", "sum"}, "Can a commit be undone?"),
        ],
        hints=["A commit may come between two reads."],
    ),
    Question(
        id="largest",
        task="What is the largest sum that a reader of commits gets?",
        kind=Number(),
        truth=_largest_sum,
        because="x is from epoch 0, and y from epoch 2: a state that never was, and each of its numbers was right.",
        wrong=[
            WrongAnswer(100, "That is the sum in each commit. x and y may come from different ones."),
            WrongAnswer(110, "That is with one commit between the reads. How many fit?"),
            WrongAnswer(80, "y is read after x, and y grows."),
        ],
        hints=["Read x as early as possible, and y as late as possible."],
    ),
    Question(
        id="snapshot",
        task="Which promises can a snapshot read break?",
        kind=Keys(PROMISES),
        truth=lambda: set(_broken("snapshot")),
        because="One commit for all reads: what is seen was once true, all of it, and a reader that begins later gets "
        "no older commit. The price is age.",
        wrong=[
            WrongAnswer({"time"}, "A reader that begins gets the newest commit. Can a later one get an older commit?"),
            WrongAnswer({"repeat"}, "The writer goes on, but not in the commit that the reader was given."),
            WrongAnswer({"final"}, "Is a commit ever undone?"),
        ],
        hints=["A commit does not change any more."],
    ),
    Question(
        id="replica",
        task="Which promises can a replica break?",
        kind=Keys(PROMISES),
        truth=lambda: set(_broken("replica")),
        because="Each reader for itself sees a snapshot. The second may be given an older one than the first.",
        wrong=[
            WrongAnswer(set(), "True for each reader alone. Compare two, of which one asks later."),
            WrongAnswer({"sum", "time"}, "The copy is late. Is it torn?"),
            WrongAnswer({"repeat"}, "A reader keeps the commit that it was given."),
        ],
        hints=["Two people look at two copies, one after the other, and talk to each other."],
    ),
    Question(
        id="reliable",
        task="Which promises can a live read break if the writer never fails?",
        kind=Keys(PROMISES),
        truth=lambda: set(_broken("live", 0)),
        because="A machine that never fails makes a live read safe from undone values, and from nothing else.",
        wrong=[
            WrongAnswer(set(), "Without failures, the writer still writes while you read."),
            WrongAnswer({"final", "repeat", "sum"}, "What would undo an epoch now?"),
            WrongAnswer({"sum"}, "x is read twice."),
        ],
        hints=["Which of the anomalies needed a failure?"],
    ),
    Construct(
        id="anomalies",
        task="Write the history checker `anomalies(reads, undone)`",
        solution=anomalies,
        arguments=["reads", "undone"],
        cases=_reads,
        examples=[((), ()), ((("x", 90, 1), ("y", 0, 0)), (1,))],
        wrong=[
            WrongAnswer(_last_x, "You take the last x for the sum. That is a question of its own: does x repeat?"),
            WrongAnswer(
                _by_attempt, "The same value, written again by another attempt, repeats: a reader sees no difference."
            ),
            WrongAnswer(_incomplete, "Has the reader read both x and y already?"),
            WrongAnswer(_first_only, "Some reads break several promises. Return all of them."),
        ],
        hints=[
            "`for key, value, attempt in reads` takes them apart; there may be none, or only one.",
            "Begin with an empty set, and look at each promise for itself.",
        ],
    ),
    Construct(
        id="schedule",
        task="Write a schedule for each anomaly",
        solution=schedule,
        arguments=["level", "promise"],
        cases=_asked,
        run=_run,
        judge=_judge,
        picture=_picture,
        wrong=[
            WrongAnswer(
                _without_begin, "Each step must be possible when its turn comes: a reader begins before it reads."
            ),
            WrongAnswer(_in_order, "Nobody disturbs the reader. What has to happen between two of its steps?"),
            WrongAnswer(_read_on, "The reader reads more than it needs to, and sees another anomaly on the way."),
            WrongAnswer(_always_live, "A reader of commits does not see a write before its commit."),
        ],
        hints=[
            "Look at your play: it says which steps led to the anomaly. Leave out what is not needed.",
            "`final` needs one read. `sum` needs two, with a step of the writer before or between them.",
            "`time` needs both readers. The first must have read all three before the second begins.",
        ],
    ),
    Question(
        id="cut",
        task="What do two queries have in common in a consistent cut?",
        kind=Choice(
            {
                "epoch": "the same number of their epochs",
                "time": "the time at which they committed",
                "input": "how far they have read the sources that they share",
            }
        ),
        truth=lambda: "input",
        because="A state is the fold of its input. Two states fit together if they are folds of the same prefix, "
        "whatever their epochs are called and whenever they were committed.",
        wrong=[
            WrongAnswer("epoch", "One of them may read two files in an epoch, and the other one."),
            WrongAnswer("time", "At the same time, one of them may be far behind."),
        ],
        hints=["What is x + y = 100 between two queries?"],
    ),
)
