"""The exercises of the notebook I7, "Barriers": asynchronous barrier snapshots, and what blocking a channel is for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

from streamstate.tutorials.exercises.answers import NOT_YET, Answer
from streamstate.tutorials.exercises.attempts import Function, attempt
from streamstate.tutorials.exercises.construct import Construct, Exercise
from streamstate.tutorials.exercises.judged_runs import (
    Judged,
    NotWrittenError,
    fault_of,
    picture_of,
    rule_cases,
    run_rule,
    small,
)
from streamstate.tutorials.exercises.questions import Choice, Number, Question, WrongAnswer
from streamstate.tutorials.exercises.sampling import no_case
from streamstate.tutorials.simulation import AlignedBarriers, Graph, Player, Topology, Trace, explore, replay, run
from streamstate.tutorials.simulation.dataflow import Dataflow
from streamstate.tutorials.simulation.mutants import NotBlocking
from streamstate.tutorials.simulation.network import Handled, Local, Network, logged
from streamstate.tutorials.simulation.protocol import Key
from streamstate.tutorials.simulation.runs import ENDS

Names: TypeAlias = tuple[str, ...]
Rule: TypeAlias = Callable[[Names, Names], tuple[Sequence[str], bool]]

_STEPS: dict[str, Key] = {
    "start": ("start",),
    "A reads": ("read", 0),
    "B reads": ("read", 1),
    "A copies": ("copy", 0),
    "B copies": ("copy", 1),
    "C takes from A": ("receive", 0, 0),
    "C takes from B": ("receive", 1, 0),
}
_BARRIERS = ("start", "A copies", "C takes from A", "B copies", "C takes from B")


class Learned(AlignedBarriers):
    """Barriers with a rule that a learner wrote."""

    name = "your barrier rule"

    def __init__(self, topology: Topology, *, rule: Rule, **options: Any) -> None:
        super().__init__(topology, **options)
        self.rule = rule

    def on_marker(self, here: Local, channel: int, number: int) -> Handled:
        """Do what the learner's rule says; ``open`` has the channels whose barrier is missing."""
        ins = {self.topology.channel_name(each): each for each in here.ins}
        missing = tuple(other for other in here.task.open or here.ins if other != channel)
        arrived = tuple(name for name, each in ins.items() if each not in missing)
        answer = self.rule(tuple(ins), arrived)
        if answer is None:
            raise NotWrittenError
        try:
            names, copies = answer
            blocked = tuple(sorted(ins[each] for each in names))
        except (TypeError, ValueError, KeyError):
            raise ValueError(f"expected some of {tuple(ins)} and True or False, not {answer!r}") from None
        task, sends = self.copied(here, number) if copies else (here.task, ())
        return task._replace(blocked=blocked, open=missing), sends


def play() -> Player[Network]:
    """Return a player of two sources and a crash, in which channels are blocked, or not."""
    kinds: dict[str, type[Dataflow]] = {"on": AlignedBarriers, "off": NotBlocking}
    graphs: dict[object, Graph[Network] | Trace[Network]] = {
        name: explore(small(kind, Topology.merge(1, 1), crashes=1)) for name, kind in kinds.items()
    }
    return Player(
        graphs,
        title="Barriers",
        caption="Choose what happens next. Which channel is blocked, and until when? What if none is?",
        parameter="blocking",
    )


def counterexample() -> list[str]:
    """Return steps after which a snapshot is wrong if no channel is blocked."""
    return ["start", "A copies", "A reads", "C takes from A", "C takes from A", "B copies", "C takes from B"]


def on_barrier(ins: Names, arrived: Names) -> tuple[Sequence[str], bool]:
    """Return the channels from which nothing is taken for now, and whether to copy the state."""
    return ((), True) if set(arrived) == set(ins) else (arrived, False)


def meet(rule: Function, schedule: Function) -> Answer:
    """Try a learner's steps on the learner's rule, and show what happens."""
    outcome = attempt(lambda guarded: _followed(_merge(partial(Learned, rule=guarded)), schedule), rule, pure=False)
    if outcome.problem:
        return Answer("wrong", "Not yet.", [outcome.problem])
    judged = outcome.value
    if judged is None:
        return Answer("waiting", NOT_YET, ["Write both functions, then run this cell again."])
    player = picture_of(None, judged)
    if judged.trace.broken:
        return Answer("wrong", "With your rule, this can happen.", [judged.fault], picture=player)
    return Answer("right", "With your rule, these steps do no harm.", [judged.fault], picture=player)


def _merge(kind: Callable[..., Dataflow]) -> Dataflow:
    return small(kind, Topology.merge(2, 2))


