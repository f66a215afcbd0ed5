"""Each exercise of each notebook, in three ways: untouched, solved, and with each typical wrong answer."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nbformat
import pytest

from streamstate.tutorials import exercises
from streamstate.tutorials.exercises import (
    Exercise,
    Question,
    StateExercise,
    Statement,
    Worksheet,
    WrongAnswer,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FOLDER = Path(exercises.__file__).parent
MODULES = sorted(path.stem for path in FOLDER.glob("[ip][0-9]*_*.py"))
NOTEBOOKS = sorted(FOLDER.parent.glob("*.ipynb"))


def _items(kind: type) -> list[Any]:
    found: list[tuple[str, Any]] = [
        (name, item) for name in MODULES for item in import_module(f"{exercises.__name__}.{name}").EXERCISES
    ]
    return [pytest.param(name, item, id=f"{name}-{item.id}") for name, item in found if issubclass(type(item), kind)]


QUESTIONS = _items(Question)
EXERCISES = _items(Exercise)
IN_PYTHON = [case for case in EXERCISES if not isinstance(case.values[1], StateExercise)]
QUERIES = [case for case in EXERCISES if isinstance(case.values[1], StateExercise)]


@pytest.fixture(autouse=True)
def progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Progress and a folder of its own for each test."""
    path = tmp_path / "progress.json"
    monkeypatch.setenv("STREAMSTATE_PROGRESS", str(path))
    monkeypatch.chdir(tmp_path)
    return path


def _captured(item: Exercise, departures: Path) -> None:
    """Capture what an exercise asks about, as its notebook does."""
    if isinstance(item, Statement):
        item.store.parent.mkdir(parents=True)
        item.store.symlink_to(departures)


@pytest.mark.parametrize(("module", "item"), [*QUESTIONS, *EXERCISES])
def test_untouched_is_not_answered_yet(module: str, item: Question | Exercise) -> None:
    """Run All on an untouched notebook says so, in one friendly line, and reveals nothing."""
    sheet = Worksheet(module)
    if isinstance(item, Question):
        assert repr(sheet.predict(item.id, ...)).startswith("… Not answered yet.")
        assert (
            repr(sheet.reveal(item.id))
            == f'… This waits for your prediction: predict("{item.id}", …) in the cell above.'
        )
    else:
        assert repr(sheet.check(item.id, ...)).startswith("… Not answered yet.")
        if not isinstance(item, (StateExercise, Statement)):
            assert repr(sheet.check(item.id, lambda *values: None)).startswith("… Not answered yet.")
    assert "0 of" in repr(sheet.progress())


def _truth(question: Question) -> Any:
    """The right answer; where the notebook computes it, its test knows it."""
    return question.truth() if question.truth else _FROM_NOTEBOOKS[question.id]


_FROM_NOTEBOOKS = {
    "second_start": {"2", "3"},
    "spark": 2,
    "shrinks": "shrinks",
    "happened": "twice",
    "rows": 1,
    "old": "one",
    "floor": 255,
    "again": {"planned", "written"},
    "first": "next",
    "starts": {"rename", "filter", "order", "nearest"},
    "same": {"rename"},
    "divided": "share",
    "fell": 2,
    "off": "little",
    "strict": "waits",
    "later": "refused",
    "restart_reads": 3,
    "unreadable": {"1", "2"},
    "late": "once",
    "averages": "most",
    "culprit": "average",
    "torn": "second",
    "power": 4,
    "line": "d",
    "diverge": 2,
}


@pytest.mark.parametrize(("module", "item"), QUESTIONS)
def test_a_right_prediction_is_confirmed(module: str, item: Question) -> None:
    """The computed answer is right, and has the form of an answer."""
    sheet = Worksheet(module)
    assert repr(sheet.predict(item.id, _truth(item))).startswith("i Recorded.")
    revealed = sheet.reveal(item.id, lambda: _truth(item))
    assert revealed.mark == "right"
    assert revealed.lines[-1] == item.because


