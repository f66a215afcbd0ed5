"""Exercises in which the learner writes code: a rule, an invariant that catches broken rules, or a streaming query."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from streamstate.tutorials.exercises.answers import NOT_YET, Answer, Table
from streamstate.tutorials.exercises.attempts import LIMIT, Function, Outcome, attempt
from streamstate.tutorials.exercises.questions import WrongAnswer
from streamstate.tutorials.exercises.sampling import Case, sampled, smallest

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

CASES = 200
"""How many random cases a check tries."""

_BUDGET = 10.0
"""Seconds of work that all of them may take."""
_AGAIN = 4
"""Every fourth case is tried twice, to see whether it gives the same result."""
_UNWRITTEN = Answer("waiting", NOT_YET, ["Write the function, then run this cell again."])


@dataclass(frozen=True, kw_only=True)
class Exercise:
    """An exercise in which the learner writes a function.

    Args:
        id: its name in the notebook.
        task: the task in a few words, for the table of progress.
        solution: a function that passes.
        wrong: functions as they are often written, each with the misconception behind it.
        hints: hints, from gentle to plain.
    """

    id: str
    task: str
    solution: Function
    wrong: Sequence[WrongAnswer]
    hints: Sequence[str] = ()

    def check(self, function: Any) -> Answer:
        """Check a learner's function."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Construct(Exercise):
    """A rule to implement. It is compared with the solution, or judged by what must hold, over random cases.

    Args:
        arguments: what the values of a case are called; none if there is only one case, which is empty.
        cases: makes a Hypothesis strategy of cases, which are tuples.
        examples: cases that are always tried, before the random ones.
        run: calls the function with a case; by default with its values as arguments.
        judge: says what must hold for a case and does not hold for a value; empty if all does. By default, the value
            must equal the solution's.
        pure: whether a change of the arguments is a fault.
        limit: how many seconds a case may take.
        picture: draws a failed case: anything with ``_repr_html_``.
    """

    arguments: Sequence[str]
    cases: Callable[[], SearchStrategy[Case]]
    examples: Sequence[Case] = ()
    run: Callable[[Function, Case], Any] = field(default=lambda function, case: function(*case))
    judge: Callable[[Case, Any], str] | None = None
    pure: bool = True
    limit: float = LIMIT
    picture: Callable[[Case, Any], Any] | None = None

    def check(self, function: Any) -> Answer:
        """Check a learner's function over random cases; show the smallest that fails."""
        if not callable(function):
            return _not_a_function(function)
        return self.check_cases(function)

    def check_cases(self, function: Any) -> Answer:
        """As :meth:`check`, for anything that :attr:`run` can run."""
        cases = [*self.examples, *sampled(self.cases, CASES)]
        outcomes = _outcomes(lambda case: self._attempt(function, case), cases, self.arguments)
        if isinstance(outcomes, Answer):
            return outcomes
        failed = [number for number, outcome in enumerate(outcomes) if self._fault(cases[number], outcome)]
        if not failed:
            number = f": it holds for {len(cases)} cases" if self.arguments else ""
            return Answer("right", f"Right{number}.")
        return self._failure(function, cases, outcomes, failed)

    def _attempt(self, function: Function, case: Case) -> Outcome:
        given = copy.deepcopy(case)
        return attempt(lambda guarded: self.run(guarded, given), function, pure=self.pure, limit=self.limit)

    def _fault(self, case: Case, outcome: Outcome) -> str:
        """Say what must hold and does not; empty if all does."""
        if outcome.problem:
            return outcome.problem
        if self.judge is not None:
            try:
                return self.judge(copy.deepcopy(case), outcome.value)
            except Exception:  # noqa: BLE001 - a learner's value may have any type
                return "The value has another form than the exercise asks for."
        expected = self.run(self.solution, copy.deepcopy(case))
        return "" if _equal(expected, outcome.value) else "Another value was expected."

    def _failure(
        self, function: Function, cases: Sequence[Case], outcomes: Sequence[Outcome], failed: Sequence[int]
    ) -> Answer:
        problem = next((outcomes[number].problem for number in failed if outcomes[number].problem), "")
        if problem:  # the case that shows it, not any that fails
            failed = [number for number in failed if outcomes[number].problem]
        case = smallest(self.cases, self._failing(function, problem), [cases[number] for number in failed])
        outcome = self._attempt(function, case)
        if outcome.problem:
            return Answer("wrong", "Not yet.", [outcome.problem], Table(self.arguments, [list(map(copy.copy, case))]))
        agree = _agreeing(self.wrong, self._attempt, cases, outcomes, failed)
        lines = [self._fault(case, outcome)] if self.judge is not None else []
        if outcome.value is None and not self._none_is_right(cases):
            lines.append("It returned nothing here. Is a `return` missing on some path?")
        lines += agree
        lines += [f"It printed: {' '.join(outcome.printed.split())}"] if outcome.printed else []
        expected = [] if self.judge is not None else [self.run(self.solution, copy.deepcopy(case))]
        names = [*self.arguments, *(["expected"] if expected else []), "yours"]
        picture = self.picture(case, outcome.value) if self.picture else None
        return Answer("wrong", "Not yet.", lines, Table(names, [[*case, *expected, outcome.value]]), picture)

    def _none_is_right(self, cases: Sequence[Case]) -> bool:
        return self.judge is None and any(self.run(self.solution, copy.deepcopy(case)) is None for case in cases)

    def _failing(self, function: Function, problem: str) -> Callable[[Case], bool]:
        def fails(case: Case) -> bool:
            outcome = self._attempt(function, case)
            return bool(outcome.problem) if problem else bool(self._fault(case, outcome)) and not outcome.problem

        return fails


