"""A notebook with exercises runs from top to bottom, untouched and solved."""

from __future__ import annotations

from pathlib import Path

import pytest
from notebooks.running import TUTORIALS, Shown, latest_run, output_of, run_answered, shows_no_noise

pytestmark = [pytest.mark.slow, pytest.mark.notebook, pytest.mark.timeout(1800)]

WATERMARKS = "I2_when_may_it_be_forgotten"
_PREDICTIONS = {
    "fires": '"e"',
    "dropped": '{"f", "j"}',
    "lingers": '{"12:20"}',
    "quiet": '"35"',
    "smallest": "8",
    "two": "15",
    "spark": "2",
}
_FUNCTIONS = {
    '    """Return True if the window of an event at this time has fired."""\n    ...': (
        "    return time // size * size + size <= watermark"
    ),
    '    """Return a new dictionary with the windows that may still change."""\n    ...': (
        "    return {window: count for window, count in state.items() if window[1] > watermark}"
    ),
    '    """Return True if `kept` is what should stay of `state`, False if not."""\n    ...': (
        "    return kept == {window: state[window] for window in state if window[1] > watermark}"
    ),
}


def _answers(shown: Shown) -> list[str]:
    """The texts of the cells with predictions, reveals and checks."""
    calls = (".predict(", ".reveal(", ".check(", ".after(")
    return [text for source, text in shown if any(call in source for call in calls)]


@pytest.mark.parametrize("name", sorted(path.stem for path in TUTORIALS.glob("I*.ipynb")))
def test_an_untouched_notebook_waits_and_spoils_nothing(name: str) -> None:
    """Run All works, and each cell with a question says what it waits for."""
    shown = latest_run(name)
    assert {text.split()[0] for text in _answers(shown)} == {"…"}
    assert "0 of " in output_of(shown, ".progress()")
    assert shows_no_noise(shown)


def test_a_solved_notebook_confirms_each_answer(tmp_path: Path) -> None:
    """Every prediction and every function is right, and Spark drops as many events as the solution says."""
    predictions = {f'I2.predict("{name}", ...)': f'I2.predict("{name}", {to})' for name, to in _PREDICTIONS.items()}
    shown = run_answered(WATERMARKS, tmp_path, predictions | _FUNCTIONS)
    reveals = [text for source, text in shown if "I2.reveal(" in source or "I2.check(" in source]
    assert {text.split()[0] for text in reveals} == {"✓"}
    assert not any(text.startswith("…") for text in _answers(shown))
    assert "10 of 10 right." in output_of(shown, "I2.progress()")
    assert "Player of Twelve events" in output_of(shown, "play)")
    assert output_of(shown, "late[[").split().count("1") >= 2
