"""The names and files of the examples, made once for all tests."""

from pathlib import Path

import pytest

from examples.spark_world import spark_folder, spark_world  # noqa: F401 - fixtures
from examples.world import folder, world  # noqa: F401 - fixtures


@pytest.fixture(autouse=True)
def progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the progress of examples with exercises apart from that of the person who runs the tests."""
    monkeypatch.setenv("STREAMSTATE_PROGRESS", str(tmp_path / "progress.json"))
