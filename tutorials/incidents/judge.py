"""The judge of what a learner says about an incident, part by part. It never gives the answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from streamstate.tutorials.exercises.answers import NOT_YET, Answer, Table
from streamstate.tutorials.exercises.construct import Exercise
from streamstate.tutorials.exercises.questions import Choice, Kind, Number, Question, WrongAnswer
from streamstate.tutorials.incidents.incident import CAUSES, TABLES, Incident
from streamstate.tutorials.incidents.proof import KEYS, as_text

_NOT_THIS = {
    "epoch": "It did not begin there. Compare each epoch with the one before: which is the first that is wrong?",
    "table": "That table is as it should be.",
    "key": "That is not it, or it names many keys that are as they should be.",
}
_TESTS = {
    "repeated file": "What a file brings twice is in the input of two epochs. Compare the rows that they read.",
    "stuck watermark": "A watermark follows the newest rows. Compare it with their times, epoch by epoch.",
    "hot key": "Far more rows arrive for a hot key than for others. Count what epochs read, by key.",
    "leak": "What leaks has more and more keys, and old ones. Count them, epoch by epoch.",
    "nondeterminism": "Replay the query as it runs, twice. Do the two replays differ from each other?",
    "bad deploy": "New code comes with a restart. Is all right before it, and wrong from then on, for the same input?",
}
"""How to find out that it was not one of the causes."""


@dataclass(frozen=True)
class KeyColumns:
    """A form of answers: a key as a dictionary of some of its columns.

    What is right is a list of keys. An answer has to name one of them, with all columns that it has there.
    """

    columns: Sequence[str]

    def problem(self, answer: Any) -> str:
        """Say what is wrong with the form of an answer; empty if nothing is."""
        known = isinstance(answer, dict) and answer and set(self.plain(answer)) <= set(self.columns)
        return "" if known else f"give a dictionary with any of the columns {', '.join(map(repr, self.columns))}"

    def same(self, answer: Any, other: Any) -> bool:
        """Check whether an answer names one of the right keys."""
        return any(key.items() <= self.plain(answer).items() for key in other)

    def plain(self, answer: Any) -> Any:
        """Return an answer as JSON holds it."""
        return {"day" if column == "window" else column: as_text(value) for column, value in answer.items()}

    def words(self, answer: Any) -> str:
        """Return an answer as a person reads it."""
        return ", ".join(f"{column}={value}" for column, value in self.plain(answer).items())


@dataclass(frozen=True, kw_only=True)
class Diagnosis(Exercise):
    """What happened: an epoch, a state table, a key and a cause. Each part is judged, and none is told."""

    parts: Mapping[str, Question]

    def check(self, function: Any) -> Answer:
        """Judge what a learner says: a value for each part; ``...`` means that there is none yet."""
        missing = [part for part in self.parts if function[part] is ... or function[part] is None]
        if missing:
            return Answer("waiting", NOT_YET, [f"Replace the ... of {', '.join(missing)}, and run this cell again."])
        problems = {part: question.kind.problem(function[part]) for part, question in self.parts.items()}
        if lines := [f"{part}: please {problem}." for part, problem in problems.items() if problem]:
            return Answer("waiting", "This is no answer yet.", lines)
        rows = [
            [part, question.kind.words(function[part]), *_verdict(question, function[part])]
            for part, question in self.parts.items()
        ]
        table, right = Table(["part", "you say", "right?", "look again"], rows), sum(row[2] == "✓" for row in rows)
        if right == len(rows):
            return Answer("right", "Right: that is what happened. Now prove that you can fix it.", [], table)
        return Answer("wrong", f"Not yet: {right} of {len(rows)} parts are right.", [], table)


def _verdict(question: Question, given: Any) -> tuple[str, str]:
    if question.truth is not None and question.kind.same(given, question.truth()):
        return "✓", ""
    return "✗", question.misconception(question.kind.plain(given)) or _NOT_THIS[question.id]


def diagnosis(incident: Incident, epochs: Sequence[int]) -> Diagnosis:
    """Return the exercise to say what happened.

    Args:
        incident: what happened.
        epochs: the epoch of each file.
    """
    table, *others = TABLES[incident.query]
    kinds: dict[str, tuple[Kind, Any]] = {
        "epoch": (Number(), epochs[incident.at]),
        "table": (Choice(TABLES[incident.query]), table),
        "key": (KeyColumns(KEYS[incident.query]), incident.keys),
        "cause": (Choice(CAUSES), incident.cause),
    }
    said = {part: dict(incident.said.get(part, {})) for part in kinds}
    said["epoch"] = {
        incident.noticed: "That is when somebody noticed. It had begun before: what is the first epoch that is wrong?",
        **said["epoch"],
    }
    if incident.restart != incident.at:
        said["epoch"].setdefault(incident.restart, "The restart changed nothing: the query goes on as it was.")
    said["table"] = dict.fromkeys(others, "A key has one timer at most. What has too many rows, or too many keys?")
    said["cause"] = {cause: test for cause, test in _TESTS.items() if cause != incident.cause}

    def part_of(part: str, kind: Kind, right: Any) -> Question:
        named: dict[str, Callable[[Any], Any]] = {"epoch": lambda file: epochs[file], "key": _names}
        answers = [WrongAnswer(named.get(part, str)(answer), message) for answer, message in said[part].items()]
        return Question(id=part, task="", kind=kind, truth=lambda: right, because="", wrong=answers)

    parts = {part: part_of(part, *kind) for part, kind in kinds.items()}
    return Diagnosis(
        id="diagnosis",
        task="Say what happened",
        solution=lambda: {part: right[0] if part == "key" else right for part, (_, right) in kinds.items()},
        wrong=[answer for question in parts.values() for answer in question.wrong],
        hints=incident.hints,
        parts=parts,
    )


def _names(name: str) -> Callable[[Mapping[str, str]], bool]:
    """Return what recognises keys that name a column, or one with its value."""
    column, _, value = name.partition("=")
    return lambda key: column in key and value in ("", key[column])
