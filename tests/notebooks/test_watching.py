"""The notebook on watching a stream; it, too, asserts what it claims."""

from __future__ import annotations

import pytest

from notebooks.running import Shown, of, run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # the first test runs all of it


@pytest.fixture(scope="module")
def watching(tmp_path_factory: pytest.TempPathFactory) -> Shown:
    """The notebook on watching a stream; it, too, asserts what it claims."""
    return run("03_watching_a_stream", tmp_path_factory.mktemp("watching"))


def test_a_file_that_comes_twice_is_seen_while_watching(watching: Shown) -> None:
    """The diff of the epoch shows changes alone, the key's life the step, and a page and a file are left to others."""
    assert "+0 ~65 −0" in of(watching, "change = history.diff(15, 16)")
    assert "removed at epoch 18 (watermark)" in of(watching, "life = KeyHistoryView")
    assert "is served at http://127.0.0.1:" in of(watching, "%state serve")
    assert "10 epochs" in of(watching, "report = StateBrowser")