def _followed(protocol: Dataflow, schedule: Function) -> Judged | None:
    """Follow steps, as far as they can happen; None if there are none, or the rule is not written."""
    steps = schedule()
    if steps is None or steps is ...:
        return None
    keys: list[Key] = []
    state = protocol.start()
    try:
        for step in steps:
            if step not in _STEPS:
                raise ValueError(f"there is no step {step!r}; there are {', '.join(map(repr, _STEPS))}")
            enabled = {action.key: action for action in protocol.actions(state)}
            if _STEPS[step] not in enabled:
                return Judged(f"Step {len(keys) + 1}, '{step}', cannot happen there.", replay(protocol, keys))
            keys.append(_STEPS[step])
            state = protocol.act(state, enabled[keys[-1]])
    except NotWrittenError:
        return None
    trace = replay(protocol, keys)
    return Judged(trace.violations[0].reason if trace.broken else _in_words(trace.states[-1]), trace)


def _in_words(network: Network) -> str:
    """Say what a snapshot has that is right."""
    part = network.complete.parts[2]
    if not network.complete.number or part is None:
        return "No snapshot is complete."
    return f"Snapshot 1 is complete, and right: C has counted {', '.join(part.state.seen) or 'nothing'}."


def _unbroken(_case: object, judged: Judged) -> str:
    assert judged.trace is not None
    return "" if judged.trace.broken else "No promise is broken."


def _after(kind: type[Dataflow], topology: Topology, schedule: Sequence[Key], crashes: int = 0) -> Trace[Network]:
    return replay(small(kind, topology, crashes=crashes), schedule)


def _next_from() -> str:
    """Return the source from which C takes, after the barrier from A."""
    schedule = [("start",), ("copy", 0), ("read", 0), ("read", 1), ("receive", 0, 0)]
    trace = _after(AlignedBarriers, Topology.merge(), schedule)
    enabled = {action.key for action in trace.protocol.actions(trace.states[-1])}
    found = [name for name, key in (("a", ("receive", 0, 0)), ("b", ("receive", 1, 0))) if key in enabled]
    return "both" if len(found) > 1 else "".join(found) or "none"


def _logged() -> int:
    """Return how many records a snapshot logs if 3 wait behind a barrier and 2 come before the other one."""
    before = [("start",), ("copy", 0), *[("read", 0)] * 3, *[("read", 1)] * 2, ("copy", 1)]
    topology = Topology.merge(3, 2)
    snapshot = _after(AlignedBarriers, topology, [*before, ("receive", 0, 0), *[("receive", 1, 0)] * 3]).states[-1]
    assert snapshot.complete.number == 1
    return sum(map(len, logged(topology, snapshot.complete)))


def _counted() -> int:
    """Return how often C counts a1 if nothing is blocked, with a crash after the snapshot."""
    schedule: list[Key] = [*(_STEPS[step] for step in counterexample()), ("crash",), ("read", 0), ("receive", 0, 0)]
    return _after(NotBlocking, Topology.merge(1, 1), schedule, crashes=1).states[-1].tasks[2].state.seen.count("a1")


def _in_circle() -> str:
    circle = Topology(("A", "B", "C"), ((0, 1), (1, 2), (2, 1)), (2, 0, 0), 4)
    broken = run(small(AlignedBarriers, circle), 1).broken
    return "stuck" if list(broken) == [ENDS] else "twice"