@dataclass(frozen=True, kw_only=True)
class Invariant(Exercise):
    """An invariant to write: true for every run of a rule, false for some run of each mutant.

    Args:
        arguments: what the values of a case are called.
        cases: makes a Hypothesis strategy of cases, which are tuples.
        examples: cases that are always tried.
        rule: the correct rule. The invariant is called with a case's values and what the rule returned.
        mutants: broken rules, each with what it does.
    """

    arguments: Sequence[str]
    cases: Callable[[], SearchStrategy[Case]]
    examples: Sequence[Case] = ()
    rule: Function
    mutants: Sequence[WrongAnswer]

    def check(self, function: Any) -> Answer:
        """Check a learner's predicate: it must accept every run of the rule and reject a run of each mutant."""
        if not callable(function):
            return _not_a_function(function)
        cases = [*self.examples, *sampled(self.cases, CASES)]
        right = [self._run(self.rule, case) for case in cases]
        broken = [(mutant, case) for mutant in self.mutants for case in cases if self._differs(mutant, case)]
        runs = [*right, *(self._run(mutant.answer, case) for mutant, case in broken)]
        names = [*self.arguments, "result"]
        outcomes = _outcomes(lambda run: self._attempt(function, run), runs, names)
        if isinstance(outcomes, Answer):
            return outcomes
        for run, outcome in zip(runs, outcomes, strict=True):
            if outcome.problem:
                return Answer("wrong", "Not yet.", [outcome.problem], Table(names, [run]))
        failed = [at for at, outcome in enumerate(outcomes) if bool(outcome.value) != (at < len(right))]
        agree = _agreeing(self.wrong, self._attempt, runs, outcomes, failed)
        if rejected := [cases[at] for at in failed if at < len(right)]:
            return self._rejects(function, rejected, agree)
        verdicts = zip(broken, outcomes[len(right) :], strict=True)
        caught = {id(mutant) for (mutant, _), outcome in verdicts if not outcome.value}
        if survivors := [mutant for mutant in self.mutants if id(mutant) not in caught]:
            return self._survives(survivors, cases, agree)
        title = f"Right: it accepts {len(cases)} correct runs and catches all {len(self.mutants)} broken rules."
        return Answer("right", title)

    def _run(self, rule: Function, case: Case) -> Case:
        return (*copy.deepcopy(case), rule(*copy.deepcopy(case)))

    def _attempt(self, function: Function, run: Case) -> Outcome:
        return attempt(lambda guarded: _verdict(guarded(*run)), function)

    def _differs(self, mutant: WrongAnswer, case: Case) -> bool:
        return bool(self._run(self.rule, case) != self._run(mutant.answer, case))

    def _rejects(self, function: Function, rejected: Sequence[Case], agree: Sequence[str]) -> Answer:
        def fails(case: Case) -> bool:
            return not self._attempt(function, self._run(self.rule, case)).value

        run = self._run(self.rule, smallest(self.cases, fails, rejected))
        lines = ["The rule is right here, and your invariant says that it is not.", *agree]
        return Answer("wrong", "Not yet: it rejects a correct run.", lines, Table([*self.arguments, "result"], [run]))

    def _survives(self, survivors: Sequence[WrongAnswer], cases: Sequence[Case], agree: Sequence[str]) -> Answer:
        mutant = survivors[0]
        differing = [case for case in cases if self._differs(mutant, case)]
        case = smallest(self.cases, lambda case: self._differs(mutant, case), differing)
        row = [*self._run(self.rule, case), self._run(mutant.answer, case)[-1]]
        title = f"Not yet: of {len(self.mutants)} broken rules, your invariant accepts {len(survivors)}."
        table = Table([*self.arguments, "correct", "broken, accepted"], [row])
        return Answer("wrong", title, [f"One of them {mutant.message}", *agree], table)


