"""The exercises of the notebook I6, "Photograph a moving system": pause it, drain it, or send markers through it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any, TypeAlias

from streamstate.tutorials.exercises.construct import Construct, Exercise, Invariant
from streamstate.tutorials.exercises.judged_runs import (
    NotWrittenError,
    fault_of,
    picture_of,
    rule_cases,
    run_rule,
    small,
    topologies,
)
from streamstate.tutorials.exercises.questions import Choice, Keys, Number, Question, WrongAnswer
from streamstate.tutorials.simulation import (
    ChandyLamport,
    DrainFirst,
    Graph,
    PauseFirst,
    Player,
    Topology,
    Trace,
    explore,
    run,
)
from streamstate.tutorials.simulation.dataflow import Dataflow
from streamstate.tutorials.simulation.mutants import LateMarkers, NoLog, PauseWithoutChannels, Reordering
from streamstate.tutorials.simulation.network import Handled, Local, Message, Network, logged
from streamstate.tutorials.simulation.runs import replay

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

Names: TypeAlias = tuple[str, ...]
Channel: TypeAlias = tuple[Names, Names, Names]
"""The records that the sender's copy has sent, that the receiver's copy has received, and that were logged."""
Rule: TypeAlias = Callable[[str, Names, bool, Names], tuple[bool, Sequence[str]]]

_ORDERED = "channel logs are what was in flight"


class AtAnyTime(PauseWithoutChannels):
    """Each task copies its state when it likes, and nothing stops for it."""

    name = "no rule"
    fault = "states are copied while records move"

    def may_read(self, network: Network) -> bool:
        """Read always."""
        return True

    def may_receive(self, network: Network, channel: int) -> bool:
        """Deliver always."""
        return True


class Learned(ChandyLamport):
    """Chandy and Lamport's protocol with a marker rule that a learner wrote."""

    name = "your marker rule"

    def __init__(self, topology: Topology, *, rule: Rule, **options: Any) -> None:
        super().__init__(topology, **options)
        self.rule = rule

    def on_marker(self, here: Local, channel: int, number: int) -> Handled:
        """Do what the learner's rule says."""
        name = self.topology.channel_name
        ins = {name(each): each for each in here.ins}
        copied = here.task.round >= number
        answer = self.rule(name(channel), tuple(ins), copied, tuple(map(name, here.task.open)))
        if answer is None:
            raise NotWrittenError
        try:
            copies, logging = answer
            chosen = tuple(sorted(ins[each] for each in logging))
        except (TypeError, ValueError, KeyError):
            raise ValueError(f"expected True or False and some of {tuple(ins)}, not {answer!r}") from None
        if copies:
            return self.begin(here, number, chosen)
        return self.closed(here.task._replace(open=chosen)), ()


def play() -> Player[Network]:
    """Return a player in which you choose when each task copies its state, by four rules."""
    rules = {
        "none": AtAnyTime,
        "pause": PauseFirst,
        "drain": DrainFirst,
        "markers": ChandyLamport,
    }
    graphs: dict[object, Graph[Network] | Trace[Network]] = {
        name: explore(small(rule, Topology.merge(1, 1))) for name, rule in rules.items()
    }
    return Player(
        graphs,
        title="Photograph a moving system",
        caption="Choose when each task copies its state. Try to get a photo that lacks a record, or has one too many.",
        parameter="rule",
    )


def play_out_of_order() -> Player[Network]:
    """Return a player of the shortest run in which a channel that reorders messages spoils a snapshot with markers."""
    trace = explore(small(Reordering, Topology.chain(2, 2))).shortest(_ORDERED)
    assert trace is not None
    return Player(trace, title="A marker out of order", caption="A record and the marker change places.")


def on_marker(channel: str, ins: Names, copied: bool, logging: Names) -> tuple[bool, Sequence[str]]:  # noqa: FBT001
    """Return whether to copy the state now, and the channels to log from now on."""
    if not copied:
        return True, [other for other in ins if other != channel]
    return False, [other for other in logging if other != channel]


def _snapshots() -> SearchStrategy[tuple[int]]:
    from hypothesis import strategies as st

    return st.tuples(st.integers(0, 399))


