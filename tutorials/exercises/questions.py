"""Questions that a learner answers before the answer is computed: a choice, a number, an ordering, a set of keys."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, Protocol

from streamstate.tutorials.exercises.answers import Table


@dataclass(frozen=True)
class WrongAnswer:
    """A typical wrong answer, and what to say to who gives it.

    Args:
        answer: for a question, the answer, or a function that recognises it; for other exercises, the learner's
            function as it is often written.
        message: the misconception behind it, and what to think of. It must not give the solution away.
    """

    answer: Any
    message: str


class Kind(Protocol):
    """A form that answers take."""

    def problem(self, answer: Any) -> str:
        """Say what is wrong with the form of an answer; empty if nothing is."""

    def same(self, answer: Any, other: Any) -> bool:
        """Check whether two answers are the same."""

    def plain(self, answer: Any) -> Any:
        """Return an answer as JSON holds it."""

    def words(self, answer: Any) -> str:
        """Return an answer as a person reads it."""


class _Plain:
    def same(self, answer: Any, other: Any) -> bool:
        return bool(self.plain(answer) == self.plain(other))

    def plain(self, answer: Any) -> Any:
        return answer

    def words(self, answer: Any) -> str:
        return str(answer)


@dataclass(frozen=True)
class Choice(_Plain):
    """One of several options, by its letter."""

    options: Mapping[str, str]

    def problem(self, answer: Any) -> str:
        """Say what is wrong with the form of an answer; empty if nothing is."""
        known = isinstance(answer, str) and answer in self.options
        return "" if known else f"choose one of {', '.join(map(repr, self.options))}"

    def words(self, answer: Any) -> str:
        """Return an answer as a person reads it."""
        return f"{answer}: {self.options[answer]}"


@dataclass(frozen=True)
class Number(_Plain):
    """A number; one within the tolerance counts as right."""

    tolerance: float = 0.0

    def problem(self, answer: Any) -> str:
        """Say what is wrong with the form of an answer; empty if nothing is."""
        fits = type(answer) is not bool and isinstance(answer, Real) and math.isfinite(answer)
        return "" if fits else "give a number"

    def same(self, answer: Any, other: Any) -> bool:
        """Check whether two answers are the same, within the tolerance."""
        return bool(abs(answer - other) <= self.tolerance)

    def plain(self, answer: Any) -> Any:
        """Return an answer as JSON holds it."""
        return int(answer) if float(answer).is_integer() else float(answer)

    def words(self, answer: Any) -> str:
        """Return an answer as a person reads it."""
        value = self.plain(answer)
        return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"


@dataclass(frozen=True)
class Ordering(_Plain):
    """The items in order."""

    items: Sequence[str]

    def problem(self, answer: Any) -> str:
        """Say what is wrong with the form of an answer; empty if nothing is."""
        fits = isinstance(answer, (list, tuple)) and sorted(map(str, answer)) == sorted(self.items)
        return "" if fits else f"give a list with each of {', '.join(map(repr, self.items))} once"

    def plain(self, answer: Any) -> Any:
        """Return an answer as JSON holds it."""
        return [str(item) for item in answer]

    def words(self, answer: Any) -> str:
        """Return an answer as a person reads it."""
        return ", ".join(map(str, answer))


@dataclass(frozen=True)
class Keys(_Plain):
    """Any of the keys; their order does not matter."""

    keys: Collection[str]

    def problem(self, answer: Any) -> str:
        """Say what is wrong with the form of an answer; empty if nothing is."""
        if not isinstance(answer, (set, frozenset, list, tuple)):
            return f"give a set of any of {', '.join(map(repr, sorted(self.keys)))}; the empty one is set()"
        unknown = sorted({str(key) for key in answer} - set(self.keys))
        return f"there is no {', '.join(unknown)}; there are {', '.join(sorted(self.keys))}" if unknown else ""

    def plain(self, answer: Any) -> Any:
        """Return an answer as JSON holds it."""
        return sorted({str(key) for key in answer})

    def words(self, answer: Any) -> str:
        """Return an answer as a person reads it."""
        return ", ".join(self.plain(answer)) or "none"


@dataclass(frozen=True, kw_only=True)
class Question:
    """A question whose answer is computed once the learner has committed to one.

    Args:
        id: its name in the notebook.
        task: the question in a few words, for the table of progress.
        kind: the form of its answers.
        truth: computes the right answer; None if the notebook computes it.
        because: why, in a sentence or two.
        wrong: typical wrong answers.
        table: computes a table that shows it.
        hints: hints, from gentle to plain.
    """

    id: str
    task: str
    kind: Kind
    truth: Callable[[], Any] | None
    because: str
    wrong: Sequence[WrongAnswer] = ()
    table: Callable[[], Table] | None = None
    hints: Sequence[str] = ()

    def misconception(self, answer: Any) -> str:
        """Return what is likely behind a wrong answer; empty if it is not a typical one."""
        for wrong in self.wrong:
            if wrong.answer(answer) if callable(wrong.answer) else self.kind.same(wrong.answer, answer):
                return wrong.message
        return ""