class Captured(Protocol):
    """A query that ran, with what the grades look at: a history, or several."""

    def captured(self) -> Sequence[int]:
        """Return its epochs."""


@dataclass(frozen=True, kw_only=True)
class StateExercise(Exercise):
    """A streaming query to write, graded by the state that its epochs left in a store.

    Args:
        capture: runs the learner's function to its end and returns what the grades look at, such as the history; None
            if it made no query.
        grades: each says what is wrong with that, empty if nothing is.
    """

    capture: Callable[[Function], Captured | None]
    grades: Sequence[Callable[[Any], str]]

    def check(self, function: Any) -> Answer:
        """Run a learner's query and grade its captured epochs."""
        if not callable(function):
            return _not_a_function(function)
        try:
            query = self.capture(function)
            if query is None:
                return _UNWRITTEN
            fault = next(filter(None, (grade(query) for grade in self.grades)), "")
        except Exception as error:  # noqa: BLE001 - a learner's query may raise anything
            return Answer("wrong", "Not yet: the query failed.", [_first_lines(error)])
        epochs = len(query.captured())
        return Answer("wrong", "Not yet.", [fault]) if fault else Answer("right", f"Right, in all {epochs} epochs.")


def _verdict(value: Any) -> bool | None:
    return None if value is None or value is ... else bool(value)


def _first_lines(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()][:2]
    return f"{type(error).__name__}: {' '.join(lines)}"


def _not_a_function(given: Any) -> Answer:
    if given is None or given is ...:
        return _UNWRITTEN
    return Answer("wrong", "Pass the function itself.", [f"This is no function, but {type(given).__name__}."])


def _outcomes(
    attempted: Callable[[Case], Outcome], cases: Sequence[Case], names: Sequence[str]
) -> list[Outcome] | Answer:
    """Return the outcome of each case; or an answer, if the function is unwritten, too slow, or not deterministic."""
    end = time.thread_time() + _BUDGET  # of this thread's work, whatever else the machine does
    outcomes: list[Outcome] = []
    for case in cases:
        outcome = attempted(case)
        if outcome.stop or time.thread_time() > end:
            problem = outcome.problem or f"It takes too long: {len(outcomes) + 1} cases in {_BUDGET:g} s."
            return Answer("wrong", "Not yet.", [problem], Table(names, [case]))
        outcomes.append(outcome)
    if all(not outcome.problem and (outcome.value is None or outcome.value is ...) for outcome in outcomes):
        return _UNWRITTEN
    for case, outcome in zip(cases[::_AGAIN], outcomes[::_AGAIN], strict=True):
        again = attempted(case)
        if bool(again.problem) != bool(outcome.problem) or _differ(outcome.value, again.value):
            line = (
                "Called twice with the same values, it gave two different results. Does it remember or draw something?"
            )
            row = [*case, outcome.problem or outcome.value, again.problem or again.value]
            return Answer("wrong", "Not yet.", [line], Table([*names, "first", "second"], [row]))
    return outcomes


def _differ(one: Any, other: Any) -> bool:
    """Check whether two values differ, of those that can be compared at all: a generator never equals another."""
    try:
        return _equal(copy.deepcopy(one), one) and not _equal(one, other)
    except Exception:  # noqa: BLE001 - a learner's value may have any type
        return False


def _equal(one: Any, other: Any) -> bool:
    try:
        return bool(one == other)
    except Exception:  # noqa: BLE001 - as above
        return False


def _agreeing(
    wrong: Sequence[WrongAnswer],
    attempted: Callable[[Function, Case], Outcome],
    cases: Sequence[Case],
    outcomes: Sequence[Outcome],
    failed: Sequence[int],
) -> list[str]:
    """Return the message of the wrong answer that behaves like the learner's: wherever it fails, and most often."""
    best, most = [], -1
    rest = sorted(set(range(len(cases))) - set(failed))
    for answer in wrong:

        def agrees(number: int, function: Function = answer.answer) -> bool:
            mine, yours = attempted(function, cases[number]), outcomes[number]
            return not mine.problem and not yours.problem and _equal(mine.value, yours.value)

        if all(map(agrees, failed)) and (count := sum(map(agrees, rest))) > most:
            best, most = [answer.message], count
    return best
