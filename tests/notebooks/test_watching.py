"""The notebook on watching a stream. It asserts what it claims."""

from __future__ import annotations

import pytest

from notebooks.running import Shown, latest_run, output_of

pytestmark = [pytest.mark.slow, pytest.mark.notebook, pytest.mark.timeout(5400)]  # may run all of it


@pytest.fixture(scope="module")
def watching() -> Shown:
    """The outputs of the notebook on watching a stream."""
    return latest_run("03_watching_a_stream")


def test_watching_reveals_a_file_that_arrives_twice(watching: Shown) -> None:
    """The diff has only changes, the key's life has the step, and the notebook serves a page and saves a report."""
    assert "+0 ~65 −0" in output_of(watching, "change = history.diff(15, 16)")
    assert "removed at epoch 18 (watermark)" in output_of(watching, "life = KeyHistoryView")
    assert "is served at http://127.0.0.1:" in output_of(watching, "%state serve")
    assert "10 epochs" in output_of(watching, "report = StateBrowser")


def test_watching_waits_for_its_reader(watching: Shown) -> None:
    """Predictions and the reader's own query are not answered yet, and nothing is revealed."""
    said = [text for source, text in watching if "P03." in source and "P03.progress" not in source]
    assert {text.split()[0] for text in said} == {"…"}
    assert len(said) == 5