@cache
def _channels(protocol: type[Dataflow], number: int) -> list[Channel]:
    """Return the channels of the snapshot of a run; those of the correct protocol if the snapshot is right."""
    topology = topologies(circles=False)[number // 20]
    trace = run(small(protocol, topology), number)
    if protocol is not ChandyLamport and not trace.broken:
        return _channels(ChandyLamport, number)
    snapshot = trace.states[-1].complete
    logs = logged(topology, snapshot)
    found = []
    for channel, (source, target) in enumerate(topology.channels):
        sender, receiver = snapshot.parts[source], snapshot.parts[target]
        assert sender is not None
        assert receiver is not None
        sent = sender.state.sent[topology.outs[source].index(channel)]
        received = receiver.state.received[topology.ins[target].index(channel)]
        found.append((_names(sent), _names(received), _names(logs[channel])))
    return found


def _names(records: Iterable[Message]) -> Names:
    return tuple(record.name for record in records)  # type: ignore[union-attr]


def _logs_from_start(number: int) -> list[Channel]:
    return [(sent, received, received + log) for sent, received, log in _channels(ChandyLamport, number)]


def _logs_others(number: int) -> list[Channel]:
    """Logs as many records as were in flight, but those that came before."""
    return [
        (sent, received, received[: len(log)] if len(received) >= len(log) else log)
        for sent, received, log in _channels(ChandyLamport, number)
    ]


def holds(_run: int, channels: list[Channel]) -> bool:
    """Return True if a snapshot is right."""
    return all(sent == received + log for sent, received, log in channels)


def _logged_channels() -> set[str]:
    """Return what C logs after the marker from A."""
    protocol = small(ChandyLamport, Topology.merge())
    [*_, after] = replay(protocol, [("start",), ("copy", 0), ("receive", 0, 0)]).states
    return {protocol.topology.channel_name(channel) for channel in after.tasks[2].open}


def _without_order() -> set[str]:
    """Return the rules that hold all promises if channels reorder messages."""
    kinds: dict[str, type[Dataflow]] = {"pause": PauseFirst, "drain": DrainFirst, "markers": ChandyLamport}
    return {name for name, kind in kinds.items() if not _breaks(type(kind.__name__, (_AnyOrder, kind), {}))}


def _breaks(protocol: type[Dataflow]) -> bool:
    return any(run(protocol.random(seed), seed, until_broken=True).broken for seed in range(30))


class _AnyOrder:
    """Channels that are not first in, first out."""

    def arrivals(self, queue: tuple[Message, ...]) -> Sequence[int]:
        return range(len(queue))


EXERCISES: Sequence[Question | Exercise] = (
    Question(
        id="sum",
        task="How much money is in the two photos?",
        kind=Number(),
        truth=lambda: 100 + (100 + 10),
        because="A is seen with the 10 that it has not sent yet, and B with the same 10. Such a cut is not consistent: "
        "it has an effect without its cause.",
        wrong=[
            WrongAnswer(200, "That is what there is, at any moment. The photos are of two moments."),
            WrongAnswer(190, "That would be A after it sent, and B before it received."),
            WrongAnswer(220, "Only B has the 10 more. A still has its 100."),
        ],
        hints=["What does A have in its photo? And B in its own?"],
    ),
    Question(
        id="repair",
        task="Which sum can be repaired by what was in flight?",
        kind=Choice(
            {
                "less": "190: too little",
                "more": "210: too much",
                "both": "both",
                "none": "none of them",
            }
        ),
        truth=lambda: "less",
        because="A transfer that was sent and not received can be written down beside the photos: 90 + 100 + 10. One "
        "that was received and never sent cannot.",
        wrong=[
            WrongAnswer("more", "In that photo nothing is in flight. What would you write down: minus 10?"),
            WrongAnswer("both", "One of them shows a transfer that was received and not sent. Who would believe it?"),
            WrongAnswer("none", "Somebody could watch the channel, and write down what is in it."),
        ],
        hints=["In which of the two is something on its way?"],
    ),
    Question(
        id="pause",
        task="How long does nothing move, in seconds?",
        kind=Number(tolerance=0.01),
        truth=lambda: max([0.01] * 999 + [2.0]),
        because="All wait for the slowest. The more tasks there are, the more likely one is slow.",
        wrong=[
            WrongAnswer(0.01, "That is a typical task. All have to be ready before the first one may go on."),
            WrongAnswer(lambda answer: 11.9 < answer < 12.1, "That is the sum: they copy at the same time."),
            WrongAnswer(lambda answer: 0.0115 < answer < 0.0125, "That is the mean. Nobody waits for the mean."),
        ],
        hints=["When may the first task go on?"],
    ),
    Question(
        id="logged",
        task="Which channels does C log after the first marker?",
        kind=Keys(("A→C", "B→C")),
        truth=_logged_channels,
        because="What A sent before its copy has come: the marker was behind it. B may have copied already, and then "
        "what it sent before is still on its way.",
        wrong=[
            WrongAnswer({"A→C"}, "What comes from A now was sent after A's copy. Is it part of the photo?"),
            WrongAnswer({"A→C", "B→C"}, "For one of the two, C knows that nothing of the photo is in flight any more."),
            WrongAnswer(set(), "From one of the two, records may come that were sent before its sender's copy."),
        ],
        hints=["What does a marker say about the records that come after it?"],
    ),
    Question(
        id="order",
        task="What is still right if channels reorder messages?",
        kind=Keys(("pause", "drain", "markers")),
        truth=_without_order,
        because="A marker separates *before* from *after* by its place among the records. To pause or to drain needs "
        "no place: it looks at all that is in flight, or waits until nothing is.",
        wrong=[
            WrongAnswer({"pause", "drain", "markers"}, "What does a marker mean if a record overtakes it?"),
            WrongAnswer({"drain"}, "While nothing moves, what waits in a channel can be copied in any order."),
            WrongAnswer({"pause"}, "Is there an order in a channel that is empty?"),
            WrongAnswer(set(), "Does a system in which nothing moves have an order of messages?"),
        ],
        hints=["Which of the three rules uses the place of a message in its channel?"],
    ),
    Construct(
        id="on_marker",
        task="Write `on_marker(channel, ins, copied, logging)`",
        solution=on_marker,
        arguments=["topology", "run"],
        cases=rule_cases,
        run=partial(run_rule, Learned, circles=True),
        pure=False,  # all arguments are immutable
        judge=fault_of,
        picture=picture_of,
        wrong=[
            WrongAnswer(
                lambda channel, ins, copied, logging: (
                    (False, [other for other in logging if other != channel]) if copied else (True, ins)
                ),
                "You log the channel of the first marker, too. Which marker would end that log?",
            ),
            WrongAnswer(
                lambda channel, ins, copied, logging: (
                    (False, ()) if copied else (True, [other for other in ins if other != channel])
                ),
                "Your second marker ends all logs. What does it say about the other channels?",
            ),
            WrongAnswer(
                lambda channel, ins, copied, logging: (not copied, ()),
                "You log nothing. Where are the records that were in flight?",
            ),
            WrongAnswer(
                lambda channel, ins, copied, logging: (True, [other for other in ins if other != channel]),
                "You copy the state at every marker. A photo shows one moment.",
            ),
            WrongAnswer(
                lambda channel, ins, copied, logging: (
                    (False, logging) if copied else (True, [other for other in ins if other != channel])
                ),
                "Your logs never end. What does a marker say about what comes after it?",
            ),
        ],
        hints=[
            "The first marker is another case than the later ones.",
            "At the first: copy, and log all other channels. Later: do not copy, and log one channel less.",
        ],
    ),
    Invariant(
        id="invariant",
        task="Write the invariant of a snapshot",
        solution=holds,
        arguments=["run"],
        cases=_snapshots,
        rule=lambda number: _channels(ChandyLamport, number),
        mutants=[
            WrongAnswer(lambda number: _channels(NoLog, number), "logs nothing."),
            WrongAnswer(lambda number: _channels(Reordering, number), "has channels that reorder messages."),
            WrongAnswer(lambda number: _channels(LateMarkers, number), "sends its markers one record too late."),
            WrongAnswer(_logs_from_start, "begins to log before it copies the state."),
            WrongAnswer(_logs_others, "logs as many records as were in flight, but other ones."),
        ],
        wrong=[
            WrongAnswer(
                lambda run, channels: all(set(received) <= set(sent) for sent, received, _ in channels),
                "The cut is consistent: nothing was received that was not sent. And what was in flight?",
            ),
            WrongAnswer(
                lambda run, channels: all(sent == received for sent, received, _ in channels),
                "You want empty channels. This protocol does not drain them.",
            ),
            WrongAnswer(
                lambda run, channels: all(len(sent) == len(received) + len(log) for sent, received, log in channels),
                "You count. Which records are they?",
            ),
            WrongAnswer(
                lambda run, channels: all(set(sent) == {*received, *log} for sent, received, log in channels),
                "A record in both places is counted twice when the snapshot is restored. A set does not see it.",
            ),
        ],
        hints=[
            "`all(… for sent, received, log in channels)`",
            "What was sent was received, or was in flight. Nothing else, and nothing twice.",
        ],
    ),
)
