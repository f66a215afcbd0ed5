"""The exercises of the notebook I1, "What must be remembered?": exact answers, and counts within few cells."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from streamstate.tutorials.exercises.answers import Answer, Table
from streamstate.tutorials.exercises.construct import Construct, Exercise
from streamstate.tutorials.exercises.questions import Choice, Keys, Number, Question, WrongAnswer

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

Cells = dict[Any, int]
Observe = Callable[[Cells, Any, int], Cells]

EVENTS = 5_000
ITEMS = 1_000
CELLS = 10


def numbers(count: int) -> list[int]:
    """Random numbers of which hardly two are equal; the first ones of a longer list are those of a shorter one."""
    draws = random.Random(1)  # noqa: S311 - a seed
    return [draws.randrange(10**9) for _ in range(count)]


STATES: Mapping[str, Callable[[list[int]], int]] = {
    "count": lambda stream: 1,
    "maximum": lambda stream: len({max(stream)}),
    "average": lambda stream: len((sum(stream), len(stream))),
    "distinct": lambda stream: len(set(stream)),
    "median": lambda stream: len(Counter(stream)),
    "top three": lambda stream: len(Counter(stream)),
    "join": len,
}
"""How many values an exact answer must keep after a stream, so that it stays exact whatever comes next."""


def skewed() -> list[int]:
    """Five thousand events over a thousand items, of which few are frequent: item 1 twice as often as item 2."""
    draws = random.Random(7)  # noqa: S311 - a seed
    return draws.choices(range(1, ITEMS + 1), [1 / item for item in range(1, ITEMS + 1)], k=EVENTS)


def observe(cells: Cells, item: Any, k: int) -> Cells:
    """Count an item within ``k`` cells, as Misra and Gries do."""
    if item in cells or len(cells) < k:
        return {**cells, item: cells.get(item, 0) + 1}
    return {known: count - 1 for known, count in cells.items() if count > 1}


def counted(rule: Observe, stream: Iterable[Any], k: int) -> Any:
    """Apply a rule to each item of a stream, up to the first time that it needs more than ``k`` cells."""
    cells: Any = {}
    for item in stream:
        cells = rule(cells, item, k)
        if not isinstance(cells, dict) or len(cells) > k:
            break
    return cells


def play(*, k: int = CELLS) -> Answer:
    """Show the most frequent items of a skewed stream, counted exactly and within ``k`` cells.

    The player of this notebook will take the place of the table.
    """
    stream = skewed()
    exact, sketch = Counter(stream), counted(observe, stream, k)
    rows = [[item, count, sketch.get(item, 0), count - sketch.get(item, 0)] for item, count in exact.most_common(8)]
    worst = max(count - sketch.get(item, 0) for item, count in exact.items())
    title = f"{k} cells instead of {len(exact)}: no count is off by more than {worst}, of {len(stream):,} events."
    return Answer("note", title, [], Table(["item", "exact", "in cells", "off by"], rows))


def _grow_not() -> set[str]:
    few, many = numbers(100), numbers(1_000)
    return {name for name, size in STATES.items() if size(few) == size(many)}


def _sizes() -> Table:
    few, many = numbers(100), numbers(1_000)
    rows = [[name, size(few), size(many)] for name, size in STATES.items()]
    return Table(["exact answer", "values after 100 events", "after 1,000"], rows)


def _found() -> int:
    stream = skewed()
    frequent = {item for item, _ in Counter(stream).most_common(5)}
    return len(frequent & counted(observe, stream, CELLS).keys())


def _worst() -> int:
    """The largest error within nine cells: ten items that take turns."""
    stream = [number % 10 for number in range(1_000)]
    sketch = counted(observe, stream, 9)
    return int(max(count - sketch.get(item, 0) for item, count in Counter(stream).items()))


def _judge(case: tuple[Any, ...], cells: Any) -> str:
    stream, k = case
    if not isinstance(cells, dict):
        return "Return the cells: a dictionary from items to counts."
    if len(cells) > k:
        return f"There may be {k} cells at any time, and there are {len(cells)}."
    exact = Counter(stream)
    allowed = len(stream) // k
    item = max({*exact, *cells}, key=lambda item: abs(exact[item] - cells.get(item, 0)))
    off = abs(exact[item] - cells.get(item, 0))
    if off > allowed:
        came, count = exact[item], cells.get(item, 0)
        return (
            f"`{item}` came {came} times, and its count is {count}. After {len(stream)} events, {k} cells may be off "
            f"by {allowed}."
        )
    return ""


def _streams() -> SearchStrategy[tuple[str, int]]:
    from hypothesis import strategies as st

    return st.tuples(st.text("abcdefgh", min_size=1, max_size=60), st.integers(1, 4))


def _first_come(cells: Cells, item: Any, k: int) -> Cells:
    return {**cells, item: cells.get(item, 0) + 1} if item in cells or len(cells) < k else dict(cells)


def _restarts(cells: Cells, item: Any, k: int) -> Cells:
    if item in cells or len(cells) < k:
        return {**cells, item: cells.get(item, 0) + 1}
    least = min(cells, key=cells.__getitem__)
    return {**{known: count for known, count in cells.items() if known != least}, item: 1}


def _lingering(cells: Cells, item: Any, k: int) -> Cells:
    if item in cells or len(cells) < k:
        return {**cells, item: cells.get(item, 0) + 1}
    return {known: max(0, count - 1) for known, count in cells.items()}


EXERCISES: Sequence[Question | Exercise] = (
    Question(
        id="constant",
        task="Which exact answers need no more memory later?",
        kind=Keys(STATES),
        truth=_grow_not,
        table=_sizes,
        because="These three are functions of a few running values. For each of the others, two pasts that differ in "
        "one forgotten value can be followed by events that make their answers differ.",
        wrong=[
            WrongAnswer(
                {"count", "maximum", "average", "top three"},
                "Three items are the answer. Which of all others may still overtake them?",
            ),
            WrongAnswer(
                {"count", "maximum", "average", "median"},
                "A median is one number, but the next event moves it to a neighbour. Which one is that?",
            ),
            WrongAnswer({"count", "maximum"}, "An average is a sum and a count."),
            WrongAnswer(
                {"count", "maximum", "average", "distinct"},
                "The answer is one number. But is the next item new?",
            ),
        ],
        hints=["Two streams left the same memory. Can the same next event make their right answers differ?"],
    ),
    Question(
        id="exact",
        task="Can three cells always find the most frequent item?",
        kind=Choice(
            {"yes": "yes, with a clever rule", "random": "yes, if the rule draws at random", "no": "no, there is none"}
        ),
        truth=lambda: "no",
        because="There are more pasts than contents of three cells, so two pasts with different counts leave the same "
        "cells. What comes next can make a different item the winner in each; the rule cannot tell them apart.",
        wrong=[
            WrongAnswer("yes", "Any rule maps many pasts to the same three cells. Let the future choose between them."),
            WrongAnswer("random", "That can make a mistake unlikely. Always is more than likely."),
        ],
        hints=["How many different streams of a hundred events are there? How many contents of three cells?"],
    ),
    Question(
        id="found",
        task="How many of the top five are in ten cells?",
        kind=Number(),
        truth=_found,
        because="Only an item that makes a large part of the stream is safe. Item 1 is. Item 2 was lucky, and the "
        "other three lost their cells to the crowd. How large a part that is, you will know soon.",
        wrong=[
            WrongAnswer(
                0, "Ten cells are one percent of the items. But how many of the events do frequent items make?"
            ),
            WrongAnswer(1, "So much is certain. Sometimes luck adds to it."),
            WrongAnswer(5, "Being among the first five is not enough: hundreds of others want the same ten cells."),
        ],
        hints=[
            "Item 1 makes one event in seven or eight, item 5 one in forty.",
            "A rare item also takes a cell, or a count.",
        ],
    ),
    Construct(
        id="observe",
        task="Write `observe(cells, item, k)`",
        solution=observe,
        arguments=["stream", "k"],
        cases=_streams,
        examples=[("aabb" + "cd" * 10, 3), ("abc" + "d" * 8, 2), ("ab" + "c" * 20, 2)],
        run=lambda rule, case: counted(rule, *case),
        judge=_judge,
        pure=False,
        wrong=[
            WrongAnswer(
                lambda cells, item, k: {**cells, item: cells.get(item, 0) + 1},
                "This is exact, with a cell for every item. What gives way when all cells are taken?",
            ),
            WrongAnswer(
                _first_come, "Whoever comes first stays for ever, and a favourite that comes later never counts."
            ),
            WrongAnswer(
                _restarts,
                "A newcomer takes the smallest cell and starts at one. Two items that take turns push each other out, "
                "and neither is ever counted.",
            ),
            WrongAnswer(_lingering, "A cell that has fallen to zero is still taken. Nobody new gets in."),
        ],
        hints=[
            "If the item has a cell, or one is free, there is nothing to decide.",
            "Otherwise, somebody must pay. Think of throwing away groups of items that are all different.",
            "Throw away the newcomer together with one of each item in the cells. How often can that happen?",
            "Cells that fall to zero become free. Another rule works too: the newcomer inherits the smallest count.",
        ],
    ),
    Question(
        id="worst",
        task="The largest error with nine cells after 1,000 events",
        kind=Number(),
        truth=_worst,
        because="Each time, the newcomer goes together with one of each of the nine: ten events. That happens at most "
        "100 times in 1,000 events, and ten items that take turns make it happen 100 times.",
        wrong=[
            WrongAnswer(111, "Close. How many events go each time: nine, or nine and the newcomer?"),
            WrongAnswer(1000, "An item that makes all events is counted exactly: nobody else pays."),
            WrongAnswer(0, "With ten items and nine cells, somebody must pay."),
        ],
        hints=["How many events are thrown away together?", "How many times does that fit into 1,000?"],
    ),
    Question(
        id="rows",
        task="Rows of state of a sketch in Spark",
        kind=Number(),
        truth=None,
        because="The sketch is one value, however many aircraft there are. The exact answer has a row for each.",
        wrong=[
            WrongAnswer(10, "One per epoch? An epoch changes the state; it does not add one."),
            WrongAnswer(0, "It must remember something, or it would count each aircraft again in every epoch."),
        ],
        hints=["How many groups has an aggregate without `groupBy`?"],
    ),
)
