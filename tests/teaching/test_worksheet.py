"""The answers that a worksheet gives to learners, and its records."""

from __future__ import annotations

import json
import os
import random
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamstate.tutorials.exercises import Answer, Keys, Number, Ordering, Table, Worksheet
from streamstate.tutorials.exercises.progress_file import ProgressFile

State = dict[tuple[int, int], int]


@pytest.fixture(autouse=True)
def patience() -> None:
    """The limits are a learner's."""


@pytest.fixture
def progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of progress of this test."""
    path = tmp_path / "progress.json"
    monkeypatch.setenv("STREAMSTATE_PROGRESS", str(path))
    monkeypatch.chdir(tmp_path)
    return path


@pytest.fixture
def sheet(progress: Path) -> Worksheet:
    """The worksheet on watermarks."""
    return Worksheet("i02_watermarks")


def _said(answer: Answer) -> str:
    return " ".join([answer.title, *answer.lines])


def test_a_function_that_raises_gets_the_line_of_its_cell(sheet: Worksheet) -> None:
    """The message has the error and the line, and no traceback."""

    def evict(state: State, watermark: int) -> State:
        return {window: count for window, count in state.items() if window[2] > watermark}  # type: ignore[misc]

    answer = sheet.check("evict", evict)
    line = evict.__code__.co_firstlineno + 1
    assert f"`evict` raised IndexError: tuple index out of range (line {line} of its cell)" in answer.lines
    assert answer.table is not None
    assert len(answer.table.rows[0][0]) == 1


def test_a_function_that_never_returns_is_stopped(sheet: Worksheet) -> None:
    """Even one that catches every exception."""

    def evict(state: State, watermark: int) -> State:
        while True:
            with suppress(Exception):
                time.sleep(0.01)

    began = time.monotonic()
    assert "`evict` did not return within 1 s." in _said(sheet.check("evict", evict))
    assert time.monotonic() - began < 5


def test_a_function_that_changes_its_argument_is_told(sheet: Worksheet) -> None:
    """Whether or not what it returns is right."""

    def evict(state: State, watermark: int) -> State:
        for window in [window for window in state if window[1] <= watermark]:
            del state[window]
        return state

    assert "`evict` changes its argument." in _said(sheet.check("evict", evict))


def test_a_function_that_is_not_deterministic_is_told(sheet: Worksheet) -> None:
    """It draws, or it remembers earlier calls; both show when a case is run twice."""
    draws = random.Random(3)
    calls: list[int] = []

    def drawing(state: State, watermark: int) -> State:
        return {window: count for window, count in state.items() if window[1] > watermark or draws.random() < 0.1}

    def remembering(state: State, watermark: int) -> State:
        calls.append(watermark)
        return {window: count for window, count in state.items() if window[1] > calls[0]}

    assert "gave two different results" in _said(sheet.check("evict", drawing))
    assert "gave two different results" not in _said(sheet.check("evict", remembering))
    assert sheet.check("evict", remembering).mark == "wrong"


def test_a_path_without_return_is_told(sheet: Worksheet) -> None:
    """None for some cases is a mistake; None for all means that nothing is written yet."""

    def evict(state: State, watermark: int) -> State | None:
        if watermark > 20:
            return {window: count for window, count in state.items() if window[1] > watermark}
        return None

    assert "Is a `return` missing on some path?" in _said(sheet.check("evict", evict))


@pytest.mark.parametrize("value", [object(), iter([1]), 3, "text", float("nan"), {1, 2}])
def test_values_of_any_type_are_wrong_answers(sheet: Worksheet, value: Any) -> None:
    """They are compared and shown, never raised."""
    answer = sheet.check("evict", lambda state, watermark: value)
    assert answer.mark == "wrong"
    assert answer._repr_html_()


def test_an_unusual_wrong_answer_gets_a_case_and_no_guess(sheet: Worksheet) -> None:
    """A message that names a misconception must fit what the function does."""
    answer = sheet.check("evict", lambda state, watermark: {})
    assert answer.lines == []
    assert answer.table is not None
    assert answer.table.rows[0][0]


def test_what_is_no_function_is_told(sheet: Worksheet) -> None:
    """Learners pass a call, or a value."""
    assert "This is no function, but dict." in _said(sheet.check("evict", {}))


def test_unknown_names_list_the_known_ones(sheet: Worksheet) -> None:
    """A typing error costs a line."""
    assert "There are: 'is_late', 'evict', 'invariant'." in _said(sheet.check("evit", len))
    assert "'fires'" in _said(sheet.predict("q1", 1))
    assert "'fires'" in _said(sheet.reveal("evict"))
    assert "'evict'" in _said(sheet.hint("q1"))


@pytest.mark.parametrize("answer", ["x", 3, ["c"], {"c"}])
def test_an_answer_of_another_form_is_not_recorded(sheet: Worksheet, answer: Any) -> None:
    """The learner sees the form that is asked for."""
    assert "Please choose one of 'c', 'd', 'e', 'g'." in _said(sheet.predict("fires", answer))
    assert sheet.reveal("fires").mark == "waiting"


def test_forms_of_answers() -> None:
    """Numbers have a tolerance; orderings need each item once; keys have no order."""
    assert Number(0.5).same(3, 3.4)
    assert not Number(0.5).same(3, 3.6)
    assert all(Number().problem(answer) for answer in ("3", True, float("nan"), float("inf"), None))
    assert not Ordering(["a", "b"]).problem(("b", "a"))
    assert all(Ordering(["a", "b"]).problem(answer) for answer in (["a"], ["a", "a"], {"a", "b"}, "ab"))
    assert Keys("abc").same({"a", "b"}, ["b", "a"])
    assert not Keys("abc").problem(set())
    assert all(Keys("abc").problem(answer) for answer in ("a", {"z"}, {"a": 1}, 3))


def test_the_first_prediction_stays_on_record(sheet: Worksheet, progress: Path) -> None:
    """A prediction after the reveal is a second attempt, and is shown as one."""
    sheet.predict("fires", "c")
    assert sheet.reveal("fires").mark == "wrong"
    again = sheet.predict("fires", "e")
    assert again.title == "Recorded as a second attempt."
    assert "Your first answer stays: c: at 12:12." in again.lines
    assert list(sheet.reveal("fires").lines[:2]) == ["You said: c: at 12:12.", "Then: e: at 12:16."]
    answers = json.loads(progress.read_text())["i02_watermarks"]["fires"]["answers"]
    assert [(given["answer"], given["after_reveal"]) for given in answers] == [("c", False), ("e", True)]
    assert "right at the second attempt" in repr(sheet.progress())


def test_running_a_cell_again_records_nothing(sheet: Worksheet, progress: Path) -> None:
    """Run All on an answered notebook leaves the record as it is."""
    sheet.predict("fires", "e")
    sheet.reveal("fires")
    before = json.loads(progress.read_text())
    assert sheet.predict("fires", "e").title == "Recorded."
    sheet.reveal("fires")
    assert json.loads(progress.read_text()) == before


def test_the_truth_is_computed_only_after_a_prediction(sheet: Worksheet) -> None:
    """What the notebook computes may take a while, and would spoil the question."""
    computed: list[int] = []

    def truth() -> int:
        computed.append(1)
        return 2

    assert sheet.reveal("spark", truth).mark == "waiting"
    assert sheet.after(["spark"], truth).title == "This waits for your predictions: spark."
    assert computed == []
    sheet.predict("spark", 2)
    assert sheet.reveal("spark", truth).mark == "right"
    assert sheet.after(["spark"], lambda: "shown") == "shown"


def test_checks_and_hints_are_counted(sheet: Worksheet) -> None:
    """The table of progress has them; checks count until the first that is right."""
    sheet.hint("evict")
    sheet.check("evict", ...)
    sheet.check("evict", lambda state, watermark: state)
    solution = sheet._items["evict"].solution  # type: ignore[union-attr]
    sheet.check("evict", solution)
    sheet.check("evict", solution)
    assert [row for row in sheet.progress().table.rows if row[0] == "evict"] == [  # type: ignore[union-attr]
        ["evict", "Write `evict(state, watermark)`", "right after 2 checks", "1 of 3"]
    ]


def _answers_in_a_process(number: int) -> None:
    def answered(records: dict[str, Any]) -> None:
        records.setdefault("sheet", {})[f"q{number}"] = {"right": True}

    ProgressFile(Path(os.environ["STREAMSTATE_PROGRESS"])).change(answered)


def test_notebooks_at_once_lose_nothing(progress: Path) -> None:
    """Several processes and threads record at the same time."""
    with ProcessPoolExecutor(3) as pool:
        list(pool.map(_answers_in_a_process, range(30)))
    threads = [threading.Thread(target=_answers_in_a_process, args=(number,)) for number in range(30, 40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ProgressFile(progress).read()["sheet"]) == 40
    assert sorted(path.name for path in progress.parent.iterdir()) == ["progress.json", "progress.json.lock"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[1]",
        '{"i02_watermarks": 3}',
        '{"i02_watermarks": {"fires": []}}',
        '{"i02_watermarks": {"fires": {"answers": 3}}}',
        "\x00\xff",
    ],
)
def test_a_damaged_file_is_set_aside(sheet: Worksheet, progress: Path, text: str) -> None:
    """The learner goes on with a new one, and the old one is kept."""
    progress.write_text(text, encoding="latin-1")
    assert sheet.reveal("fires").mark == "waiting"
    assert "was damaged" in _said(sheet.predict("fires", "e"))
    assert sheet.reveal("fires").mark == "right"
    assert (progress.parent / "progress.json.broken").read_text(encoding="latin-1") == text


def test_a_file_that_cannot_be_written_costs_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Progress then lasts as long as the notebook."""
    (tmp_path / "file").write_text("", encoding="utf-8")
    monkeypatch.setenv("STREAMSTATE_PROGRESS", str(tmp_path / "file" / "progress.json"))
    sheet = Worksheet("i02_watermarks")
    assert "Your progress lasts only as long as this notebook" in _said(sheet.predict("fires", "e"))
    assert "lasts only" not in _said(sheet.reveal("fires"))
    assert "1 of" in repr(sheet.progress())