@pytest.mark.parametrize(("module", "item"), QUESTIONS)
def test_a_typical_wrong_prediction_gets_its_own_message(module: str, item: Question) -> None:
    """Each is recognised by its value, and no two have the same message."""
    messages = [wrong.message for wrong in item.wrong]
    assert len(set(messages)) == len(messages)
    for wrong in item.wrong:
        if callable(wrong.answer):
            continue
        sheet = Worksheet(module)
        sheet.predict(item.id, wrong.answer)
        revealed = sheet.reveal(item.id, lambda: _truth(item))
        assert revealed.mark == "wrong"
        assert wrong.message in revealed.lines


@pytest.mark.parametrize(("module", "item"), IN_PYTHON)
def test_the_solution_passes(module: str, item: Exercise, departures: Path) -> None:
    """The reference solution is right."""
    _captured(item, departures)
    assert Worksheet(module).check(item.id, item.solution).mark == "right"


@pytest.mark.parametrize(
    ("module", "item", "wrong"),
    [
        pytest.param(*case.values, wrong, id=f"{case.id}-{number}")
        for case in IN_PYTHON
        for number, wrong in enumerate(case.values[1].wrong)
    ],
)
def test_a_typical_wrong_function_gets_its_own_message(
    module: str, item: Exercise, wrong: WrongAnswer, departures: Path
) -> None:
    """It is recognised by what it does, and only its own message is shown, with a small case that fails."""
    _captured(item, departures)
    answer = Worksheet(module).check(item.id, wrong.answer)
    assert answer.mark == "wrong"
    assert [other.message for other in item.wrong if other.message in answer.lines] == [wrong.message]
    assert answer.table is not None
    assert len(repr(answer.table.rows[0])) < 120


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("module", "item"), QUERIES)
def test_a_query_of_ones_own_in_three_ways(spark: SparkSession, module: str, item: StateExercise) -> None:
    """Not written, it is not answered; the solution passes; each typical wrong query gets its own message."""
    assert item.check(lambda *values: None).mark == "waiting"
    assert item.check(lambda *values: 1 / 0).title == "Not yet: the query failed."
    right = item.check(item.solution)
    assert right.mark == "right", right
    faults = [item.check(wrong.answer).lines[0] for wrong in item.wrong]
    for wrong, fault in zip(item.wrong, faults, strict=True):
        assert wrong.message in fault
    assert len(set(faults)) == len(faults)


@pytest.mark.parametrize(("module", "item"), EXERCISES)
def test_an_exercise_has_wrong_answers_and_hints(module: str, item: Exercise) -> None:
    """At least three typical wrong answers, and hints that appear one at a time."""
    assert len(item.wrong) >= 3
    sheet = Worksheet(module)
    for count in range(1, len(item.hints) + 1):
        assert list(sheet.hint(item.id).lines) == list(item.hints[:count])
    assert list(sheet.hint(item.id).lines) == list(item.hints)
    assert item.hints


@pytest.mark.parametrize("module", MODULES)
def test_the_notebook_has_every_exercise_and_no_answer(module: str) -> None:
    """Each prediction and check is in one notebook, untouched; solutions are in the instructor's guide."""
    items = import_module(f"{exercises.__name__}.{module}").EXERCISES
    sources = {path: [cell.source for cell in nbformat.read(path, as_version=4).cells] for path in NOTEBOOKS}
    [cells] = [cells for cells in sources.values() if any(f'Worksheet("{module}")' in cell for cell in cells)]
    text = "\n".join(cells)
    guide = (FOLDER.parents[1] / "docs" / "guides" / "teaching.md").read_text(encoding="utf-8")
    for item in items:
        verb = "predict" if isinstance(item, Question) else "check"
        assert len(re.findall(rf'\.{verb}\("{item.id}", (\.\.\.|\w+)\)', text)) == 1, item.id
        assert verb == "check" or f'.predict("{item.id}", ...)' in text
        assert f"`{item.id}`" in guide
