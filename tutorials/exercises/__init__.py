"""Exercises of the tutorials: predict, then see; write a rule or an invariant, then have it checked.

A notebook opens its :class:`Worksheet`. Everything runs in the learner's own kernel: no account, no hidden tests, no
metadata in cells. The exercises of a notebook are one module here, with solutions, typical wrong answers and hints.
"""

from streamstate.tutorials.exercises.answers import Answer, Table
from streamstate.tutorials.exercises.construct import Construct, Exercise, Invariant, StateExercise
from streamstate.tutorials.exercises.questions import Choice, Keys, Number, Ordering, Question, WrongAnswer
from streamstate.tutorials.exercises.statement import Statement
from streamstate.tutorials.exercises.worksheet import Worksheet

__all__ = [
    "Answer",
    "Choice",
    "Construct",
    "Exercise",
    "Invariant",
    "Keys",
    "Number",
    "Ordering",
    "Question",
    "StateExercise",
    "Statement",
    "Table",
    "Worksheet",
    "WrongAnswer",
]