def test_none_may_be_an_answer(progress: Path) -> None:
    """Where the solution returns None for some case, nobody has forgotten a `return`."""
    answer = Worksheet("p08_records").check("epoch_of", lambda ends, partition, offset: None if offset else 0)
    assert answer.mark == "wrong"
    assert "return" not in _said(answer)


def test_an_answer_is_escaped_and_shows_its_picture() -> None:
    """Values of learners are text, not HTML; a picture comes below."""

    class Picture:
        def _repr_html_(self) -> str:
            return "<svg></svg>"

    html = Answer("wrong", "<b>", ["`x<y`"], Table(["<i>"], [["<script>"]]), Picture())._repr_html_()
    assert "<script>" not in html
    assert "<code>x&lt;y</code>" in html
    assert html.endswith("<svg></svg></div>")


def test_cases_leave_nothing_in_the_folder(sheet: Worksheet, progress: Path) -> None:
    """Only the file of progress appears, and it is not beside the notebook of a learner."""
    sheet.check("evict", lambda state, watermark: state)
    assert sorted(path.name for path in progress.parent.iterdir()) == ["progress.json", "progress.json.lock"]


def test_an_invariant_that_raises_on_a_broken_run_catches_nothing(sheet: Worksheet) -> None:
    """An error is no verdict; its message shows the run."""

    def holds(state: State, watermark: int, kept: State) -> bool:
        return all(1 / kept[window] > 0 for window in kept) and all(window[1] > watermark for window in kept)

    answer = sheet.check("invariant", holds)
    assert "`holds` raised ZeroDivisionError" in _said(answer)
    assert answer.table is not None
    assert 0 in answer.table.rows[0][2].values()


def test_an_invariant_may_return_what_has_no_truth_value(sheet: Worksheet) -> None:
    """An array has none; the learner sees the error."""
    answer = sheet.check("invariant", lambda state, watermark, kept: np.array([True, False]))
    assert "raised ValueError" in _said(answer)


def test_what_a_function_prints_is_shown_for_the_smallest_case(
    sheet: Worksheet, capsys: pytest.CaptureFixture[str]
) -> None:
    """Hundreds of cases would fill the page."""

    def evict(state: State, watermark: int) -> State:
        print("watermark", watermark)  # noqa: T201 - as learners do
        return state

    assert "It printed: watermark" in _said(sheet.check("evict", evict))
    assert capsys.readouterr().out == ""


def test_answers_of_an_older_version_do_not_count(sheet: Worksheet, progress: Path) -> None:
    """An option may be gone."""
    sheet.predict("fires", "c")
    progress.write_text(progress.read_text().replace('"c"', '"z"'), encoding="utf-8")
    assert sheet.reveal("fires").mark == "waiting"
    assert sheet.predict("fires", ...).mark == "waiting"
    assert sheet.predict("fires", "e").title == "Recorded."
    assert sheet.reveal("fires").mark == "right"