EXERCISES: Sequence[Question | Exercise] = (
    Question(
        id="next",
        task="From whom does C take the next record?",
        kind=Choice({"a": "from A only", "b": "from B only", "both": "from either", "none": "from nobody"}),
        truth=_next_from,
        because="What A sends now belongs after the snapshot, so it waits. What B sends still belongs before it.",
        wrong=[
            WrongAnswer("a", "What comes from A now was sent after its barrier. Is it part of the snapshot?"),
            WrongAnswer("both", "Then C's state has something from after A's barrier when it is copied."),
            WrongAnswer("none", "Then the barrier from B, which is behind B's records, would never come."),
        ],
        hints=["Which of the two channels still has records of before the snapshot?"],
    ),
    Question(
        id="logged",
        task="How many records does the snapshot log?",
        kind=Number(),
        truth=_logged,
        because="The two of B are in C's state when it is copied. The three of A come after the snapshot: A reads them "
        "again. Nothing is in flight across the cut.",
        wrong=[
            WrongAnswer(3, "They were sent after A's barrier. Who sends them again after a crash?"),
            WrongAnswer(2, "C counts them before it copies its state."),
            WrongAnswer(5, "For each of the five: is it in C's copy, or will its source read it again?"),
        ],
        hints=["A record is lost only if it is in no copy, and no source reads it again."],
    ),
    Question(
        id="duplicate",
        task="How many times does C count a1 if nothing is blocked?",
        kind=Number(),
        truth=_counted,
        because="It is in C's copy, and A's copy says that A has not read it yet. So A reads it again.",
        wrong=[
            WrongAnswer(1, "Look at A's copy: has A read a1 there? And has C counted it, in its own?"),
            WrongAnswer(0, "C counted it before it copied its state. So it is there after the crash."),
            WrongAnswer(3, "Once before the crash, and that is in the copy. How many times after it?"),
        ],
        hints=["What is in A's copy, what in C's?", "A starts again at what its copy says."],
    ),
    Question(
        id="circle",
        task="What happens in a circle of channels?",
        kind=Choice(
            {
                "fine": "the snapshot is right",
                "twice": "some record is counted twice",
                "lost": "some record is lost",
                "stuck": "the snapshot never ends",
            }
        ),
        truth=_in_circle,
        because="B waits for the barrier from C, which waits for the one from B. The paper has a way out: B does not "
        "wait for a channel that leads back, and logs it instead, as Chandy and Lamport do.",
        wrong=[
            WrongAnswer("fine", "What has C to receive before it sends its barrier?"),
            WrongAnswer("twice", "For that, a snapshot has to be taken first. When does B copy its state?"),
            WrongAnswer("lost", "Nothing is restored here, so nothing is lost. For whom does B wait?"),
        ],
        hints=["B sends its barrier when it has those of A and of C. And C?"],
    ),
    Question(
        id="slow",
        task="How many records of A wait when C copies its state?",
        kind=Number(),
        truth=lambda: 10_000 // 2_000 * 1_000,
        because="C needs 5 seconds for what is before B's barrier. Meanwhile A is blocked, and sends 1,000 a second. "
        "The snapshot is cheap, but the records wait: that is the price of alignment.",
        wrong=[
            WrongAnswer(10_000, "Those are of B, and they are taken. What happens in front of A's channel meanwhile?"),
            WrongAnswer(0, "A does not stop: it knows nothing of the barrier from B."),
            WrongAnswer(1_000, "That is one second. How long does C need to reach the barrier from B?"),
        ],
        hints=["How long does C need until the barrier from B is there?"],
    ),
    Construct(
        id="counterexample",
        task="Write `counterexample()`",
        solution=counterexample,
        arguments=[],
        cases=no_case,
        run=lambda function, _: _followed(_merge(NotBlocking), function),
        judge=_unbroken,
        picture=picture_of,
        wrong=[
            WrongAnswer(
                lambda: ["start", "A copies", "A reads", "C takes from A", "B copies", "C takes from B"],
                "C copies its state before it has taken anything from behind a barrier.",
            ),
            WrongAnswer(
                lambda: ["A reads", "C takes from A", *_BARRIERS],
                "That record was sent before A's barrier. It belongs to the snapshot.",
            ),
            WrongAnswer(
                lambda: ["start", "A copies", "A reads", "C takes from A", "C takes from A"],
                "The harm is prepared, but no snapshot is complete. What does C still wait for?",
            ),
        ],
        hints=[
            "Let C take the barrier from A, and then a record that A sent after it, before the barrier from B.",
            "A source that copies its state sends its barrier. C copies when it has taken both barriers.",
        ],
    ),
    Construct(
        id="on_barrier",
        task="Write `on_barrier(ins, arrived)`",
        solution=on_barrier,
        arguments=["topology", "run"],
        cases=rule_cases,
        run=partial(run_rule, Learned, circles=False),
        pure=False,  # all arguments are immutable
        judge=fault_of,
        picture=picture_of,
        wrong=[
            WrongAnswer(
                lambda ins, arrived: ((), len(arrived) == len(ins)),
                "You block nothing. What may come through a channel whose barrier is there?",
            ),
            WrongAnswer(
                lambda ins, arrived: ((), len(arrived) == 1),
                "You copy at the first barrier. What of the records before the others?",
            ),
            WrongAnswer(
                lambda ins, arrived: (arrived, len(arrived) == len(ins)),
                "When do your blocked channels open again?",
            ),
            WrongAnswer(
                lambda ins, arrived: (
                    [other for other in ins if other not in arrived],
                    len(arrived) == len(ins),
                ),
                "You block the channels whose barrier is missing. How is it to come?",
            ),
        ],
        hints=[
            "Are all barriers there, or is one missing?",
            "If one is missing: block those that are there, and do not copy. If none is: copy, and block nothing.",
        ],
    ),
)
