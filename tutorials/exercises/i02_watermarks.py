"""The exercises of the notebook I2, "When may it be forgotten?": a windowed count with a watermark, event by event.

Times are minutes after noon. A window is a pair of its start and its end, which does not belong to it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from streamstate.tutorials.exercises.answers import Answer, Table
from streamstate.tutorials.exercises.construct import Construct, Exercise, Invariant
from streamstate.tutorials.exercises.questions import Choice, Keys, Number, Question, WrongAnswer
from streamstate.tutorials.simulation import Player, explore, replay
from streamstate.tutorials.simulation.watermark import Counted, WindowedCount

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

Window = tuple[int, int]
State = dict[Window, int]

SIZE = 10
DELAY = 5
EVENTS = {"a": 1, "b": 4, "c": 12, "d": 8, "e": 16, "f": 9, "g": 10, "h": 21, "i": 27, "j": 18, "k": 23, "l": 24}
"""The event times of twelve events, in the order of their arrival."""


def states(events: Mapping[str, int], *, delay: int = DELAY) -> Sequence[Counted]:
    """Return what is counted, dropped, fired and kept after each event, in the order of their arrival."""
    return replay(WindowedCount(events, size=SIZE, delay=delay), [("arrive", name) for name in events]).states[1:]


def evict(state: State, watermark: int) -> State:
    """Return the windows that may still change."""
    return {window: count for window, count in state.items() if window[1] > watermark}


def is_late(time: int, size: int, watermark: int) -> bool:
    """Check whether an event's window was closed before it arrived."""
    return _window(time, size)[1] <= watermark


def arrivals() -> Answer:
    """Show the twelve events as they arrive, without what becomes of them."""
    table = Table(["arrives", *EVENTS], [["event time", *map(clock, EVENTS.values())]])
    return Answer("note", "Twelve events, in the order of their arrival.", [], table)


def play(*, delay: int | None = None) -> Player[Counted]:
    """Return a player of the twelve events, of which the next two may change places.

    Args:
        delay: minutes that the watermark is behind; by default, a slider chooses between three delays.
    """
    delays = (DELAY, 0, 15) if delay is None else (delay,)
    graphs = {f"{minutes} minutes": explore(WindowedCount(EVENTS, delay=minutes, ahead=2)) for minutes in delays}
    return Player(
        graphs,
        title="Twelve events",
        caption="The next two may change places. Minutes are after noon.",
        parameter="delay",
        example=[("arrive", name) for name in EVENTS],
    )


def clock(minutes: int) -> str:
    """Minutes after noon as a time.

    Example:
        >>> clock(12), clock(-4)
        ('12:12', '11:56')
    """
    hours, minutes = divmod(12 * 60 + minutes, 60)
    return f"{hours:02d}:{minutes:02d}"


def stream() -> list[tuple[int, int]]:
    """Forty events for Spark: pairs of a number and an event time, in the order of their arrival.

    Two minutes lie between most of them, a few come out of order, and five much too late.
    """
    lateness = [0, 3, 1, 4, 0, 2, 4, 1, 3, 0]
    late = {9: 9, 19: 18, 29: 18, 35: 47, 39: 39}
    return [(number, late.get(number, max(0, 2 * number - lateness[number % 10]))) for number in range(40)]


