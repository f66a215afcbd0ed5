"""The exercises of one notebook, as its cells use them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from importlib import import_module
from typing import Any

from streamstate.tutorials.exercises.answers import NOT_YET, Answer, Table
from streamstate.tutorials.exercises.construct import Exercise
from streamstate.tutorials.exercises.progress_file import ProgressFile, Records, default_path
from streamstate.tutorials.exercises.questions import Question

Item = Question | Exercise


class Worksheet:
    """The exercises of one notebook: predict, reveal, check, hints and progress.

    Nothing that a learner passes raises an error: each call returns an :class:`Answer`, which the notebook shows. What
    was answered is kept in one JSON file in the user's data folder; the environment variable ``STREAMSTATE_PROGRESS``
    names another.

    Args:
        module: the module of ``streamstate.tutorials.exercises`` with the exercises, such as "i02_watermarks"; or, with
            ``exercises``, a name for the file of progress.
        exercises: the exercises, if they are not those of a module.

    Example:
        >>> from streamstate.tutorials.exercises import Worksheet
        >>> I2 = Worksheet("i02_watermarks")
        >>> I2.predict("fires", ...)
        … Not answered yet.
          Replace the ... and run this cell again: choose one of 'c', 'd', 'e', 'g'.
    """

    def __init__(self, module: str, exercises: Sequence[Item] | None = None) -> None:
        if exercises is None:
            exercises = import_module(f"streamstate.tutorials.exercises.{module}").EXERCISES
        self._name = module
        self._items: Mapping[str, Item] = {item.id: item for item in exercises}
        self._file = ProgressFile(default_path())

    def predict(self, id: str, answer: Any = ...) -> Answer:  # noqa: A002 - what learners call it
        """Commit to an answer, so that :meth:`reveal` shows the right one.

        The first answer stays on record. One after the reveal is recorded as a second attempt.

        Args:
            id: the question.
            answer: the answer; ``...`` means that there is none yet.
        """
        question = self._items.get(id)
        if not isinstance(question, Question):
            return self._unknown(id, "predict", Question)
        if answer is ... or answer is None:
            given = self._answers(id)
            said = [f"Earlier you said: {question.kind.words(given[-1]['answer'])}."] if given else []
            return Answer("waiting", NOT_YET, [*said, f"Replace the ... and run this cell again: {_form(question)}."])
        if problem := question.kind.problem(answer):
            return Answer("waiting", "This is no answer to the question yet.", [f"Please {problem}."])
        attempt = self._record_answer(question, answer)
        words = f"You say: {question.kind.words(answer)}."
        if attempt["after_reveal"]:
            first = question.kind.words(self._answers(id)[0]["answer"])
            return self._noted("note", "Recorded as a second attempt.", [words, f"Your first answer stays: {first}."])
        return self._noted("note", "Recorded.", [words, "Now run the cell that reveals it."])

    def reveal(self, id: str, truth: Callable[[], Any] | None = None) -> Answer:  # noqa: A002 - as above
        """Compute the right answer and compare, once there is a prediction.

        Args:
            id: the question.
            truth: computes the right answer, if it comes from the notebook's own query. It is called only after a
                prediction.
        """
        question = self._items.get(id)
        if not isinstance(question, Question):
            return self._unknown(id, "reveal", Question)
        given = self._answers(id)
        if not given:
            return Answer("waiting", f'This waits for your prediction: predict("{id}", …) in the cell above.')
        compute = truth or question.truth
        if compute is None:
            return Answer("waiting", f'Pass what computes it: reveal("{id}", lambda: …).')
        right = compute()
        first, latest = given[0]["answer"], given[-1]["answer"]
        kind = question.kind
        matched = kind.same(latest, right)
        lines = [f"You said: {kind.words(first)}."]
        if len(given) > 1:
            lines.append(f"Then: {', then '.join(kind.words(later['answer']) for later in given[1:])}.")
        lines.append(f"It is: {kind.words(right)}.")
        if not matched and (misconception := question.misconception(latest)):
            lines.append(misconception)
        lines.append(question.because)
        self._change(
            id, lambda record: record.update(revealed=True, right=matched, right_at_first=kind.same(first, right))
        )
        title = "As you predicted." if matched else "Not as you predicted."
        table = question.table() if question.table else None
        return self._noted("right" if matched else "wrong", title, lines, table)

    def after(self, ids: Sequence[str], show: Callable[[], Any]) -> Any:
        """Return what a function returns, once there are predictions that it would spoil.

        Args:
            ids: the questions.
            show: makes what the notebook shows.
        """
        missing = [id for id in ids if not self._answers(id)]  # noqa: A001 - as above
        if missing:
            return Answer("waiting", f"This waits for your predictions: {', '.join(missing)}.")
        return show()

    def check(self, id: str, function: Any = ...) -> Answer:  # noqa: A002 - as above
        """Check a function that you wrote.

        Args:
            id: the exercise.
            function: your function; without a body that returns something, it counts as not answered yet.
        """
        exercise = self._items.get(id)
        if not isinstance(exercise, Exercise):
            return self._unknown(id, "check", Exercise)
        answer = exercise.check(function)
        if answer.mark != "waiting":
            right = answer.mark == "right"

            def checked(record: dict[str, Any]) -> None:
                record["checks"] = record.get("checks", 0) + (not record.get("right"))
                record["right"] = record.get("right", False) or right

            self._change(id, checked)
        return answer

    def is_right(self, id: str) -> bool:  # noqa: A002 - as above
        """Check whether an exercise was right once, or a question at the latest reveal."""
        return bool(self._record(id).get("right"))

    def hint(self, id: str) -> Answer:  # noqa: A002 - as above
        """Show the next hint of a question or exercise, with those before it."""
        item = self._items.get(id)
        if item is None or not item.hints:
            return (
                self._unknown(id, "hint", Question, Exercise) if item is None else Answer("note", "There is no hint.")
            )
        count = min(self._record(id).get("hints", 0) + 1, len(item.hints))
        self._change(id, lambda record: record.update(hints=count))
        left = len(item.hints) - count
        title = f"Hint {count} of {len(item.hints)}" + ("" if left else ", the last one")
        return self._noted("note", f"{title}.", item.hints[:count])

    def progress(self) -> Answer:
        """Show what you answered, and what is left."""
        rows = [[item.id, item.task, *self._state(item)] for item in self._items.values()]
        done = sum(self._record(name).get("right", False) for name in self._items)
        title = f"{done} of {len(rows)} right."
        return self._noted("note", title, [], Table(["", "exercise", "state", "hints"], rows))

    def _state(self, item: Item) -> list[str]:
        record = self._record(item.id)
        hints = f"{record.get('hints', 0)} of {len(item.hints)}"
        if isinstance(item, Question):
            if not self._answers(item.id):
                return ["not answered yet", hints]
            if not record.get("revealed"):
                return ["predicted", hints]
            if record.get("right_at_first"):
                return ["right", hints]
            return ["right at the second attempt" if record.get("right") else "predicted something else", hints]
        if record.get("right"):
            return [f"right after {_counted(record['checks'], 'check')}", hints]
        checks = record.get("checks", 0)
        return [f"not yet, after {_counted(checks, 'check')}" if checks else "not answered yet", hints]

    def _record_answer(self, question: Question, answer: Any) -> dict[str, Any]:
        """Record an answer, unless it repeats the latest one; return its record."""
        attempt = {"answer": question.kind.plain(answer), "at": datetime.now(UTC).isoformat(timespec="seconds")}

        def answered(record: dict[str, Any]) -> None:
            answers = record.setdefault("answers", [])
            attempt["after_reveal"] = bool(record.get("revealed"))
            if not answers or answers[-1]["answer"] != attempt["answer"]:
                answers.append(attempt)
            elif len(answers) == 1:
                attempt["after_reveal"] = False

        self._change(question.id, answered)
        return attempt

    def _answers(self, name: str) -> list[dict[str, Any]]:
        """The answers to a question, without those of another form, which an older version may have recorded."""
        question = self._items[name]
        answers = self._record(name).get("answers", [])
        return [given for given in answers if not question.kind.problem(given["answer"])]  # type: ignore[union-attr]

    def _record(self, name: str) -> dict[str, Any]:
        return self._file.read().get(self._name, {}).get(name, {})

    def _change(self, name: str, change: Callable[[dict[str, Any]], object]) -> None:
        def changed(records: Records) -> None:
            change(records.setdefault(self._name, {}).setdefault(name, {}))

        self._file.change(changed)

    def _noted(self, mark: Any, title: str, lines: Sequence[str], table: Table | None = None) -> Answer:
        """An answer that also says what is wrong with the file of progress, once."""
        notes, self._file.notes = self._file.notes, []
        return Answer(mark, title, [*lines, *notes], table)

    def _unknown(self, name: Any, verb: str, *kinds: type) -> Answer:
        fitting = ", ".join(repr(item.id) for item in self._items.values() if isinstance(item, kinds))
        return Answer("waiting", f"There is nothing to {verb} called {name!r}.", [f"There are: {fitting}."])


def _form(question: Question) -> str:
    return question.kind.problem(object())


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