def write_files(folder: Path, events: Sequence[tuple[int, int]], *, each: int = 5) -> Path:
    """Write events as JSON files that Spark reads in their order; return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for at in range(0, len(events), each):
        lines = [{"number": number, "at": f"2013-01-01T{clock(time)}:00Z"} for number, time in events[at : at + each]]
        path = folder / f"{at:03d}.json"
        path.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
        os.utime(path, (1_600_000_000 + at, 1_600_000_000 + at))  # Spark reads the oldest file first
    return folder


def _window(time: int, size: int) -> Window:
    start = time // size * size
    return start, start + size


def _cases() -> SearchStrategy[tuple[State, int]]:
    from hypothesis import strategies as st

    windows = st.integers(0, 12).map(lambda start: (5 * start, 5 * start + SIZE))
    state = st.dictionaries(windows, st.integers(1, 9), max_size=6)
    # Watermarks that are often exactly at an edge.
    return st.tuples(state, st.one_of(st.integers(0, 14).map(lambda edge: 5 * edge), st.integers(0, 75)))


def _times() -> SearchStrategy[tuple[int, int, int]]:
    from hypothesis import strategies as st

    size = st.sampled_from([1, 5, 10, 60])
    return st.tuples(
        st.integers(0, 120), size, st.one_of(st.integers(0, 24).map(lambda edge: 5 * edge), st.integers(0, 130))
    )


def _dropped(delay: int = DELAY) -> set[str]:
    return {name for name, _ in states(EVENTS, delay=delay)[-1].dropped}


def _closes_first() -> str:
    return next(name for name, state in zip(EVENTS, states(EVENTS), strict=True) if 0 in dict(state.fired))


def _lingers() -> set[str]:
    return {clock(start) for start, _ in states(EVENTS)[-1].state}


_LATER = {"25": 25, "30": 30, "34": 34, "35": 35}


def _wakes() -> str:
    def fires(time: int) -> bool:
        return 20 in dict(states({**EVENTS, "m": time})[-1].fired)

    return next(name for name, time in _LATER.items() if fires(time))


def _forgets(state: State, watermark: int) -> State:
    return {} if any(end <= watermark for _, end in state) else dict(state)


def _lagging(state: State, watermark: int) -> State:
    return {window: count for window, count in state.items() if window[1] >= watermark}


def _eager(state: State, watermark: int) -> State:
    return {window: count for window, count in state.items() if window[0] >= watermark}


def _resets(state: State, watermark: int) -> State:
    return dict.fromkeys(evict(state, watermark), 0)


def _loses_newest(state: State, watermark: int) -> State:
    kept = evict(state, watermark)
    return {window: count for window, count in kept.items() if len(kept) == 1 or window != max(kept)}


_EVENT_LEVEL = (
    "You compare the event's own time with the watermark. What counts is whether the result that it belongs to has "
    "been given out: look at the event's window."
)
_EDGE = "Look at the edge. Does the last instant of a window lie before its end, or at it?"

EXERCISES: Sequence[Question | Exercise] = (
    Question(
        id="fires",
        task="Which event makes 12:00–12:10 fire?",
        kind=Choice({"c": "at 12:12", "d": "at 12:08", "e": "at 12:16", "g": "at 12:10"}),
        truth=_closes_first,
        because="`e` at 12:16 moves the watermark to 12:11. That is the first watermark at or past the window's end.",
        wrong=[
            WrongAnswer(
                "c", "An event past the window's end does not close it: the watermark stays five minutes behind."
            ),
            WrongAnswer("d", "`d` belongs to the window. An event in the past never moves a watermark."),
            WrongAnswer("g", "By then it is too late: an earlier event had already moved the watermark far enough."),
        ],
        hints=["Write down the largest event time so far, beside each event.", "Subtract five minutes from it."],
    ),
    Question(
        id="dropped",
        task="Which events are dropped?",
        kind=Keys(EVENTS),
        truth=_dropped,
        because="`f` and `j` find their windows closed. `g`, at 12:10, is behind the watermark of 12:11 too, and "
        "counts: its window, 12:10–12:20, is still open.",
        wrong=[
            WrongAnswer(
                {"d", "f", "g", "j", "k", "l"},
                "Those are the events out of order. A watermark exists to wait for them.",
            ),
            WrongAnswer({"f", "g", "j"}, _EVENT_LEVEL),
            WrongAnswer(set(), "The state would have to keep every window for ever, so that nothing is ever late."),
        ],
        hints=[
            "Which windows are closed when the event arrives?",
            "Compare the end of the event's window with the watermark.",
        ],
    ),
    Question(
        id="lingers",
        task="Which windows are in the state at the end?",
        kind=Keys({"12:00", "12:10", "12:20"}),
        truth=_lingers,
        because="The watermark ends at 12:22. It has passed two windows' ends; the third has four events and waits.",
        wrong=[
            WrongAnswer(
                {"12:00", "12:10", "12:20"}, "A window that fired leaves the state: that is what the watermark is for."
            ),
            WrongAnswer(set(), "A stream does not know that it has ended. Only an event moves the watermark."),
            WrongAnswer(
                {"12:10", "12:20"}, "Follow the watermark once more: which event was the latest, and by how much?"
            ),
        ],
        hints=["Where is the watermark after `l`?"],
    ),
    Question(
        id="quiet",
        task="Which event wakes the last window?",
        kind=Choice(
            {"25": "at 12:25", "30": "at 12:30", "34": "at 12:34", "35": "at 12:35", "none": "it fires by itself"},
        ),
        truth=_wakes,
        because="The watermark must reach 12:30, and it is five minutes behind the largest event time. The hour that "
        "passed on the wall clock moved nothing.",
        wrong=[
            WrongAnswer("none", "Event time stands still while no event arrives, whatever the clock on the wall says."),
            WrongAnswer("30", "That is the window's end; the watermark is five minutes behind it."),
            WrongAnswer("34", "That moves the watermark to 12:29."),
            WrongAnswer("25", "That event belongs to the window, and is not even the latest one."),
        ],
        hints=["The watermark knows only event times.", "Which event time minus five minutes is 12:30?"],
    ),
    Question(
        id="smallest",
        task="The smallest delay that drops none",
        kind=Number(),
        truth=lambda: next(delay for delay in range(60) if not _dropped(delay)),
        because="`j` is nine minutes behind `i`, but its window ends at 12:20: the watermark may reach 12:19, "
        "eight minutes behind `i`.",
        wrong=[
            WrongAnswer(9, "That is how late `j` is. But its window lives longer than its own time."),
            WrongAnswer(7, "That is enough for `f`. What of `j`?"),
            WrongAnswer(20, "That is enough, and keeps more than it must."),
        ],
        hints=[
            "Try delays with `play(delay=…)` if you like.",
            "An event counts while the watermark is below its window's end.",
        ],
    ),
    Question(
        id="two",
        task="The watermark of two inputs",
        kind=Number(),
        truth=lambda: min(120, 20) - DELAY,
        because="The smaller one counts: an operator may forget only what neither input can still bring.",
        wrong=[
            WrongAnswer(
                115, "Then departures after 12:20 would find the weather's windows gone before their weather arrives."
            ),
            WrongAnswer(65, "An average promises something that holds for neither input."),
            WrongAnswer(20, "You left out the delay."),
        ],
        hints=["What may the operator still receive from the slower input?"],
    ),
    Construct(
        id="is_late",
        task="Write `is_late(time, size, watermark)`",
        solution=is_late,
        arguments=["time", "size", "watermark"],
        cases=_times,
        examples=[(10, 10, 11), (9, 10, 10), (5, 10, 10)],
        wrong=[
            WrongAnswer(lambda time, size, watermark: time < watermark, _EVENT_LEVEL),
            WrongAnswer(lambda time, size, watermark: _window(time, size)[1] < watermark, _EDGE),
            WrongAnswer(
                lambda time, size, watermark: _window(time, size)[0] <= watermark,
                "You look at the window's start. A window that has begun is not over yet.",
            ),
        ],
        hints=["`time // size * size` is the start of the event's window.", "When was that window given out?"],
    ),
    Construct(
        id="evict",
        task="Write `evict(state, watermark)`",
        solution=evict,
        arguments=["state", "watermark"],
        cases=_cases,
        examples=[({(0, 10): 1}, 10), ({(0, 10): 3, (10, 20): 1}, 12)],
        wrong=[
            WrongAnswer(_eager, "You look at the window's start. A window that has begun can still receive events."),
            WrongAnswer(_lagging, _EDGE),
            WrongAnswer(
                lambda state, watermark: dict(state), "Nothing ever leaves: this state grows for as long as it runs."
            ),
            WrongAnswer(
                lambda state, watermark: {window: count for window, count in state.items() if window[1] <= watermark},
                "These are the windows that fire. What stays is the rest.",
            ),
            WrongAnswer(_forgets, "One window is over, and all others go with it."),
        ],
        hints=[
            "Which windows can no event change any more?",
            "`is_late` knows: every event of a closed window would be late.",
            "Build a new dictionary; the caller still needs the old one to give out what fires.",
        ],
    ),
    Invariant(
        id="invariant",
        task="Write the invariant of `evict`",
        solution=lambda state, watermark, kept: kept == {key: state[key] for key in state if key[1] > watermark},
        arguments=["state", "watermark"],
        cases=_cases,
        examples=[({(0, 10): 1}, 10), ({(0, 10): 3, (10, 20): 1, (20, 30): 2}, 12)],
        rule=evict,
        mutants=[
            WrongAnswer(lambda state, watermark: dict(state), "never forgets anything."),
            WrongAnswer(_forgets, "forgets everything as soon as one window is over."),
            WrongAnswer(_eager, "forgets windows that are still open."),
            WrongAnswer(_lagging, "keeps a window that ends exactly at the watermark."),
            WrongAnswer(_resets, "keeps the right windows and sets their counts to zero."),
            WrongAnswer(_loses_newest, "loses the newest window."),
        ],
        wrong=[
            WrongAnswer(
                lambda state, watermark, kept: all(end > watermark for _, end in kept),
                "Half of it: you say that nothing lingers, but not that nothing is lost.",
            ),
            WrongAnswer(
                lambda state, watermark, kept: all(kept.get(key) == state[key] for key in state if key[1] > watermark),
                "Half of it: you say that nothing is lost, but not that nothing lingers.",
            ),
            WrongAnswer(
                lambda state, watermark, kept: set(kept) == {key for key in state if key[1] > watermark},
                "You compare which windows there are. What about what they hold?",
            ),
            WrongAnswer(
                lambda state, watermark, kept: len(kept) < len(state),
                "Often there is nothing to forget, and that is right.",
            ),
        ],
        hints=[
            "An invariant has two halves: nothing bad happens (safety), and what should happen does (liveness).",
            "What must hold for a window in `kept`? And for one that is not?",
        ],
    ),
    Question(
        id="spark",
        task="How many of the forty does Spark drop?",
        kind=Number(),
        truth=None,
        because="Spark moves the watermark between epochs, never within one, and judges an event by the watermark that "
        "the epoch before had. So fewer are late.",
        wrong=[
            WrongAnswer(
                lambda answer: answer == len(states(dict(map(_named, stream())))[-1].dropped),
                "That is right for a watermark that moves with every event. Spark's moves once an epoch.",
            ),
        ],
        hints=["What is the watermark of an epoch, if it does not move within it?"],
    ),
)


def _named(event: tuple[int, int]) -> tuple[str, int]:
    number, time = event
    return str(number), time
